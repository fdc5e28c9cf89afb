"""SubtaskView: a subtask, looked at now, as its metrics show it (A1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .alignment import Alignment
from .emitter import Emitter
from .global_watermark import WatermarkTracker
from .intake import Intake
from .monitor import Monitor
from .shard_table import ShardEntry


@dataclass(frozen=True, slots=True)
class SubtaskView:
    """The parts of a fetcher that know something of it; `loop_lag_ms`: how late the last heartbeat came."""

    entries: Sequence[ShardEntry]
    tracker: WatermarkTracker
    alignment: Alignment
    emitter: Emitter
    intake: Intake
    monitor: Monitor
    loop_lag_ms: int
