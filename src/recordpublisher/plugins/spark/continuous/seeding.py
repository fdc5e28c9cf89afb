"""Where the first generation of a spool begins: every listed shard at the job's start, LATEST pinned once for all lanes (P3)."""

from __future__ import annotations

from recordpublisher.fetcher.checkpoints.snapshot import snapshot_to_json
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.sink import State
from recordpublisher.plugins.spark.options import SparkOptions
from recordpublisher.plugins.spark.service.planning_service import PlanningService
from recordpublisher.publishers.positions import PositionType, StartingPosition

from .history import NOBODY


def starting_state(options: SparkOptions, service: PlanningService) -> State:
    """A snapshot of a job that has read nothing. Raises: StreamNotFoundError, KinesisError."""
    start, pinned_ms = service.starting_position(), None
    if start.type is PositionType.LATEST:
        pinned_ms = service.server_time_ms(options.streams[0])
        start = StartingPosition.at_timestamp(pinned_ms)
    shards = {shard.key: ShardState(start) for stream in options.streams for shard in service.list_shards(stream)}
    return snapshot_to_json(shards, pinned_ms, 1, NOBODY, 1)
