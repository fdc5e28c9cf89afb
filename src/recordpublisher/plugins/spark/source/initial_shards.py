"""Where a new query starts in each listed shard, and whether the records at which it starts are still there."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from recordpublisher.fetcher.checkpoints.initial_states import initial_states
from recordpublisher.fetcher.checkpoints.snapshot import RestoredState
from recordpublisher.fetcher.checkpoints.starts import Starts, given_position
from recordpublisher.fetcher.shards.retention_check import Gap
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.errors import ConfigurationError, DataLossError
from recordpublisher.publishers.shards import Shard

from ..options.spark_options import SparkOptions
from ..options.start_by_shard import START_OPTION
from ..service.planning_port import PlanningPort
from .retention import accepts_data_loss

LOG = logging.getLogger("recordpublisher.spark")
UNKNOWN_MS = 0
"""When the record of a given position arrived: not known, so the service is asked for its oldest record."""


def initial_shards(options: SparkOptions, service: PlanningPort, starts: Starts) -> list[tuple[Shard, ShardState]]:
    """The shards that a new query reads, with their states. Ancestors of shards that are named one by one count as read, and are left out:
    what they have lies before the given positions.

    Raises: ConfigurationError when a named shard is not listed, DataLossError when a record at which one starts is past retention,
    StreamNotFoundError, KinesisError.
    """
    listed = [shard for stream in options.streams for shard in service.list_shards(stream)]
    _check_listed(listed, starts.by_shard)
    initial = initial_states(listed, RestoredState(), starts)
    states = [
        (shard, replace(initial[shard.key], parents=shard.parents))
        for shard in listed
        if shard.shard_id in starts.by_shard or not initial[shard.key].ended
    ]
    _check_still_there(states, service, accepts_data_loss(options.properties))
    return states


def _check_still_there(states: Sequence[tuple[Shard, ShardState]], service: PlanningPort, accepts_loss: bool) -> None:
    """Raises: DataLossError when the record of a given position is past retention, unless the job accepts that (S5)."""
    for shard, state in states:
        asked = given_position(state)
        if state.ended or asked is None:
            continue
        if service.gap_after(shard, replace(state, position=asked), UNKNOWN_MS) is not Gap.LOST:
            continue
        lost = f"{shard.key} does not have the record {asked} any more, at which {START_OPTION} begins: it is past the stream's retention"
        if not accepts_loss:
            raise DataLossError(f"{lost}. With flink.state.dataloss=CONTINUE the query starts at the oldest record")
        LOG.warning("%s; going on at the oldest record because flink.state.dataloss=CONTINUE", lost)


def _check_listed(listed: Sequence[Shard], starts: Mapping[str, ShardState]) -> None:
    """A shard that was read to its end may have expired."""
    missing = {shard for shard, state in starts.items() if not state.ended} - {shard.shard_id for shard in listed}
    if missing:
        valid = ", ".join(shard.shard_id for shard in listed)
        reason = "the stream has no such shard, or no longer"
        raise ConfigurationError(START_OPTION, ", ".join(sorted(missing)), valid, reason=reason)
