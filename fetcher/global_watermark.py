"""The global watermark: the tracker port and the in-process tracker (W6, W9a, W10)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from ..publishers.clock import Clock, SystemClock
from .subtask_report import Report, SubtaskStatus
from .watermark_group import Patience, WatermarkGroup

__all__ = ["InProcessTracker", "Report", "SubtaskStatus", "WatermarkTracker"]


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

    def start_at(self, watermark: int | None) -> None:  # noqa: B027 - optional on purpose
        """A new generation begins at the lowest watermark in the restored state (W6)."""

    def on_advance(self, heard: Callable[[], None]) -> None:  # noqa: B027 - optional on purpose
        """Call `heard` when the global watermark rises through somebody else (W9a). Default: only the sync interval tells."""

    def waiting_for(self, value: int) -> None:  # noqa: B027 - optional on purpose
        """The subtask is held until the global watermark reaches `value`; what `on_advance` was given is called then (W9a).

        Default: nothing, for trackers that tell of every rise.
        """

    def finished(self, shards: Iterable[str]) -> None:  # noqa: B027 - optional on purpose
        """Announce shards (by `Shard.key`) whose end is confirmed, for children owned by other subtasks (S2)."""

    def is_finished(self, shard: str) -> bool:
        """Whether some subtask announced the shard as finished."""
        return False

    def missing(self) -> list[int]:
        """Subtasks that were expected and cannot join any more: an error at the start-up timeout (W6). Default: none are known of."""
        return []

    def left_out(self) -> tuple[int, ...]:
        """Subtasks that do not count since nobody heard of them for the timeout (W6). Default: none are known of."""
        return ()

    def holder(self) -> int | None:
        """The subtask that holds the global minimum, where the tracker knows it (W10)."""
        return None

    async def close(self) -> None:  # noqa: B027 - optional on purpose
        """Leave."""


class InProcessTracker(WatermarkTracker):
    """The global watermark of subtasks that share one process: current at every decision (W9a).

    Owns the group of the running generation and who wants to hear of a rise. A subtask that never joins is waited for: that it cannot
    join is an error of its own at the start-up timeout (`missing`).
    """

    def __init__(
        self,
        properties: object = None,
        parallelism: int = 1,
        start_at: int | None = None,
        clock: Clock | None = None,
        timeout_ms: int = 30_000,
    ) -> None:
        self._clock = clock or SystemClock()
        self._patience = Patience(timeout_ms, startup_ms=None)
        self._begin(parallelism)
        self.start_at(start_at)

    async def open(self, subtask: int, parallelism: int) -> None:
        """Join; the parallelism is known, so that an expected subtask that has not reported yet holds the value (W6).

        When nobody is there any more, one who comes again or in another number opens a new generation: nothing is known of it.
        """
        group = self._group
        group.look(self._now())
        if group.is_deserted() and (group.has_joined(subtask) or parallelism != group.parallelism):
            self._begin(parallelism)
        self._last.pop(subtask, None)
        self._group.join(subtask, self._now())

    def missing(self) -> list[int]:
        """Subtasks that have never joined."""
        return self._group.unheard

    def left_out(self) -> tuple[int, ...]:
        """Subtasks that were silent for the timeout."""
        return self._group.left_out

    def holder(self) -> int | None:
        """The active subtask with the lowest watermark, one without any first."""
        return self._group.holder()

    def report(self, report: Report) -> int | None:
        """Take a report and answer the value."""
        group, now = self._group, self._now()
        before = group.value
        for silent in group.look(now):
            self._last.pop(silent, None)
        if self._last.get(report.subtask) == report:
            group.still_there(report.subtask, now)
        else:
            self._last[report.subtask] = report
            group.state(report.subtask, report.status, report.watermark, now)
        if group.value != before and len(self._listeners) > 1:
            self._tell()
        return group.value

    def current(self) -> int | None:
        """The global watermark."""
        return self._group.value

    def start_at(self, watermark: int | None) -> None:
        """Begin at the lowest restored watermark; never moves a value back."""
        self._group.start_at(watermark)

    def on_advance(self, heard: Callable[[], None]) -> None:
        """Wake the other subtasks at once."""
        self._listeners.append(heard)

    def finished(self, shards: Iterable[str]) -> None:
        """Remember finished shards and wake those who wait for them."""
        fresh = set(shards) - self._group.finished
        if fresh:
            self._group.finish(fresh)
            self._tell()

    def is_finished(self, shard: str) -> bool:
        """Whether it was announced."""
        return shard in self._group.finished

    def _begin(self, parallelism: int) -> None:
        self._group = WatermarkGroup(parallelism, self._patience, self._now())
        self._last: dict[int, Report] = {}
        self._listeners: list[Callable[[], None]] = []

    def _now(self) -> float:
        return self._clock.monotonic() * 1000

    def _tell(self) -> None:
        for heard in self._listeners:
            heard()
