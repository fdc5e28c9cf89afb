"""The first half: a subtask is stopped, wakes up, and its shard speaks."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from .checking import lag_check
from .checks import Evidence
from .processes import Theatre
from .producer import Producer
from .scenario import HOUR_MS, PROPERTIES, SHARDS, STOPPED, STREAM, SUBTASKS, TRACKER_TIMEOUT_MS, Script
from .subtask import FLINK

TICK_SECONDS = 0.1
PATIENCE_SECONDS = 60.0
"""How long after the last event everything may take to be written."""
WATCHED_SECONDS = 7.0
"""How long after the last event the shard is watched to stay unread, by the old rule."""
LEAST_SECONDS = 3.0
"""So long the end is watched in any case."""


def replay(rule: str, folder: Path, say: Callable[[str], None], script: Script | None = None) -> Evidence:
    """Play the first half by a rule (TCP: ours; FLINK: the model of Flink's old one). Raises: OutageFailedError."""
    script = script or Script()
    folder.mkdir(parents=True)
    with Theatre(folder, {STREAM: SHARDS}, rule, TRACKER_TIMEOUT_MS) as theatre:
        producer = Producer(theatre.url, STREAM, SHARDS)
        theatre.start_subtasks(STREAM, SUBTASKS, PROPERTIES)
        play = _Play(theatre, producer, script, say)
        play.until_sent()
        if rule == FLINK:
            play.for_seconds(WATCHED_SECONDS)
        else:
            play.until_written()
        code, words = lag_check(theatre.access, STREAM, folder / "state", PROPERTIES)
        say(f"recordpublisher lag --check answers {code}{': ' + words if words else ''}")
        theatre.hear()
        return Evidence(theatre.recording, dict(producer.sent), play.late, script, code)


class _Play:
    """Owns what comes next."""

    def __init__(self, theatre: Theatre, producer: Producer, script: Script, say: Callable[[str], None]) -> None:
        self._theatre = theatre
        self._producer = producer
        self._say = say
        recording = theatre.recording
        recording.begin(time.time())
        silent, self.late = recording.shards_of(STOPPED)
        own = {_number(silent), _number(self.late)}
        others = [number for number in range(SHARDS) if number not in own]
        base_ms = round(recording.began * 1000) - 2 * HOUR_MS
        producer.plan(script.events(others, _number(silent), _number(self.late), base_ms))
        stopped = theatre.subtasks[STOPPED]
        self._cues: list[tuple[float, str, Callable[[], None]]] = [
            (
                script.silent_from,
                f"shard {_number(silent)} of subtask {STOPPED} falls silent, its queue is empty",
                _nothing,
            ),
            (script.stopped_at, f"subtask {STOPPED} is stopped (SIGSTOP)", stopped.pause),
            (script.continued_at, f"subtask {STOPPED} runs again (SIGCONT)", stopped.resume),
            (script.spoken_from, f"shard {_number(self.late)} of subtask {STOPPED} gets its first records", _nothing),
        ]

    def until_sent(self) -> None:
        """Play until the producer has finished."""
        while not self._producer.has_finished:
            self._tick()

    def until_written(self) -> None:
        """Watch until everything was written, or for as long as the patience lasts."""
        self.for_seconds(LEAST_SECONDS)
        until = time.time() + PATIENCE_SECONDS
        while time.time() < until and self._theatre.recording.rows != dict(self._producer.sent):
            self._tick()

    def for_seconds(self, seconds: float) -> None:
        """Watch."""
        until = time.time() + seconds
        while time.time() < until:
            self._tick()

    def _tick(self) -> None:
        elapsed = time.time() - self._theatre.recording.began
        while self._cues and self._cues[0][0] <= elapsed:
            _, words, act = self._cues.pop(0)
            act()
            self._theatre.recording.act(time.time(), words, STOPPED)
            self._say(f"{elapsed:5.1f} s  {words}")
        self._producer.send_due(elapsed)
        self._theatre.hear()
        time.sleep(TICK_SECONDS)


def _nothing() -> None:
    """The script itself makes it happen."""


def _number(key: str) -> int:
    """`orders/shardId-000000000003` is the fourth shard of a stream that was never split."""
    return int(key.rsplit("-", 1)[1])
