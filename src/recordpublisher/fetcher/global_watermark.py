"""The global watermark: the tracker port and the in-process tracker (W6, W9a, W10)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping

from recordpublisher.publishers.clock import Clock, SystemClock

from .subtask_report import Report, SubtaskStatus
from .watermark_group import Patience, WatermarkGroup

__all__ = ["InProcessTracker", "Report", "SubtaskStatus", "WatermarkTracker"]

TAKEN_OVER = "taken over: "
"""Begins what is announced of a shard that is read from now on; a stream's name has no blank."""


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
    def answer_age_ms(self) -> int | None:
        """How long ago the tracker last answered, ms (A1); None: never. Default: 0, it is always at hand."""
        return 0

    def start_at(self, watermark: int | None) -> None:  # noqa: B027 - optional on purpose
        """A new generation begins at the lowest watermark in the restored state (W6)."""

    def on_advance(self, heard: Callable[[], None]) -> None:  # noqa: B027 - optional on purpose
        """Call `heard` when the global watermark rises through somebody else (W9a). Default: only the sync interval tells."""

    def waiting_for(self, value: int) -> None:  # noqa: B027 - optional on purpose
        """The subtask is held until the global watermark reaches `value`; what `on_advance` was given is called then (W9a).

        Default: nothing, for trackers that tell of every rise.
        """

    def finished(self, shards: Mapping[str, int | None]) -> None:  # noqa: B027 - optional on purpose
        """Announce shards (by `Shard.key`) whose end is confirmed, with their last watermarks, for children elsewhere (S2, W5)."""

    def is_finished(self, shard: str) -> bool:
        """Whether some subtask announced the shard as finished."""
        return False

    def last_watermark(self, shard: str) -> int | None:
        """The last watermark (epoch ms) of a finished shard: its children begin there (W5). Default: the global one."""
        return self.current()

    def taken_over(self, shards: Iterable[str]) -> None:
        """Announce shards that this subtask reads from now on; called after a report that counts them (W5). Default: as `finished`."""
        self.finished({TAKEN_OVER + shard: None for shard in shards})

    def is_taken_over(self, shard: str) -> bool:
        """Whether some subtask announced that it reads the shard: until then the owner of its parent stands for it (W5)."""
        return self.is_finished(TAKEN_OVER + shard)

    def furthest(self) -> int | None:
        """The furthest place that an active subtask has reported (epoch ms, W12). Default: only the subtask's own is known."""
        return None

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
            group.state(report.subtask, report.status, report.watermark, now, report.furthest)
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

    def finished(self, shards: Mapping[str, int | None]) -> None:
        """Remember finished shards and wake those who wait for them."""
        fresh = {key: watermark for key, watermark in shards.items() if key not in self._group.finished}
        if fresh:
            self._group.finish(fresh)
            self._last_watermarks |= fresh
            self._tell()

    def is_finished(self, shard: str) -> bool:
        """Whether it was announced."""
        return shard in self._group.finished

    def _begin(self, parallelism: int) -> None:
        self._group = WatermarkGroup(parallelism, self._patience, self._now())
        self._last: dict[int, Report] = {}
        self._last_watermarks: dict[str, int | None] = {}
        self._listeners: list[Callable[[], None]] = []

    def _now(self) -> float:
        return self._clock.monotonic() * 1000

    def last_watermark(self, shard: str) -> int | None:
        """As it was announced."""
        return self._last_watermarks.get(shard)

    def furthest(self) -> int | None:
        """The furthest of those that count."""
        return self._group.furthest

    def _tell(self) -> None:
        for heard in self._listeners:
            heard()
