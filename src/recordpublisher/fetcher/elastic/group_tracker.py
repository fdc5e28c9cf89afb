"""Provides the global watermark of a group of workers, which its store has (E8)."""

from collections.abc import Callable

from ..active_minimum import ShardsStatus
from ..pipeline.lease_gate import CurrentWorker
from ..watermark_functions import raised
from ..watermarks.watermark_tracker import WatermarkTracker


class GroupTracker(WatermarkTracker):
    """Owns the highest global watermark that this process knows. Workers report their watermarks with their heartbeats, not here.

    The lease table makes sure that parents are read before their children (E7), so the fetcher treats shards of other workers as finished.
    """

    def __init__(self, current: CurrentWorker) -> None:
        self._current = current
        self._highest: int | None = None

    def report(self, status: ShardsStatus, watermark: int | None) -> int | None:
        """Return the global watermark of the group."""
        return self.current()

    def current(self) -> int | None:
        """Return the highest known global watermark. It never falls, even when a new worker joins in this process (W6)."""
        self._highest = raised(self._highest, self._current.group_watermark)
        return self._highest

    def on_advance(self, callback: Callable[[], None]) -> None:
        """Call `callback` after each read of the group that changes the global watermark."""
        self._current.on_advance.append(callback)

    def max_shard_watermark(self) -> int | None:
        """Return the highest watermark that a worker has reported with its last heartbeat."""
        return self._current.group_maximum

    @property
    def worker(self) -> str | None:
        """Name of the worker that is running, or ran last."""
        return self._current.name

    def after_suspension(self) -> None:
        """Withdraw the permission to write until the next heartbeat, because other workers may have replaced this one."""
        self._current.on_suspension()

    @property
    def has_others(self) -> bool:
        """Whether shards of other processes count too: they do, because other workers have them."""
        return True
