"""The port through which subtasks share the global watermark (W6, W9a, W10)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from recordpublisher.publishers.user_code import AsyncPort

__all__ = ["SubtaskReport", "SubtaskStatus", "WatermarkTracker"]

STARTED_PREFIX = "started: "
"""Marks the announcement of a started shard among those of finished shards. The name of a stream contains no blank."""


class WatermarkTracker(AsyncPort, ABC):
    """Tells the global watermark, which never falls (W6). `report` never blocks or raises."""

    async def open(self, subtask: int, parallelism: int) -> None:
        """Join the group as subtask `subtask` of `parallelism`."""

    @abstractmethod
    def report(self, report: SubtaskReport) -> int | None:
        """Report a subtask's watermark, and return the global watermark (epoch ms), or None before one is known."""

    @abstractmethod
    def current(self) -> int | None:
        """Return the last known global watermark (epoch ms), or None before one is known."""

    @property
    def worker(self) -> str | None:
        """Name of this process in its group of workers. Default: None, without a group."""
        return None

    def after_suspension(self) -> None:
        """Called when this process was suspended: the tracker counts as reachable until the next request times out (W10).

        Default: do nothing.
        """

    def start_at(self, watermark: int | None) -> None:
        """Begin a new generation at the lowest watermark in the restored state (W6)."""

    def on_advance(self, callback: Callable[[], None]) -> None:
        """Call `callback` when another subtask makes the global watermark rise (W9a).

        Default: never call it, so that only the sync interval notices a rise.
        """

    def announce_finished(self, shards: Mapping[str, int | None]) -> None:
        """Announce shards (by `Shard.key`) whose end is checkpointed, with their final watermarks (S2, W5)."""

    def is_finished(self, shard: str) -> bool:
        """Return whether any subtask announced the shard as finished."""
        return False

    def forget_stream(self, stream: str, own: Collection[str]) -> None:
        """Called when the stream was deleted: shards of a later stream of the same name have the same keys, and have not finished (S2).

        `own`: the keys of this subtask's shards, whose announcements no longer count. Default: do nothing.
        """

    def final_watermark(self, shard: str) -> int | None:
        """Return the final watermark (epoch ms) of a finished shard: its children begin there (W5). Default: the global watermark."""
        return self.current()

    def announce_started(self, shards: Iterable[str]) -> None:
        """Announce shards that this subtask reads from now on, after a report that includes them (W5).

        Default: announce them with `announce_finished`.
        """
        self.announce_finished({STARTED_PREFIX + shard: None for shard in shards})

    def is_started(self, shard: str) -> bool:
        """Return whether any subtask announced that it reads the shard; until then the shard's parent holds the watermark (W5)."""
        return self.is_finished(STARTED_PREFIX + shard)

    def max_shard_watermark(self) -> int | None:
        """Return the highest watermark of any active shard of the job (epoch ms, W12).

        Default: None, if only the subtask's own shards are known.
        """
        return None

    def lowest_subtask(self) -> int | None:
        """Return the subtask with the lowest watermark, if the tracker knows it (W10), or None."""
        return None

    async def close(self) -> None:
        """Leave the group."""


def announced_keys(shards: Iterable[str]) -> list[str]:
    """Return the keys under which shards may be announced: as finished, and as started."""
    return [prefix + shard for shard in shards for prefix in ("", STARTED_PREFIX)]


class SubtaskStatus(Enum):
    """How a subtask counts in the global minimum."""

    ACTIVE = "counts with its watermark; without one the global watermark cannot rise"
    IDLE = "does not count; it still receives the global watermark (FLINK-29099)"
    LEFT = "has ended or moved away; does not count"


@dataclass(frozen=True, slots=True)
class SubtaskReport:
    """A subtask's status and, when ACTIVE, its lowest watermark (epoch ms). The watermark is None before the first record.

    `max_shard_watermark`: the highest watermark of its active shards (epoch ms). Stragglers are measured against it (W12).
    """

    subtask: int
    status: SubtaskStatus
    watermark: int | None = None
    max_shard_watermark: int | None = None
