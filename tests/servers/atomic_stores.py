"""S3 and DynamoDB whose conditional writes are atomic, as the services' are: versitygw (built by Go) and DynamoDB Local (Maven)."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

POM = Path(__file__).parent / "dynamodb_local" / "pom.xml"
VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
"""The first release whose conditional writes are atomic (its pull request 2288)."""
BUILD_SECONDS = 600
START_SECONDS = 60
KEY, SECRET = "local", "local-secret"
ACCESS = {"region_name": "us-east-1", "aws_access_key_id": KEY, "aws_secret_access_key": SECRET}
PROPERTIES = {
    "aws.region": "us-east-1",
    "aws.credentials.provider.basic.accesskeyid": KEY,
    "aws.credentials.provider.basic.secretkey": SECRET,
}


@contextmanager
def serve_dynamodb_local() -> Iterator[str]:
    """The URL of a DynamoDB Local without tables, in memory."""
    _require("mvn", "java")
    with tempfile.TemporaryDirectory() as folder:
        classpath = Path(folder) / "classpath"
        build = ("mvn", "-q", "-B", "-f", POM, "dependency:build-classpath", f"-Dmdep.outputFile={classpath}")
        _run(*build)
        libraries = {str(Path(each).parent) for each in classpath.read_text().split(":") if "sqlite4java" in each}
        port = _free_port()
        command = [
            "java",
            f"-Djava.library.path={':'.join(sorted(libraries))}",
            *("-cp", classpath.read_text(), "com.amazonaws.services.dynamodbv2.local.main.ServerRunner"),
            *("-inMemory", "-disableTelemetry", "-port", str(port)),
        ]
        url = f"http://127.0.0.1:{port}"
        client = boto3.client("dynamodb", endpoint_url=url, config=_QUICK, **ACCESS)
        with _served(command, client.list_tables, folder):
            client.close()
            yield url


@contextmanager
def serve_versitygw() -> Iterator[str]:
    """The URL of an S3 server that has a bucket named `bucket`. Its objects are files in a temporary folder."""
    _require("go")
    with tempfile.TemporaryDirectory() as folder:
        _run("go", "install", VERSITYGW, GOBIN=folder)
        data, metadata = Path(folder) / "data", Path(folder) / "metadata"
        data.mkdir()
        metadata.mkdir()
        port = _free_port()
        command = [
            f"{folder}/versitygw",
            "--port",
            f"127.0.0.1:{port}",
            "--quiet",
            "posix",
            *_metadata_options(metadata),
            str(data),
        ]
        url = f"http://127.0.0.1:{port}"
        client = boto3.client("s3", endpoint_url=url, config=_QUICK, **ACCESS)
        with _served(command, client.list_buckets, folder, ROOT_ACCESS_KEY=KEY, ROOT_SECRET_KEY=SECRET):
            client.create_bucket(Bucket="bucket")
            client.close()
            yield url


_QUICK = Config(connect_timeout=2, read_timeout=5, retries={"max_attempts": 1})


def _metadata_options(folder: Path) -> tuple[str, ...]:
    """Metadata are extended attributes of files, where the file system has them."""
    try:
        os.setxattr(folder, "user.test", b"")
    except OSError:
        return ("--sidecar", str(folder))
    return ()


def _require(*tools: str) -> None:
    """Skip the test without a tool; fail it in CI."""
    for tool in tools:
        if shutil.which(tool) is None:
            (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(f"{tool} is missing")


def _run(*command: str | Path, **environment: str) -> None:
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


@contextmanager
def _served(command: list[str], ask: Callable[[], object], folder: str, **environment: str) -> Iterator[None]:
    """Run a server until the block ends. `ask` succeeds when it has started."""
    log = Path(folder) / "log"
    with log.open("w") as output:
        server = subprocess.Popen(command, stdout=output, stderr=output, env={**os.environ, **environment})
    try:
        _wait_until_it_answers(ask, server, log)
        yield
    finally:
        server.kill()
        server.wait()


def _wait_until_it_answers(ask: Callable[[], object], server: subprocess.Popen, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while server.poll() is None and time.monotonic() < deadline:
        try:
            ask()
        except (BotoCoreError, ClientError):
            time.sleep(0.1)
        else:
            return
    pytest.fail(f"a server did not start:\n{log.read_text()}")
