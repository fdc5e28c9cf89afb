"""Recording: what the subtasks said of themselves during a play; the verdict and the picture are made from it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Moment:
    """One report of one subtask: `at` in seconds since the play began, watermarks in epoch ms of events."""

    at: float
    subtask: int
    value: int | None
    shards: Mapping[str, Mapping[str, Any]]

    @property
    def is_idle(self) -> bool:
        """Whether every open shard of the subtask is idle."""
        flags = [one["idle"] for one in self.shards.values() if one["stage"] in ("READING", "DRAINING")]
        return bool(flags) and all(flags)

    @property
    def watermark(self) -> int | None:
        """The furthest that was written of any of its shards."""
        return max((one["watermark"] for one in self.shards.values() if one["watermark"] is not None), default=None)

    @property
    def waiting(self) -> int | None:
        """The watermark of the lowest record that is held back."""
        heads = [one["headWatermark"] for one in self.shards.values() if one["held"]]
        return min((head for head in heads if head is not None), default=None)


@dataclass
class Recording:
    """Owns everything that was heard, in order; `acts` are what was done to whom, and when."""

    began: float = 0.0
    moments: list[Moment] = field(default_factory=list)
    acts: list[tuple[float, str, int | None]] = field(default_factory=list)
    alarms: list[tuple[float, int, Mapping[str, Any]]] = field(default_factory=list)
    latest: dict[int, Mapping[str, Any]] = field(default_factory=dict)
    earlier_rows: Counter[str] = field(default_factory=Counter)

    def begin(self, now: float) -> None:
        """The play begins; what was said while everybody got ready is not part of it."""
        self.began = now
        self.moments.clear()

    def hear(self, told: Mapping[str, Any]) -> None:
        """Take one document of a subtask."""
        at = told["at"] - self.began
        if "alarm" in told:
            self.alarms.append((at, told["subtask"], told["alarm"]))
            return
        self.latest[told["subtask"]] = told
        metrics = told["metrics"]
        self.moments.append(Moment(at, told["subtask"], metrics["subtask"]["globalWatermark"], metrics["shards"]))

    def act(self, now: float, what: str, subtask: int | None = None) -> None:
        """Remember something that was done."""
        self.acts.append((now - self.began, what, subtask))

    def start_again(self) -> None:
        """The subtasks were stopped and are started again: what they wrote so far stays written."""
        self.earlier_rows += Counter(self.rows_now)
        self.latest.clear()

    @property
    def rows_now(self) -> dict[str, int]:
        """Records written by the processes that run now, by shard."""
        return dict(sum((Counter(told["rows"]) for told in self.latest.values()), Counter()))

    @property
    def rows(self) -> dict[str, int]:
        """Records written, by shard."""
        return dict(self.earlier_rows + Counter(self.rows_now))

    @property
    def repeated(self) -> int:
        """Records written twice by one process."""
        return sum(told["repeated"] for told in self.latest.values())

    @property
    def shards(self) -> dict[str, Mapping[str, Any]]:
        """The last metrics of every shard."""
        return {key: one for told in self.latest.values() for key, one in told["metrics"]["shards"].items()}

    def owner_of(self, key: str) -> int:
        """The subtask that has a shard."""
        return next(number for number, told in self.latest.items() if key in told["metrics"]["shards"])

    def shards_of(self, subtask: int) -> list[str]:
        """The shards that a subtask has, by id."""
        return sorted(self.latest[subtask]["metrics"]["shards"])

    def steps_back(self) -> int:
        """By how much the global watermark fell at most, as any one subtask saw it, ms of event time."""
        furthest: dict[int, int] = {}
        most = 0
        for moment in self.moments:
            if moment.value is not None:
                most = max(most, furthest.get(moment.subtask, moment.value) - moment.value)
                furthest[moment.subtask] = max(furthest.get(moment.subtask, moment.value), moment.value)
        return most
