"""The second half, the morning after: the job is started again, and one shard is days behind."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recordpublisher.fetcher.checkpoints.snapshot import to_json
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.stores.file.state_store import FileStateStore
from recordpublisher.publishers.positions import StartingPosition

from .event_log import Recording
from .processes import Theatre
from .producer import Producer
from .scenario import DAY_MS, HOUR_MS, MINUTE_MS, MORNING, PROPERTIES, TRACKER_TIMEOUT_MS, steady

SHARDS = SUBTASKS = 3
BEHIND = 0
"""The shard that stayed unread."""
DAYS = 3
BACKLOG = 7_200
"""Records of the shard that is behind: one for each 36 seconds of three days."""
HELD_SECONDS = 7.0
"""How long the job runs without a limit to the lag; longer where a slow machine has not held the others for `HELD_LEAST_MS` by then."""
HELD_LEAST_MS = 5_000
PATIENCE_SECONDS = 40.0
TICK_SECONDS = 0.1

PACE: Mapping[str, Any] = {
    **PROPERTIES,
    "flink.watermark.lookahead.millis": HOUR_MS,
    "flink.shard.getrecords.maxrecordcount": 100,
    "flink.shard.getrecords.intervalmillis": 200,
}
"""About five hours of event time a second: three days take a quarter of a minute, as they take hours in a real job."""
WITH_MAX_LAG: Mapping[str, Any] = {**PACE, "flink.watermark.alignment.max.lag": 2 * HOUR_MS}


@dataclass(frozen=True, slots=True)
class Morning:
    """What the second half has shown.

    `held`: the standing of the subtasks when they were stopped; `freed_seconds`: from the second start until the others had written all
    they had so far (None: never); `sent` by shard; `behind` the shard.
    """

    recording: Recording
    held: Mapping[str, Mapping[str, Any]]
    lag_ms: int
    holder: int | None
    freed_seconds: float | None
    was_left_out: bool
    sent: Mapping[str, int]
    behind: str


def morning_after(folder: Path, say: Callable[[str], None]) -> Morning:
    """Play it. Raises: OutageFailedError."""
    folder.mkdir(parents=True)
    with Theatre(folder, {MORNING: SHARDS}, "TCP", TRACKER_TIMEOUT_MS) as theatre:
        return _Play(theatre, folder, say).play()


class _Play:
    """Owns the two starts of the job."""

    def __init__(self, theatre: Theatre, folder: Path, say: Callable[[str], None]) -> None:
        self._theatre = theatre
        self._folder = folder
        self._say = say
        self._producer = Producer(theatre.url, MORNING, SHARDS)
        self._recording = theatre.recording
        self._now_ms = round(time.time() * 1000)

    def play(self) -> Morning:
        """Three days behind, first without a limit, then with one."""
        self._write_the_night()
        asyncio.run(self._store_the_state())
        self._start("the job is started again", PACE)
        self._watch(HELD_SECONDS)
        self._watch_until(self._others_are_held)
        held = dict(self._recording.shards)
        subtasks = [told["metrics"]["subtask"] for told in self._recording.latest.values()]
        lag_ms = max(each["alignmentLagMs"] or 0 for each in subtasks)
        holder = next((each["globalHolder"] for each in subtasks if each["globalHolder"] is not None), None)
        self._theatre.stop_subtasks()
        self._recording.start_again()
        began = self._start("and once more, with flink.watermark.alignment.max.lag", WITH_MAX_LAG)
        freed = self._watch_until(self._others_are_written)
        self._say_when("the other shards have written what they had", freed)
        was_left_out = self._recording.shards[_key(BEHIND)]["leftOut"]
        self._watch_until(lambda: self._recording.rows == dict(self._producer.sent))
        self._watch(1.0)
        seconds = None if freed is None else freed - began
        sent = dict(self._producer.sent)
        return Morning(self._recording, held, lag_ms, holder, seconds, was_left_out, sent, _key(BEHIND))

    def _write_the_night(self) -> None:
        """Three days in the shard that is behind, an hour in the others, and from now on ten records a second."""
        first, step = self._now_ms - DAYS * DAY_MS, DAYS * DAY_MS // BACKLOG
        self._producer.plan((0.0, BEHIND, first + number * step) for number in range(BACKLOG))
        others = [number for number in range(SHARDS) if number != BEHIND]
        for shard in others:
            self._producer.plan((0.0, shard, self._now_ms - minute * MINUTE_MS) for minute in range(60, 0, -1))
        self._producer.send_due(0.0)

    async def _store_the_state(self) -> None:
        """What the job had stored: nothing of the one shard for three days, everything of the others until an hour ago."""
        behind_ms, others_ms = self._now_ms - DAYS * DAY_MS, self._now_ms - HOUR_MS
        states = {
            _key(shard): ShardState(
                StartingPosition.trim_horizon(), watermark=behind_ms if shard == BEHIND else others_ms
            )
            for shard in range(SHARDS)
        }
        store = FileStateStore(self._folder / "state")
        generation = await store.open_generation(0)
        await store.store(0, generation, to_json(states, None, generation, 0, SUBTASKS))

    def _start(self, words: str, properties: Mapping[str, Any]) -> float:
        self._theatre.start_subtasks(MORNING, SUBTASKS, dict(properties))
        now = time.time()
        if not self._recording.acts:
            self._recording.begin(now)
            live = [number for number in range(SHARDS) if number != BEHIND]
            for shard in live:
                self._producer.plan(steady(shard, 0.0, 20.0, self._now_ms, speed=1))
        self._recording.act(now, words)
        self._say(f"{now - self._recording.began:5.1f} s  {words}")
        return now

    def _others_are_held(self) -> bool:
        others = {key: one for key, one in self._recording.shards.items() if key != _key(BEHIND)}
        alarmed = {alarm["subject"] for _, _, alarm in self._recording.alarms}
        return others.keys() <= alarmed and all(one["heldMs"] >= HELD_LEAST_MS for one in others.values())

    def _others_are_written(self) -> bool:
        rows = self._recording.rows
        return all(rows.get(key, 0) >= count - 10 for key, count in self._producer.sent.items() if key != _key(BEHIND))

    def _say_when(self, words: str, at: float | None) -> None:
        if at is not None:
            self._say(f"{at - self._recording.began:5.1f} s  {words}")

    def _watch(self, seconds: float) -> None:
        until = time.time() + seconds
        while time.time() < until:
            self._tick()

    def _watch_until(self, is_over: Callable[[], bool]) -> float | None:
        until = time.time() + PATIENCE_SECONDS
        while time.time() < until:
            self._tick()
            if is_over():
                return time.time()
        return None

    def _tick(self) -> None:
        self._producer.send_due(time.time() - self._recording.began)
        self._theatre.hear()
        time.sleep(TICK_SECONDS)


def _key(shard: int) -> str:
    return f"{MORNING}/shardId-{shard:012d}"
