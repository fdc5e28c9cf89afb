"""EventLog: the reports, alarms and actions of one replay. The checks and the picture are made from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class MetricsSample:
    """One report of one worker: `at` in seconds since the replay began, watermarks in epoch ms of event time."""

    at: float
    process: int
    global_watermark: int | None
    shards: Mapping[str, Mapping[str, Any]]

    @property
    def is_idle(self) -> bool:
        """Whether every open shard of the worker is idle."""
        flags = [one["idle"] for one in self.shards.values() if one["stage"] in ("READING", "DRAINING")]
        return bool(flags) and all(flags)

    @property
    def watermark(self) -> int | None:
        """The highest watermark that was written of any of its shards."""
        return max((one["watermark"] for one in self.shards.values() if one["watermark"] is not None), default=None)

    @property
    def held_watermark(self) -> int | None:
        """The watermark of the lowest record that is held back."""
        heads = [one["nextWatermark"] for one in self.shards.values() if one["held"]]
        return min((head for head in heads if head is not None), default=None)


@dataclass
class EventLog:
    """Owns what the workers reported, in order. `actions`: (seconds, what was done, to which worker)."""

    began: float = 0.0
    reports: list[MetricsSample] = field(default_factory=list)
    actions: list[tuple[float, str, int | None]] = field(default_factory=list)
    alarms: list[tuple[float, int, Mapping[str, Any]]] = field(default_factory=list)
    latest: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    earlier_rows: Counter[str] = field(default_factory=Counter)

    def begin(self, now: float) -> None:
        """Set the start of the replay; reports from before it are dropped."""
        self.began = now
        self.reports.clear()

    def add_message(self, message: Mapping[str, Any]) -> None:
        """Add one JSON message of a worker: a report or an alarm."""
        at = message["at"] - self.began
        if "alarm" in message:
            self.alarms.append((at, message["worker"], message["alarm"]))
            return
        self.latest[message["worker"]] = message
        metrics = message["metrics"]
        watermark = metrics["worker"]["globalWatermark"]
        self.reports.append(MetricsSample(at, message["worker"], watermark, metrics["shards"]))

    def add_action(self, now: float, what: str, worker: int | None = None) -> None:
        """Add something that the replay did."""
        self.actions.append((now - self.began, what, worker))

    def restart(self) -> None:
        """The workers are started again: keep the counts of what they wrote so far."""
        self.earlier_rows += Counter(self.rows_since_restart)
        self.latest.clear()

    @property
    def rows_since_restart(self) -> dict[str, int]:
        """Records written by the running processes, by shard."""
        return dict(sum((Counter(message["rows"]) for message in self.latest.values()), Counter()))

    @property
    def rows(self) -> dict[str, int]:
        """Records written, by shard."""
        return dict(self.earlier_rows + Counter(self.rows_since_restart))

    @property
    def repeated(self) -> int:
        """Records written twice by one process."""
        return sum(message["repeated"] for message in self.latest.values())

    @property
    def shards(self) -> dict[str, Mapping[str, Any]]:
        """The latest metrics of every shard."""
        return {key: one for message in self.latest.values() for key, one in message["metrics"]["shards"].items()}

    def shards_of(self, worker: int) -> list[str]:
        """The shards of a worker, by id."""
        return sorted(self.latest[worker]["metrics"]["shards"])

    def largest_watermark_regression(self) -> int:
        """By how much the global watermark fell at most, as any one worker saw it, ms of event time."""
        highest: dict[int, int] = {}
        largest = 0
        for report in self.reports:
            if report.global_watermark is not None:
                before = highest.get(report.process, report.global_watermark)
                largest = max(largest, before - report.global_watermark)
                highest[report.process] = max(before, report.global_watermark)
        return largest
