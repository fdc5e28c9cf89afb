"""The global watermark: the tracker port and the in-process tracker (W6, W9a, W10)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum


class SubtaskStatus(Enum):
    """How a subtask counts in the global minimum."""

    ACTIVE = "counts with its watermark; without one it holds the value where it is"
    IDLE = "does not count; it still learns the value (FLINK-29099)"
    LEFT = "has ended or moved away; does not count"


@dataclass(frozen=True, slots=True)
class Report:
    """What a subtask says: status and, when ACTIVE, its lowest watermark (epoch ms; None: no record yet).

    `furthest`: where its furthest active shard stands (epoch ms), against which those far behind are measured (W12).
    """

    subtask: int
    status: SubtaskStatus
    watermark: int | None = None
    furthest: int | None = None


class WatermarkTracker(ABC):
    """Carries the global watermark among subtasks. Built as `Tracker(properties)`.

    `report` never blocks and never raises for trouble on the way (W10): it states the subtask's watermark and returns the last global value
    known. The value never falls within a generation (W6).
    """

    async def open(self, subtask: int, parallelism: int) -> None:  # noqa: B027 - optional on purpose
        """Join as `subtask` of `parallelism`."""

    @abstractmethod
    def report(self, report: Report) -> int | None:
        """State a subtask's watermark; returns the global watermark (epoch ms), None before any is known."""

    @abstractmethod
    def current(self) -> int | None:
        """The last known global watermark (epoch ms)."""

    @property
    def is_answering(self) -> bool:
        """False while the tracker cannot be reached: only then may a subtask go by its own minimum (W10). Default: True."""
        return True

    @property
    def answer_age_ms(self) -> int:
        """How long ago the tracker last answered, ms (A1). Default: 0, it is always at hand."""
        return 0

    def start_at(self, watermark: int | None) -> None:  # noqa: B027 - optional on purpose
        """A new generation begins at the lowest watermark in the restored state (W6)."""

    def on_advance(self, heard: Callable[[], None]) -> None:  # noqa: B027 - optional on purpose
        """Call `heard` when the global watermark rises through somebody else (W9a). Default: only the sync interval tells."""

    def finished(self, shards: Mapping[str, int | None]) -> None:  # noqa: B027 - optional on purpose
        """Announce shards (by `Shard.key`) whose end is confirmed, with their last watermarks, for children elsewhere (S2, W5)."""

    def is_finished(self, shard: str) -> bool:
        """Whether some subtask announced the shard as finished."""
        return False

    def last_watermark(self, shard: str) -> int | None:
        """The last watermark (epoch ms) of a finished shard: its children begin there (W5). Default: the global one."""
        return self.current()

    def taken_over(self, shards: Iterable[str]) -> None:  # noqa: B027 - optional on purpose
        """Announce shards that this subtask reads from now on; called after a report that counts them (W5)."""

    def is_taken_over(self, shard: str) -> bool:
        """Whether some subtask announced that it reads the shard: until then the owner of its parent stands for it (W5)."""
        return False

    def furthest(self) -> int | None:
        """The furthest place that an active subtask has reported (epoch ms, W12). Default: only the subtask's own is known."""
        return None

    def missing(self) -> list[int]:
        """Subtasks that were expected and never joined: an error at the start-up timeout (W6). Default: none are known of."""
        return []

    def holder(self) -> int | None:
        """The subtask that holds the global minimum, where the tracker knows it (W10)."""
        return None

    async def close(self) -> None:  # noqa: B027 - optional on purpose
        """Leave."""


class InProcessTracker(WatermarkTracker):
    """The global watermark of subtasks that share one process: current at every decision (W9a).

    Owns the last report of each subtask and the value, which never falls.
    """

    def __init__(self, properties: object = None, parallelism: int = 1, start_at: int | None = None) -> None:
        self._expected = parallelism
        self._joined: set[int] = set()
        self._begin(start_at)

    async def open(self, subtask: int, parallelism: int) -> None:
        """Join; the parallelism is known, so that an expected subtask that has not reported yet holds the value (W6).

        When everybody has left, one who comes again or in another number opens a new generation: nothing is known of it.
        """
        has_everybody_left = all(self._has_left(each) for each in self._joined)
        if has_everybody_left and (subtask in self._joined or parallelism != self._expected):
            self._begin(None)
            self._expected = parallelism
        self._joined.add(subtask)

    def missing(self) -> list[int]:
        """Subtasks that have never joined."""
        return sorted(set(range(self._expected)) - self._joined)

    def holder(self) -> int | None:
        """The active subtask with the lowest watermark, one without any first."""
        active = [report for report in self._reports.values() if report.status is SubtaskStatus.ACTIVE]
        lowest = min(active, key=lambda report: (report.watermark is not None, report.watermark or 0), default=None)
        return None if lowest is None else lowest.subtask

    def _begin(self, value: int | None) -> None:
        self._joined.clear()
        self._reports: dict[int, Report] = {}
        self._value = value
        self._finished: dict[str, int | None] = {}
        self._taken_over: set[str] = set()
        self._listeners: list[Callable[[], None]] = []

    def _has_left(self, subtask: int) -> bool:
        report = self._reports.get(subtask)
        return report is not None and report.status is SubtaskStatus.LEFT

    def report(self, report: Report) -> int | None:
        """Take a report and answer the value."""
        if self._reports.get(report.subtask) != report:
            self._reports[report.subtask] = report
            before, self._value = self._value, _advanced(self._value, list(self._reports.values()), self._expected)
            if self._value != before and len(self._listeners) > 1:
                self._tell()
        return self._value

    def current(self) -> int | None:
        """The global watermark."""
        return self._value

    def start_at(self, watermark: int | None) -> None:
        """Begin at the lowest restored watermark; never moves a value back."""
        if watermark is not None and (self._value is None or watermark > self._value) and not self._reports:
            self._value = watermark

    def on_advance(self, heard: Callable[[], None]) -> None:
        """Wake the other subtasks at once."""
        self._listeners.append(heard)

    def finished(self, shards: Mapping[str, int | None]) -> None:
        """Remember finished shards and wake those who wait for them."""
        fresh = {key: watermark for key, watermark in shards.items() if key not in self._finished}
        if fresh:
            self._finished |= fresh
            self._tell()

    def is_finished(self, shard: str) -> bool:
        """Whether it was announced."""
        return shard in self._finished

    def last_watermark(self, shard: str) -> int | None:
        """As it was announced."""
        return self._finished.get(shard)

    def taken_over(self, shards: Iterable[str]) -> None:
        """Remember shards that are read."""
        self._taken_over.update(shards)

    def is_taken_over(self, shard: str) -> bool:
        """Whether it was announced."""
        return shard in self._taken_over

    def furthest(self) -> int | None:
        """The furthest of the last reports."""
        active = [report for report in self._reports.values() if report.status is SubtaskStatus.ACTIVE]
        return max((report.furthest for report in active if report.furthest is not None), default=None)

    def _tell(self) -> None:
        for heard in self._listeners:
            heard()


def _advanced(value: int | None, reports: list[Report], expected: int) -> int | None:
    """The new global value: the lowest active watermark, never below the old value; unchanged while somebody is unknown."""
    active = [report.watermark for report in reports if report.status is SubtaskStatus.ACTIVE]
    known = [watermark for watermark in active if watermark is not None]
    if len(reports) < expected or len(known) < len(active) or not known:
        return value
    lowest = min(known)
    return lowest if value is None else max(value, lowest)
