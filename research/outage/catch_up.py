"""Second part: the job is started again with one shard three days behind, without `alignment.max.lag` and with it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from recordpublisher.fetcher.leases.group_store import store_as_group
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.stores.folder_store import FolderStore
from recordpublisher.publishers.positions import StartingPosition

from .processes import ReplayProcesses
from .producer import Producer
from .results.checks import MIN_HELD_MS, CatchUpResult
from .scenario import (
    CATCH_UP_STREAM,
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    PROPERTIES,
    steady_events,
)

SHARDS = 3
BEHIND = 0
"""The shard that stayed unread."""
DAYS = 3
BACKLOG = 7_200
"""Records of the shard that is behind: one for each 36 seconds of three days."""
HELD_SECONDS = 7.0
"""How long the job runs without a limit to the lag, or until the others were held for `MIN_HELD_MS` on a slow machine."""
TIMEOUT_SECONDS = 40.0
POLL_SECONDS = 0.1

WITHOUT_MAX_LAG: Mapping[str, Any] = {
    **PROPERTIES,
    "flink.watermark.lookahead.millis": HOUR_MS,
    "flink.shard.getrecords.maxrecordcount": 100,
    "flink.shard.getrecords.intervalmillis": 200,
}
"""About five hours of event time a second: three days take a quarter of a minute, as they take hours in a real job."""
WITH_MAX_LAG: Mapping[str, Any] = {**WITHOUT_MAX_LAG, "flink.watermark.alignment.max.lag": 2 * HOUR_MS}


def run_catch_up(folder: Path, log_line: Callable[[str], None], workers: int = SHARDS) -> CatchUpResult:
    """Run the second part, in a group of `workers`, or with 1 in a process that runs alone. Raises: ReplayFailedError."""
    folder.mkdir(parents=True)
    with ReplayProcesses(folder, {CATCH_UP_STREAM: SHARDS}) as processes:
        return _CatchUp(processes, folder, log_line, workers).run()


class _CatchUp:
    """Owns the two starts of the job."""

    def __init__(self, processes: ReplayProcesses, folder: Path, log_line: Callable[[str], None], workers: int) -> None:
        self._workers = workers
        self._processes = processes
        self._folder = folder
        self._log_line = log_line
        self._producer = Producer(processes.url, CATCH_UP_STREAM, SHARDS)
        self._log = processes.log
        self._now_ms = round(time.time() * 1000)

    def run(self) -> CatchUpResult:
        """Start the job three days behind, first without a limit, then with one."""
        self._send_backlog()
        asyncio.run(self._store_state())
        self._start("the job is started again", WITHOUT_MAX_LAG)
        self._run_for(HELD_SECONDS)
        self._run_until(self._others_are_held)
        held = dict(self._log.shards)
        workers = [message["metrics"]["worker"] for message in self._log.latest.values()]
        lag_ms = max(each["alignmentLagMs"] or 0 for each in workers)
        self._processes.stop_workers()
        self._log.restart()
        began = self._start("and once more, with flink.watermark.alignment.max.lag", WITH_MAX_LAG)
        released = self._run_until(self._others_are_written)
        if released is not None:
            self._log_line(f"{released - self._log.began:5.1f} s  the other shards have written what they had")
        was_excluded = self._log.shards[_key(BEHIND)]["excluded"]
        self._run_until(lambda: self._log.rows == dict(self._producer.sent))
        self._run_for(1.0)
        seconds = None if released is None else released - began
        sent = dict(self._producer.sent)
        return CatchUpResult(self._log, held, lag_ms, seconds, was_excluded, sent, _key(BEHIND))

    def _send_backlog(self) -> None:
        """Three days in the shard that is behind, an hour in each of the others."""
        first, step = self._now_ms - DAYS * DAY_MS, DAYS * DAY_MS // BACKLOG
        self._producer.plan((0.0, BEHIND, first + number * step) for number in range(BACKLOG))
        for shard in _others():
            self._producer.plan((0.0, shard, self._now_ms - minute * MINUTE_MS) for minute in range(60, 0, -1))
        self._producer.send_due(0.0)

    async def _store_state(self) -> None:
        """The state of the job before: one shard unread for three days, the others read until an hour ago."""
        behind_ms, others_ms = self._now_ms - DAYS * DAY_MS, self._now_ms - HOUR_MS
        states = {
            _key(shard): ShardState(
                StartingPosition.trim_horizon(), watermark=behind_ms if shard == BEHIND else others_ms
            )
            for shard in range(SHARDS)
        }
        await store_as_group(FolderStore(self._folder / "state"), states)

    def _start(self, line: str, properties: Mapping[str, Any]) -> float:
        self._processes.start_workers(CATCH_UP_STREAM, self._workers, SHARDS, dict(properties))
        now = time.time()
        if not self._log.actions:
            self._log.begin(now)
            for shard in _others():
                self._producer.plan(steady_events(shard, 0.0, 20.0, self._now_ms, speed=1))
        self._log.add_action(now, line)
        self._log_line(f"{now - self._log.began:5.1f} s  {line}")
        return now

    def _others_are_held(self) -> bool:
        others = {key: one for key, one in self._log.shards.items() if key != _key(BEHIND)}
        alarmed = {alarm["subject"] for _, _, alarm in self._log.alarms}
        return others.keys() <= alarmed and all(one["heldMs"] >= MIN_HELD_MS for one in others.values())

    def _others_are_written(self) -> bool:
        rows = self._log.rows
        return all(rows.get(key, 0) >= count - 10 for key, count in self._producer.sent.items() if key != _key(BEHIND))

    def _run_for(self, seconds: float) -> None:
        deadline = time.time() + seconds
        while time.time() < deadline:
            self._step()

    def _run_until(self, is_over: Callable[[], bool]) -> float | None:
        """Run until it is over; returns when that was, None after the timeout."""
        deadline = time.time() + TIMEOUT_SECONDS
        while time.time() < deadline:
            self._step()
            if is_over():
                return time.time()
        return None

    def _step(self) -> None:
        self._producer.send_due(time.time() - self._log.began)
        self._processes.read_messages()
        time.sleep(POLL_SECONDS)


def _others() -> list[int]:
    return [number for number in range(SHARDS) if number != BEHIND]


def _key(shard: int) -> str:
    return f"{CATCH_UP_STREAM}/shardId-{shard:012d}"
