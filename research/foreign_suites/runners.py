"""Runs each suite in a process of its own, with the endpoint where the suite expects its server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from unittest import mock

from recordpublisher.local import Delays, account, serve_in_thread

from .outcomes import Outcome, outcomes_of_mocha, outcomes_of_pytest
from .rules import ASYNC_KINESIS_RULES, KINESALITE_RULES, MOTO_RULES, Rule

OWN = Path(__file__).parent
LIMIT_SECONDS = 1800
KEYS = {"local": "local"}
"""By which kinesalite's tests sign: the endpoint checks each signature."""
DELAYS = Delays(create_stream=500, delete_stream=500, reshard=500)


def run_moto(folder: Path) -> list[Outcome]:
    """moto's tests of Kinesis, each with a fresh endpoint in place of moto."""
    return _pytest(folder, ["tests/test_kinesis", "-p", "foreign_suites.moto_plugin"], {}, MOTO_RULES)


def run_async_kinesis(folder: Path) -> list[Outcome]:
    """The integration tests of async-kinesis."""
    with mock.patch.object(account, "ACCOUNT_ID", "123456789012"), serve_in_thread() as server:  # as its ARNs
        url = f"http://localhost:{server.endpoint.port}"  # by this name its tests know that it is not AWS
        return _pytest(folder, ["tests", "-m", "integration"], {"ENDPOINT_URL": url}, ASYNC_KINESIS_RULES)


def run_kinesalite(folder: Path) -> list[Outcome]:
    """kinesalite's tests; those of its own server's port are forwarded to the endpoint."""
    node = shutil.which("node")
    if node is None:
        raise SystemExit("kinesalite's tests need Node.js")
    command = [node, "node_modules/mocha/bin/_mocha", "--require", "should", "--require", str(OWN / "forward.js")]
    outcomes = []
    for tests in sorted(
        (folder / "test").glob("*.js")
    ):  # one process each: an error after a test's end would end them all
        if tests.name == "helpers.js":
            continue
        with (
            serve_in_thread(credentials=KEYS, delays=DELAYS) as server,
            serve_in_thread(credentials=KEYS, tls=True) as with_tls,
            tempfile.TemporaryFile("w+") as report,
        ):  # in a pipe mocha cuts the end off
            subprocess.run(
                [*command, "--reporter", "json", "-t", "30s", str(tests)],
                check=False,
                cwd=folder,
                env={
                    **_environment(),
                    "ENDPOINT_PORT": str(server.endpoint.port),
                    "ENDPOINT_TLS_PORT": str(with_tls.endpoint.port),
                },
                stdout=report,
                stderr=subprocess.DEVNULL,
                timeout=LIMIT_SECONDS,
            )
            report.seek(0)
            outcomes += outcomes_of_mocha(report.read(), KINESALITE_RULES)
    return outcomes


def _pytest(folder: Path, arguments: list[str], more: dict[str, str], rules: tuple[Rule, ...]) -> list[Outcome]:
    with tempfile.TemporaryDirectory() as temporary:
        report = Path(temporary) / "report.xml"
        quiet = ["-q", "-p", "no:cacheprovider", "-W", "ignore", f"--rootdir={folder}", f"--junitxml={report}"]
        path = [str(folder), str(OWN.parent), str(OWN.parent.parent / "src"), *filter(None, sys.path)]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *arguments, *quiet],
            check=False,
            cwd=folder,
            env={**_environment(), **more, "PYTHONPATH": os.pathsep.join(path)},
            capture_output=True,
            text=True,
            timeout=LIMIT_SECONDS,
        )
        if not report.exists():
            raise SystemExit(f"{folder}: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        return outcomes_of_pytest(report.read_text(), rules)


def _environment() -> dict[str, str]:
    """No call can leave this machine: other services have an endpoint on which nothing listens."""
    return {
        **os.environ,
        "AWS_ACCESS_KEY_ID": "local",
        "AWS_SECRET_ACCESS_KEY": "local",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
