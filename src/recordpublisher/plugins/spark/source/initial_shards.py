"""Where a new query starts in each listed shard, and whether the records at which it starts are still there."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace

from recordpublisher.fetcher.shards.lineage import ancestor_keys
from recordpublisher.fetcher.shards.retention_check import Gap
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.errors import ConfigurationError, DataLossError
from recordpublisher.publishers.positions import PositionType, SequenceNumber, StartingPosition
from recordpublisher.publishers.shards import Shard

from ..options.spark_options import SparkOptions
from ..options.start_by_shard import START_OPTION, starts_by_shard
from ..service.planning_port import PlanningPort
from .retention import accepts_data_loss

LOG = logging.getLogger("recordpublisher.spark")
UNKNOWN_MS = 0
"""When the record of a given position arrived: not known, so the service is asked for its oldest record."""


def pinned(start: StartingPosition, stream: str, service: PlanningPort) -> StartingPosition:
    """As `StartingPosition.pinned`, for the planner, which does not run in an event loop."""
    if start.type is not PositionType.LATEST:
        return start
    return StartingPosition.at_timestamp(service.server_time_ms(stream))


def initial_shards(
    options: SparkOptions, service: PlanningPort, start: StartingPosition
) -> list[tuple[Shard, ShardState]]:
    """The shards that a new query reads, with their states. `start`, pinned, is that of shards that are not named one by one.

    The named shards begin where they are told to, and their descendants at the beginning. Ancestors of named shards count as read: what
    they have lies before the given positions.

    Raises: ConfigurationError when a named shard is not listed, DataLossError when a record at which one starts is past retention,
    StreamNotFoundError, KinesisError.
    """
    listed = [shard for stream in options.streams for shard in service.list_shards(stream)]
    starts = starts_by_shard(options.properties, options.streams)
    if starts is None:
        return [(shard, ShardState(start, parents=shard.parents)) for shard in listed]
    _check_listed(listed, starts)
    now = {
        shard: replace(state, start=pinned(state.start, options.streams[0], service)) for shard, state in starts.items()
    }
    states = _states(listed, start, now)
    _check_still_there(states, service, accepts_data_loss(options.properties))
    return states


def _states(
    listed: Sequence[Shard], start: StartingPosition, starts: Mapping[str, ShardState]
) -> list[tuple[Shard, ShardState]]:
    by_key = {shard.key: shard for shard in listed}
    named = {shard.key for shard in listed if shard.shard_id in starts}
    read_before = ancestor_keys((by_key[key] for key in named), by_key) - named
    states = []
    for shard in listed:
        if shard.key in named:
            states.append((shard, replace(_from_beginning(shard, starts[shard.shard_id]), parents=shard.parents)))
        elif shard.key not in read_before:
            follows = bool(named & ancestor_keys([shard], by_key))
            begin = StartingPosition.trim_horizon() if follows else start
            states.append((shard, ShardState(begin, parents=shard.parents)))
    return states


def _from_beginning(shard: Shard, state: ShardState) -> ShardState:
    """A start at the number that Kinesis lists for the shard's beginning, or behind it, is TRIM_HORIZON: nothing lies before."""
    asked = _given_position(state)
    if state.ended or asked is None or not shard.begins_at(asked.sequence):
        return state
    return replace(state, start=StartingPosition.trim_horizon(), position=None)


def _check_still_there(states: Sequence[tuple[Shard, ShardState]], service: PlanningPort, accepts_loss: bool) -> None:
    """Raises: DataLossError when the record of a given position is past retention, unless the job accepts that (S5)."""
    for shard, state in states:
        asked = _given_position(state)
        if state.ended or asked is None:
            continue
        if service.gap_after(shard, replace(state, position=asked), UNKNOWN_MS) is not Gap.LOST:
            continue
        lost = f"{shard.key} does not have the record {asked} any more, at which {START_OPTION} begins: it is past the stream's retention"
        if not accepts_loss:
            raise DataLossError(f"{lost}. With flink.state.dataloss=CONTINUE the query starts at the oldest record")
        LOG.warning("%s; going on at the oldest record because flink.state.dataloss=CONTINUE", lost)


def _given_position(state: ShardState) -> SequenceNumber | None:
    if state.position is None and state.start.type is PositionType.AT_SEQUENCE_NUMBER:
        return SequenceNumber(state.start.sequence_number or "")
    return state.position


def _check_listed(listed: Sequence[Shard], starts: Mapping[str, ShardState]) -> None:
    """A shard that was read to its end may have expired."""
    missing = {shard for shard, state in starts.items() if not state.ended} - {shard.shard_id for shard in listed}
    if missing:
        valid = ", ".join(shard.shard_id for shard in listed)
        reason = "the stream has no such shard, or no longer"
        raise ConfigurationError(START_OPTION, ", ".join(sorted(missing)), valid, reason=reason)
