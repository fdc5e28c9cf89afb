"""SubtaskView: a subtask, looked at now, as its metrics show it (A1)."""

from __future__ import annotations

from dataclasses import dataclass

from ..coordination.tracker import WatermarkTracker
from ..pipeline.emitter import Emitter
from ..pipeline.shard_queues import Intake
from ..pipeline.suspension import Pulse
from ..shards.shard_table import ShardEntry, ShardTable
from ..watermarks.alignment import Alignment
from .monitor import Monitor


@dataclass(frozen=True, slots=True)
class SubtaskView:
    """The parts of a fetcher that know something of it."""

    table: ShardTable
    tracker: WatermarkTracker
    alignment: Alignment
    emitter: Emitter
    intake: Intake
    monitor: Monitor
    pulse: Pulse

    @property
    def entries(self) -> list[ShardEntry]:
        """Every shard that the subtask has."""
        return list(self.table)
