"""One run: a client reads what the endpoint holds, then live records, and reports its CPU and latencies; the kernel knows its memory."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from statistics import median
from threading import Timer

from benchmarks.processes import ENVIRONMENT
from compare.cost.readers import Reader

SEGMENTS = 3
LIVE_SECONDS, WARM_UP_SECONDS = 14, 6
"""Of live records. The first ones may come while a client waits after its last read: five seconds after 10 MiB, since a shard gives 2 MiB a
second. Who does not wait would be refused by the service."""
LIVE_BYTES = 204_800
"""A second, in 100 to 1,000 records: a tenth of what a shard gives, so that what came during the wait is soon read."""
TIMEOUT_SECONDS = 400


@dataclass(frozen=True)
class Load:
    """Records of a size, so many to warm up with and in each measured segment."""

    size: int
    warm: int
    segment: int

    @property
    def count(self) -> int:
        return self.warm + SEGMENTS * self.segment


LOADS = (Load(200, 200_000, 100_000), Load(1024, 60_000, 20_000), Load(10_240, 12_000, 4_000))


@dataclass(frozen=True)
class Measured:
    """CPU in microseconds a record (medians and extremes of segments), peak memory in MB, latency in milliseconds."""

    name: str
    version: str
    way: str
    size: int
    cpu: float
    cpu_low: float
    cpu_high: float
    memory: float
    p50: float
    p99: float
    load: float
    day: str


@contextmanager
def endpoint(load: Load) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """Its URL and its process."""
    command = [sys.executable, str(Path(__file__).with_name("endpoint.py")), str(load.count), str(load.size)]
    with _process(command, stdin=subprocess.PIPE) as process:
        yield process.stdout.readline().strip(), process


@contextmanager
def _process(command: list[str], stdin: int = subprocess.DEVNULL) -> Iterator[subprocess.Popen[str]]:
    streams = {"stdin": stdin, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, text=True, env=ENVIRONMENT, **streams) as process:
        timer = Timer(TIMEOUT_SECONDS, process.kill)
        timer.start()
        try:
            yield process
        finally:
            timer.cancel()
            process.kill()


def measure(reader: Reader, way: str, load: Load) -> Measured:
    """Raises: ValueError when the client ended without a figure."""
    with endpoint(load) as (url, serving):
        numbers = map(str, (load.warm, load.segment, SEGMENTS))
        with _process([*reader.command, url, way, *numbers]) as reading:
            costs = _line(reading)
            memory = _peak_megabytes(reading.pid)
            serving.stdin.write(f"{min(1_000, max(100, LIVE_BYTES // load.size))} {LIVE_SECONDS}\n")
            serving.stdin.flush()
            millis = _line(reading)
    late = sorted(millis[len(millis) * WARM_UP_SECONDS // LIVE_SECONDS :])
    latency = late[len(late) // 2], late[int(len(late) * 0.99)]
    spread = min(costs), max(costs), memory
    now = round(os.getloadavg()[0], 1), f"{date.today():%Y-%m-%d}"
    return Measured(reader.name, reader.version, way, load.size, median(costs), *spread, *latency, *now)


def _line(process: subprocess.Popen[str]) -> list[float]:
    """The next line that is JSON: libraries print lines of their own."""
    for line in process.stdout:
        if line.startswith("["):
            return [float(each) for each in json.loads(line)]
    raise ValueError(f"it ended early: {process.args}")


def _peak_megabytes(process_id: int) -> float:
    """The most memory that a process has held, in MB."""
    status = Path(f"/proc/{process_id}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
    return int(line.split()[1]) / 1000
