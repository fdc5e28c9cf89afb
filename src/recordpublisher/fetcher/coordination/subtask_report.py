"""What a subtask says of itself to whatever carries the global watermark (W6)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


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
