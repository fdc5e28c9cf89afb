"""Runs the real command in a process of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import recordpublisher
from recordpublisher.local import LocalKinesisThread

ROOT = Path(__file__).parents[2]
PACKAGE = Path(recordpublisher.__file__).parents[1]


def command(*arguments: str, path: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `recordpublisher ARGUMENTS`; `path` is searched for modules first."""
    return subprocess.run(
        [sys.executable, "-m", "recordpublisher", *arguments],
        env=process_environment(path, **environment),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def several_commands(endpoint: LocalKinesisThread, *commands: list[str]) -> list[subprocess.CompletedProcess[str]]:
    """Run commands one after the other, in one process, with the endpoint in the environment."""
    results = json_results("commands_in_one_process", [*commands], **sdk_environment(endpoint))
    return [
        subprocess.CompletedProcess(arguments, *result) for arguments, result in zip(commands, results, strict=True)
    ]


def json_results(module: str, given: list[Any], cwd: Path | None = None, **environment: str) -> list[Any]:
    """Run a module of this folder with a JSON list as its input; what it prints, a JSON value a line."""
    done = subprocess.run(
        [sys.executable, "-m", f"processes.{module}"],
        cwd=cwd,
        env=process_environment(ROOT / "tests", **environment),
        input=json.dumps(given),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
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
