"""GroupTracker: the global watermark of a group of workers, as its store has it (E8)."""

from ..coordination.watermark_tracker import SubtaskReport, WatermarkTracker
from ..pipeline.lease_gate import CurrentWorker
from ..watermark_functions import raised


class GroupTracker(WatermarkTracker):
    """Owns the highest value that this process knows. Workers state their watermarks with their heartbeats, not here.

    Parents are read before their children by the lease table (E7): for the fetcher, shards of other workers are finished.
    """

    def __init__(self, current: CurrentWorker) -> None:
        self._current = current
        self._highest: int | None = None

    def report(self, report: SubtaskReport) -> int | None:
        """The group's watermark."""
        return self.current()

    def current(self) -> int | None:
        """The highest value known; it never falls, also not when a new worker joins in this process (W6)."""
        self._highest = raised(self._highest, self._current.group_watermark)
        return self._highest

    def max_shard_watermark(self) -> int | None:
        """The highest watermark that a worker has stated with its last heartbeat."""
        return self._current.group_maximum

    @property
    def worker(self) -> str | None:
        """The worker that runs now, or ran last."""
        return self._current.name

    def after_suspension(self) -> None:
        """Others may have replaced the worker meanwhile."""
        self._current.on_suspension()

    def is_finished(self, shard: str) -> bool:
        """Always: a child gets a lease when its parents have ended."""
        return True

    def final_watermark(self, shard: str) -> int | None:
        """None: a child's lease begins with the watermark of its parents (W5)."""
        return None
