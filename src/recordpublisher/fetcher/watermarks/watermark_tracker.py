"""The port that tells the global watermark (W6): of the shards of this process alone, or of a group of workers."""

from __future__ import annotations

from abc import ABC, abstractmethod

from ..active_minimum import ShardsStatus
from ..watermark_functions import raised


class WatermarkTracker(ABC):
    """Tells the global watermark, which never falls (W6). No call waits for a service."""

    @abstractmethod
    def report(self, status: ShardsStatus, watermark: int | None) -> int | None:
        """Report how the shards of this process count, and their lowest watermark (epoch ms), and return the global watermark.

        The watermark is None before the first record of one of them. The global watermark is None before one is known.
        """

    @abstractmethod
    def current(self) -> int | None:
        """Return the global watermark (epoch ms), or None before one is known."""

    @property
    def has_others(self) -> bool:
        """Whether shards of other processes count too."""
        return False

    @property
    def worker(self) -> str | None:
        """Name of this process in its group of workers; None without a group."""
        return None

    def after_suspension(self) -> None:  # noqa: B027 - optional on purpose
        """Called when this process was suspended."""

    def start_at(self, watermark: int | None) -> None:  # noqa: B027 - optional on purpose
        """Begin at the lowest watermark in the restored state (W6)."""

    def max_shard_watermark(self) -> int | None:
        """Return the highest watermark of any active shard of other processes (epoch ms, W12); None if there are none."""
        return None


class OwnWatermark(WatermarkTracker):
    """The global watermark of a process that reads every shard: the minimum of its own shards, current at every decision."""

    def __init__(self) -> None:
        self._highest: int | None = None

    def report(self, status: ShardsStatus, watermark: int | None) -> int | None:
        """Raise the global watermark to the lowest watermark of the shards that count."""
        if status is ShardsStatus.ACTIVE:
            self._highest = raised(self._highest, watermark)
        return self._highest

    def current(self) -> int | None:
        """Return the highest minimum so far."""
        return self._highest

    def start_at(self, watermark: int | None) -> None:
        """Begin at the lowest restored watermark. This never moves the global watermark back."""
        self._highest = raised(self._highest, watermark)
