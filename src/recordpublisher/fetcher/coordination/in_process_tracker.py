"""InProcessTracker: the global watermark of subtasks that share one process (W6, W9a)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from recordpublisher.publishers.clock import Clock, SystemClock

from .watermark_group import Patience, WatermarkGroup
from .watermark_tracker import SubtaskReport, WatermarkTracker


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

    def missing_subtasks(self) -> list[int]:
        """Subtasks that have never joined."""
        return self._group.unheard

    def timed_out_subtasks(self) -> tuple[int, ...]:
        """Subtasks that were silent for the timeout."""
        return self._group.left_out

    def lowest_subtask(self) -> int | None:
        """The active subtask with the lowest watermark, one without any first."""
        return self._group.holder()

    def report(self, report: SubtaskReport) -> int | None:
        """Take a report and answer the value."""
        group, now = self._group, self._now()
        before = group.value
        for silent in group.look(now):
            self._last.pop(silent, None)
        if self._last.get(report.subtask) == report:
            group.still_there(report.subtask, now)
        else:
            self._last[report.subtask] = report
            group.state(report.subtask, report.status, report.watermark, now, report.max_shard_watermark)
        if group.value != before and len(self._listeners) > 1:
            self._tell()
        return group.value

    def current(self) -> int | None:
        """The global watermark."""
        return self._group.value

    def start_at(self, watermark: int | None) -> None:
        """Begin at the lowest restored watermark; never moves a value back."""
        self._group.start_at(watermark)

    def on_advance(self, callback: Callable[[], None]) -> None:
        """Wake the other subtasks at once."""
        self._listeners.append(callback)

    def announce_finished(self, shards: Mapping[str, int | None]) -> None:
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
        self._last: dict[int, SubtaskReport] = {}
        self._last_watermarks: dict[str, int | None] = {}
        self._listeners: list[Callable[[], None]] = []

    def _now(self) -> float:
        return self._clock.monotonic() * 1000

    def final_watermark(self, shard: str) -> int | None:
        """As it was announced."""
        return self._last_watermarks.get(shard)

    def max_shard_watermark(self) -> int | None:
        """The furthest of those that count."""
        return self._group.furthest

    def _tell(self) -> None:
        for heard in self._listeners:
            heard()
