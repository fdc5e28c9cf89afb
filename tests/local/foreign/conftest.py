"""Other Kinesis servers on loopback, each started once per run. `make servers` installs them."""

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from recordpublisher.local import Delays, serve_in_thread

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
KINESIS_LOCAL = HERE / "node_modules/kinesis-local/main.js"
MINISTACK = ROOT / ".venvs/ministack/bin/ministack"
NEWEST_SDK = ROOT / ".venvs/sdk/bin/python"
START_SECONDS = 30


def require(program: Path) -> None:
    """Skip the test if a server is not installed; with CI=true fail it."""
    if program.exists():
        return
    reason = f"{program.relative_to(ROOT)} is not installed: make servers"
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextmanager
def started(command: list[str], port: int, environment: dict[str, str], cwd: Path) -> Iterator[str]:
    """Run a server until the block ends; yields its URL once it listens."""
    with subprocess.Popen(
        command,
        env={**os.environ, **environment},
        cwd=cwd,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            wait_until_listening(process, port)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()  # a normal stop waits half a minute for open connections


def wait_until_listening(process: "subprocess.Popen[bytes]", port: int) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the server ended with {process.returncode}"
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.fail(f"no server on port {port} after {START_SECONDS} s")


@contextmanager
def client(url: str) -> Iterator[Any]:
    config = Config(retries={"total_max_attempts": 1}, read_timeout=20)
    session = boto3.Session(aws_access_key_id="local", aws_secret_access_key="local", region_name="us-east-1")
    kinesis = session.client("kinesis", endpoint_url=url, config=config)
    yield kinesis
    kinesis.close()


@pytest.fixture
def ours() -> Iterator[Any]:
    delays = Delays(create_stream=50, delete_stream=50, reshard=50, consumer=50)
    with serve_in_thread(delays=delays) as endpoint, client(endpoint.url) as kinesis:
        yield kinesis


@pytest.fixture(scope="session")
def moto() -> Iterator[Any]:
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    with client(f"http://{host}:{port}") as kinesis:
        yield kinesis
    server.stop()


@pytest.fixture(scope="session")
def kinesis_local() -> Iterator[Any]:
    require(KINESIS_LOCAL)
    port = free_port()
    environment = {"KINESIS_MOCK_PLAIN_PORT": str(port), "KINESIS_MOCK_TLS_PORT": str(free_port())}
    durations = ("CREATE_STREAM", "DELETE_STREAM", "REGISTER_STREAM_CONSUMER", "DEREGISTER_STREAM_CONSUMER")
    durations += ("MERGE_SHARDS", "SPLIT_SHARD", "UPDATE_SHARD_COUNT")
    environment |= {f"{name}_DURATION": "50ms" for name in durations}
    command = ["node", "--require", str(HERE / "loopback.cjs"), KINESIS_LOCAL.name]
    with started(command, port, environment, KINESIS_LOCAL.parent) as url, client(url) as kinesis:
        yield kinesis


@pytest.fixture(scope="session")
def ministack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    require(MINISTACK)
    port = free_port()
    environment = {"BIND_HOST": "127.0.0.1", "GATEWAY_PORT": str(port), "SERVICES": "kinesis"}
    cwd = tmp_path_factory.mktemp("ministack")
    with started([str(MINISTACK)], port, environment, cwd) as url, client(url) as kinesis:
        yield kinesis


@pytest.fixture
def newest_sdk() -> Path:
    """A Python with today's boto3."""
    require(NEWEST_SDK)
    return NEWEST_SDK


@pytest.fixture
def foreign(request: pytest.FixtureRequest) -> Callable[[str], Any]:
    """Return the client of a server by its name."""
    return request.getfixturevalue
