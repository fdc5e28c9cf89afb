"""Tracks the global watermark of subtasks that share one process (W6, W9a)."""

from collections.abc import Callable, Collection, Mapping

from recordpublisher.publishers.clock import Clock, SystemClock

from .subtask_liveness import GroupTimeouts
from .watermark_group import WatermarkGroup
from .watermark_tracker import SubtaskReport, WatermarkTracker, announced_keys


class InProcessTracker(WatermarkTracker):
    """The global watermark of subtasks that share one process. It is up to date at every decision (W9a).

    Owns the group of the running generation, and the callbacks for a rise. The tracker waits for a subtask that never joins;
    `missing_subtasks` names the subtask, and the fetchers fail at the start-up timeout.
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
        self._timeouts = GroupTimeouts(timeout_ms, startup_ms=None)
        self._open_generation(parallelism)
        self.start_at(start_at)

    async def open(self, subtask: int, parallelism: int) -> None:
        """Join the group. An expected subtask that has not reported keeps the global watermark from rising (W6).

        A subtask opens a new, empty generation if it has another parallelism, or if it joins again while no subtask is connected.
        """
        group = self._group
        self._expire()
        is_restart = group.liveness.is_empty() and group.liveness.has_joined(subtask)
        if is_restart or parallelism != group.parallelism:
            self._open_generation(parallelism)
        self._last_reports.pop(subtask, None)
        self._group.join(subtask, self._now())

    def report(self, report: SubtaskReport) -> int | None:
        """Register a subtask's report, and return the global watermark."""
        group, now = self._group, self._now()
        before = group.global_watermark
        self._expire()
        if self._last_reports.get(report.subtask) == report:
            group.liveness.renew(report.subtask, now)
        else:
            self._last_reports[report.subtask] = report
            group.report(report.subtask, report.status, report.watermark, now, report.max_shard_watermark)
        if group.global_watermark != before and len(self._callbacks) > 1:
            self._notify()
        return group.global_watermark

    def _expire(self) -> None:
        """Exclude silent subtasks. Their next report counts as new, even if it repeats the last one, so that they join again."""
        for silent in self._group.expire(self._now()):
            self._last_reports.pop(silent, None)

    def current(self) -> int | None:
        """Return the global watermark (epoch ms), or None before one is known."""
        return self._group.global_watermark

    def start_at(self, watermark: int | None) -> None:
        """Begin at the lowest restored watermark. This never moves the global watermark back."""
        self._group.start_at(watermark)

    def on_advance(self, callback: Callable[[], None]) -> None:
        """Call `callback` at every rise of the global watermark, and when shards are announced."""
        self._callbacks.append(callback)

    def announce_finished(self, shards: Mapping[str, int | None]) -> None:
        """Record finished shards, and call the `on_advance` callbacks, because children may wait for these shards."""
        new = {key: watermark for key, watermark in shards.items() if key not in self._group.finished_shards}
        if new:
            self._group.finished_shards.add(new)
            self._final_watermarks |= new
            self._notify()

    def is_finished(self, shard: str) -> bool:
        """Return whether the shard was announced."""
        return shard in self._group.finished_shards

    def forget_stream(self, stream: str, own: Collection[str]) -> None:
        """Forget the announcements of this subtask's shards, since a later stream of the same name has the same shard keys."""
        self._group.finished_shards.withdraw(announced_keys(own))
        for shard in announced_keys(own):
            self._final_watermarks.pop(shard, None)

    def final_watermark(self, shard: str) -> int | None:
        """Return the final watermark with which the shard was announced."""
        return self._final_watermarks.get(shard)

    def max_shard_watermark(self) -> int | None:
        """Return the highest watermark of any active shard."""
        return self._group.max_shard_watermark

    def missing_subtasks(self) -> list[int]:
        """Return the subtasks that have never joined."""
        return self._group.liveness.not_joined

    def timed_out_subtasks(self) -> tuple[int, ...]:
        """Return the subtasks that were silent for the timeout."""
        return self._group.liveness.timed_out

    def lowest_subtask(self) -> int | None:
        """Return the active subtask with the lowest watermark. A subtask without a watermark comes first."""
        return self._group.lowest_subtask

    def _open_generation(self, parallelism: int) -> None:
        self._group = WatermarkGroup(parallelism, self._timeouts, self._now())
        self._last_reports: dict[int, SubtaskReport] = {}
        self._final_watermarks: dict[str, int | None] = {}
        self._callbacks: list[Callable[[], None]] = []

    def _notify(self) -> None:
        for callback in self._callbacks:
            callback()

    def _now(self) -> float:
        return self._clock.monotonic() * 1000
