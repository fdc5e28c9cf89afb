"""First part: a worker is stopped for longer than every timeout, runs again, and one of its shards gets its first records."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .processes import ReplayProcesses
from .producer import Producer
from .results.checks import SuspensionResult
from .scenario import HOUR_MS, PROPERTIES, SHARDS, STOPPED, STREAM, WORKERS, Timeline

POLL_SECONDS = 0.1
WRITE_TIMEOUT_SECONDS = 60.0
"""How long after the last event everything may take to be written."""
SETTLE_SECONDS = 3.0
"""By our rule: reports are read so long after the last event in any case."""
LAG_GRACE_SECONDS = 1.0
"""Of `lag --check`; longer than the checkpoint interval of the replay."""


def run_suspension(folder: Path, log_line: Callable[[str], None]) -> SuspensionResult:
    """Run the first part. Raises: ReplayFailedError."""
    timeline = Timeline()
    folder.mkdir(parents=True)
    with ReplayProcesses(folder, {STREAM: SHARDS}) as processes:
        producer = Producer(processes.url, STREAM, SHARDS)
        processes.start_workers(STREAM, WORKERS, SHARDS, PROPERTIES)
        replay = _Suspension(processes, producer, timeline, log_line)
        replay.run_until_sent()
        replay.run_until_written()
        code, message = lag_check(processes.connection, STREAM, folder / "state", PROPERTIES)
        log_line(f"recordpublisher lag --check exits with {code}{': ' + message if message else ''}")
        processes.read_messages()
        return SuspensionResult(processes.log, dict(producer.sent), replay.late, timeline, code)


def lag_check(
    connection: Mapping[str, str], stream: str, state: Path, properties: Mapping[str, Any]
) -> tuple[int, str]:
    """Run `recordpublisher lag --check`, as cron would; returns its exit code and what it wrote to stderr."""
    pairs = {**connection, "flink.alarm.interval": properties["flink.alarm.interval"]}
    given = [part for key, value in pairs.items() for part in ("-p", f"{key}={value}")]
    command = ["lag", stream, "--state", str(state), "--check", "--grace", str(LAG_GRACE_SECONDS), *given]
    done = subprocess.run(
        [sys.executable, "-m", "recordpublisher", *command], capture_output=True, text=True, timeout=200, check=False
    )
    return done.returncode, done.stderr.strip().removeprefix("recordpublisher: ")


class _Suspension:
    """Owns the steps that are still to come."""

    def __init__(
        self, processes: ReplayProcesses, producer: Producer, timeline: Timeline, log_line: Callable[[str], None]
    ) -> None:
        self._processes = processes
        self._producer = producer
        self._log_line = log_line
        log = processes.log
        log.begin(time.time())
        silent, self.late = log.shards_of(STOPPED)
        own = {_number(silent), _number(self.late)}
        others = [number for number in range(SHARDS) if number not in own]
        base_ms = round(log.began * 1000) - 2 * HOUR_MS
        producer.plan(timeline.events(others, _number(silent), _number(self.late), base_ms))
        stopped = processes.workers[STOPPED]
        silent_line = f"shard {_number(silent)} of worker {STOPPED} falls silent, its queue is empty"
        late_line = f"shard {_number(self.late)} of worker {STOPPED} gets its first records"
        self._steps: list[tuple[float, str, Callable[[], None]]] = [
            (timeline.silent_from, silent_line, _done_by_producer),
            (timeline.stopped_at, f"worker {STOPPED} is stopped (SIGSTOP)", stopped.pause),
            (timeline.continued_at, f"worker {STOPPED} runs again (SIGCONT)", stopped.resume),
            (timeline.late_from, late_line, _done_by_producer),
        ]

    def run_until_sent(self) -> None:
        """Run until the producer has finished."""
        while not self._producer.has_finished:
            self._step()

    def run_until_written(self) -> None:
        """Run until everything is written, or the timeout is up."""
        self.run_for(SETTLE_SECONDS)
        deadline = time.time() + WRITE_TIMEOUT_SECONDS
        while time.time() < deadline and self._processes.log.rows != dict(self._producer.sent):
            self._step()

    def run_for(self, seconds: float) -> None:
        """Run for so long."""
        deadline = time.time() + seconds
        while time.time() < deadline:
            self._step()

    def _step(self) -> None:
        elapsed = time.time() - self._processes.log.began
        while self._steps and self._steps[0][0] <= elapsed:
            _, line, act = self._steps.pop(0)
            act()
            self._processes.log.add_action(time.time(), line, STOPPED)
            self._log_line(f"{elapsed:5.1f} s  {line}")
        self._producer.send_due(elapsed)
        self._processes.read_messages()
        time.sleep(POLL_SECONDS)


def _done_by_producer() -> None:
    """The planned events already make it happen."""


def _number(key: str) -> int:
    """`orders/shardId-000000000003` is shard 3 of a stream that was never split."""
    return int(key.rsplit("-", 1)[1])
