"""WatermarkTracker: the port through which subtasks share the global watermark (W6, W9a, W10)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

__all__ = ["Report", "SubtaskStatus", "WatermarkTracker"]

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
