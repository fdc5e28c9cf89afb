"""Runs the real command in a process of its own."""

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import recordpublisher
from recordpublisher.local import LocalKinesisThread

from processes.forked.command import ForkedCommand

ROOT = Path(__file__).parents[2]
PACKAGE = Path(recordpublisher.__file__).parents[1]


def command(
    *arguments: str,
    path: Path | None = None,
    folder: Path | None = None,
    stdin: str = "",
    stdout: int | None = None,
    stderr: int | None = None,
    timeout: float = 120,
    module: str = "recordpublisher",
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    """Run `recordpublisher ARGUMENTS`; `path` is searched for modules first, `folder` is the current one, `stdout` and
    `stderr` are descriptors for what is written, which is then not returned. Another `module` is run as `python -m` does."""
    with ExitStack() as files:
        given, output, errors = (files.enter_context(TemporaryFile("w+")) for _ in range(3))
        given.write(stdin)
        given.seek(0)
        streams = (
            given.fileno(),
            output.fileno() if stdout is None else stdout,
            errors.fileno() if stderr is None else stderr,
        )
        process = ForkedCommand(
            *arguments,
            environment=process_environment(path, **environment),
            streams=streams,
            folder=folder,
            module=module,
        )
        try:
            code = process.wait(timeout)
        finally:
            process.kill()
        output.seek(0)
        errors.seek(0)
        return subprocess.CompletedProcess(process.args, code, output.read(), errors.read())


def several_commands(
    endpoint: LocalKinesisThread, *commands: list[str], cwd: Path | None = None
) -> list[subprocess.CompletedProcess[str]]:
    """Run commands one after the other, in one process, with the endpoint in the environment."""
    results = json_results("commands_in_one_process", [*commands], cwd=cwd, **sdk_environment(endpoint))
    return [
        subprocess.CompletedProcess(arguments, *result) for arguments, result in zip(commands, results, strict=True)
    ]


def json_results(module: str, given: list[Any], cwd: Path | None = None, **environment: str) -> list[Any]:
    """Run a module of this folder with a JSON list as its input; what it prints, a JSON value a line."""
    done = command(
        path=ROOT / "tests", folder=cwd, stdin=json.dumps(given), module=f"processes.{module}", **environment
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def sdk_environment(endpoint: LocalKinesisThread) -> dict[str, str]:
    """The environment in which the AWS SDK reaches the endpoint."""
    return {
        "AWS_ENDPOINT_URL": endpoint.url,
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
    }


def process_environment(path: Path | None = None, **environment: str) -> dict[str, str]:
    """The environment in which the package under test is found: this checkout's, or an installed wheel."""
    places = [str(path)] if path else []
    own = {"PYTHONPATH": os.pathsep.join([*places, str(PACKAGE)]), "PYSPARK_PYTHON": sys.executable}
    return {**os.environ, **own, **environment}
