"""The processes of a benchmark: a server, and clients that print their own CPU per record."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

HERE = Path(__file__).parent
PATHS = [str(HERE.parent), str(HERE.parents[1] / "tests"), os.environ.get("PYTHONPATH", "")]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(PATHS)}


def replay_server(
    shards: int,
    records: int,
    event: int,
    size: int,
    parts: int = 0,
    small: int = -1,
    certificate: tuple[str, str] | tuple[()] = (),
) -> AbstractContextManager[str]:
    """The URL of a replay server; it ends with the block or with this process. `replay_server.py` explains the numbers.

    `certificate`: the files of certificate and key, for TLS.
    """
    scheme = "https" if certificate else "http"
    return _server(scheme, "servers/replay_server.py", shards, records, event, size, parts, small, *certificate)


def put_server(shards: int = 1) -> AbstractContextManager[str]:
    """The URL of a server that accepts every record of PutRecords."""
    return _server("http", "servers/put_server.py", shards)


def limited_endpoint(percent_refused: float) -> AbstractContextManager[str]:
    """The URL of the embedded endpoint with the service's quotas and one shard; it refuses this percentage of records at random too."""
    return _server("http", "servers/limited_endpoint.py", percent_refused)


@contextmanager
def _server(scheme: str, script: str, *arguments: object) -> Iterator[str]:
    command = [sys.executable, str(HERE / script), *map(str, arguments)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
    ) as process:
        assert process.stdout is not None
        try:
            yield f"{scheme}://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


PEERS = HERE.parents[1] / ".venvs" / "peers" / "bin" / "python"
"""The peers' environment (`make peers`)."""


def output_of_peer(script: str, *arguments: object) -> str:
    """The output of a process in the peers' environment."""
    command = [str(PEERS), str(HERE / "peers" / script), *map(str, arguments)]
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT, check=True, timeout=200).stdout


def micros_of(script: str, *arguments: object, trusted: str = "") -> float:
    """The result of a benchmark process: microseconds of its own CPU (user and system, all threads) per record."""
    return float(output_of(script, *arguments, trusted=trusted))


def output_of(script: str, *arguments: object, trusted: str = "") -> str:
    """The output of a benchmark process. `trusted`: the trusted CA file, for TLS."""
    command = [sys.executable, str(HERE / script), *map(str, arguments)]
    environment = {**ENVIRONMENT, "AWS_CA_BUNDLE": trusted} if trusted else ENVIRONMENT
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True, timeout=300)
    return done.stdout
