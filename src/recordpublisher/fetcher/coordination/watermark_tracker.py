"""WatermarkTracker: the port through which subtasks share the global watermark (W6, W9a, W10)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from recordpublisher.publishers.user_code import AsyncPort

__all__ = ["SubtaskReport", "SubtaskStatus", "WatermarkTracker"]

STARTED_PREFIX = "started: "
"""Marks the announcement of a started shard among those of finished shards; a stream's name contains no blank."""
WITHDRAWN_PREFIX = "withdrawn: "
"""Marks what a subtask takes back of its announcements."""


class WatermarkTracker(AsyncPort, ABC):
    """Shares the global watermark among subtasks. Built as `Tracker(properties)`.

    `report` never blocks or raises: when the tracker is unreachable it returns the last known global watermark (W10), which never falls
    within a generation (W6).
    """

    async def open(self, subtask: int, parallelism: int) -> None:
        """Join as `subtask` of `parallelism`."""

    @abstractmethod
    def report(self, report: SubtaskReport) -> int | None:
        """Report a subtask's watermark; returns the global watermark (epoch ms), None before any is known."""

    @abstractmethod
    def current(self) -> int | None:
        """The last known global watermark (epoch ms)."""

    @property
    def is_reachable(self) -> bool:
        """False while the tracker does not respond. Default: True."""
        return True

    @property
    def response_age_ms(self) -> int | None:
        """Milliseconds since the tracker's last response (A1). Default: 0, for a tracker in the same process.

        None: it never responded. Only then may a subtask use its own minimum (W10).
        """
        return 0

    @property
    def worker(self) -> str | None:
        """The name of this process in its group of workers (ELASTIC). Default: None, without a group."""
        return None

    def after_suspension(self) -> None:
        """This process was suspended: the tracker is reachable until the next request times out (W10). Default: nothing."""

    def start_at(self, watermark: int | None) -> None:
        """Begin a new generation at the lowest watermark in the restored state (W6)."""

    def on_advance(self, callback: Callable[[], None]) -> None:
        """Call `callback` when another subtask makes the global watermark rise (W9a). Default: never, only the sync interval notices."""

    def notify_at(self, watermark: int) -> None:
        """Request the `on_advance` callbacks when the global watermark reaches `watermark`: a held record waits for it (W9a).

        Default: nothing, for trackers that call them at every rise.
        """

    def announce_finished(self, shards: Mapping[str, int | None]) -> None:
        """Announce shards (by `Shard.key`) whose end is checkpointed, with their final watermarks (S2, W5)."""

    def is_finished(self, shard: str) -> bool:
        """Whether some subtask announced the shard as finished."""
        return False

    def forget_stream(self, stream: str, own: Collection[str]) -> None:
        """The stream was deleted: shards of one that is made under its name later have the same keys, and have not finished (S2).

        `own`: the keys of this subtask's shards, whose announcements count no more. Default: nothing.
        """

    def final_watermark(self, shard: str) -> int | None:
        """The final watermark (epoch ms) of a finished shard: its children begin there (W5). Default: the global one."""
        return self.current()

    def announce_started(self, shards: Iterable[str]) -> None:
        """Announce shards that this subtask reads from now on, after a report that includes them (W5). Default: via `announce_finished`."""
        self.announce_finished({STARTED_PREFIX + shard: None for shard in shards})

    def is_started(self, shard: str) -> bool:
        """Whether some subtask announced that it reads the shard: until then its parent holds the watermark (W5)."""
        return self.is_finished(STARTED_PREFIX + shard)

    def max_shard_watermark(self) -> int | None:
        """The highest watermark of any active shard of the job (epoch ms, W12). Default: None, only the subtask's own shards are known."""
        return None

    def missing_subtasks(self) -> list[int]:
        """Expected subtasks that can no longer join: an error at the start-up timeout (W6). Default: none."""
        return []

    def timed_out_subtasks(self) -> tuple[int, ...]:
        """Subtasks that were silent for the timeout and do not count (W6). Default: none."""
        return ()

    def lowest_subtask(self) -> int | None:
        """The subtask with the lowest watermark, if the tracker knows it (W10)."""
        return None

    async def close(self) -> None:
        """Leave."""


def announced_keys(shards: Iterable[str]) -> list[str]:
    """Return under which keys shards may be announced: as finished, and as started."""
    return [prefix + shard for shard in shards for prefix in ("", STARTED_PREFIX)]


class SubtaskStatus(Enum):
    """How a subtask counts in the global minimum."""

    ACTIVE = "counts with its watermark; without one the global watermark cannot rise"
    IDLE = "does not count; it still receives the global watermark (FLINK-29099)"
    LEFT = "has ended or moved away; does not count"


@dataclass(frozen=True, slots=True)
class SubtaskReport:
    """A subtask's status and, when ACTIVE, its lowest watermark (epoch ms; None: no record yet).

    `max_shard_watermark`: the highest watermark of its active shards (epoch ms). Stragglers are measured against it (W12).
    """

    subtask: int
    status: SubtaskStatus
    watermark: int | None = None
    max_shard_watermark: int | None = None
