"""The start of a query: where a new query begins in each shard, and the checks that each process makes before its first batch.

It also finds records that are near their stream's retention, or past it (S5).
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from recordpublisher.fetcher.checkpoints.shard_starts import (
    data_loss_error,
    given_position,
    initial_states,
    last_seen_ms,
    shards_no_longer_listed,
    shards_read_long_ago,
    shards_with_unread_children,
)
from recordpublisher.fetcher.checkpoints.snapshot_format import RestoredState
from recordpublisher.fetcher.shards.retention_check import UNKNOWN_MS, RetentionGap, time_to_loss_ms
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import ConfigurationError, DataLossError, RecordPublisherError
from recordpublisher.publishers.safe_text import few_of
from recordpublisher.publishers.shards import Shard, stream_name

from ..options.spark_options import SparkOptions
from ..options.start_by_shard import START_OPTION, starts_of
from ..outages import is_outage
from .batch_plan import AvailableNow
from .kinesis_service import KinesisService
from .offset import BatchOffset, ShardOffset, random_id

LOG = logging.getLogger("recordpublisher.spark")


def initial_offset(options: SparkOptions, service: KinesisService, clock: Clock, began_ms: int) -> BatchOffset:
    """Return the offset at which a new query starts. The query began at `began_ms` (epoch ms, by the driver's clock).

    LATEST becomes the service's time when the query began: its time now, minus the time since `began_ms`. Since then the service may have
    been unreachable, or the driver may have started again. If starts are given by shard, the ancestors of the named shards are left out,
    because their records are before the given positions.

    Raises: ConfigurationError if a named shard is not listed; DataLossError if the record at which a shard starts is past retention;
    StreamNotFoundError if a stream does not exist; KinesisError if a call fails.
    """
    starts, pinned_ms = starts_of(options.properties, options.streams), None
    if not starts.is_pinned:
        server_ms = service.server_time_ms(options.streams[0])
        pinned_ms = server_ms - max(0, clock.now_ms() - began_ms)
        starts = starts.pinned_at(pinned_ms)
    # A parent that only the first listing lacks would count as read once its child has started.
    listed, _ = service.list_restored([stream_name(stream) for stream in options.streams], RestoredState())
    _check_listed(listed, starts.by_shard)
    initial = initial_states(listed, RestoredState(), starts)
    entries = {
        shard.key: ShardOffset(shard, _with_seen(replace(initial[shard.key], parents=shard.parents), pinned_ms))
        for shard in listed
        if shard.shard_id in starts.by_shard or not initial[shard.key].ended
    }
    _check_still_there(entries.values(), service, options.accepts_loss)
    return BatchOffset(random_id(), "start", 0, clock.now_ms(), entries, initial_start=starts.default)


def _with_seen(state: ShardState, pinned_ms: int | None) -> ShardState:
    """Return the state with `pinned_ms` as the time when the shard was last seen, if the shard starts at LATEST.

    `pinned_ms` is the time that LATEST stands for. Records that arrived after it and are past retention then count as lost.
    """
    return state if pinned_ms is None or state.start.timestamp_ms != pinned_ms else replace(state, seen_ms=pinned_ms)


def _check_still_there(entries: Iterable[ShardOffset], service: KinesisService, accepts_loss: bool) -> None:
    """Check that the records at which the user's starts begin are not past retention.

    Raises: DataLossError if a record is past retention, unless the job accepts that.
    """
    for entry in entries:
        asked = given_position(entry.state)
        if entry.state.ended or asked is None:
            continue
        state = replace(entry.state, position=asked)
        if service.gap_after(entry.shard, state, last_seen_ms(entry.state) or UNKNOWN_MS) is not RetentionGap.LOST:
            continue
        lost = f"{entry.key} no longer has the record {asked}, at which {START_OPTION} begins: it is past the stream's retention"
        if not accepts_loss:
            raise DataLossError(lost, "With flink.state.dataloss=CONTINUE the query starts at the oldest record")
        LOG.warning("%s; the query continues at the oldest record because flink.state.dataloss=CONTINUE", lost)


def _check_listed(listed: Sequence[Shard], starts: Mapping[str, ShardState]) -> None:
    """Check that the shards with a start are listed. A shard that was read to its end may be missing, because it may have expired.

    Raises: ConfigurationError if another shard is not listed.
    """
    missing = {shard for shard, state in starts.items() if not state.ended} - {shard.shard_id for shard in listed}
    if missing:
        valid = few_of([shard.shard_id for shard in listed])
        reason = "the stream does not have such a shard, or no longer has it"
        raise ConfigurationError(START_OPTION, few_of(sorted(missing)), valid, reason=reason)


@dataclass(frozen=True, slots=True)
class QueryRun:
    """Values that are the same during a whole run of a query.

    - `lost`: keys of shards that have expired unread, if the job continues without them.
    - `available_now`: where an AvailableNow run ends; None in another run.
    """

    lost: frozenset[str] = frozenset()
    available_now: AvailableNow | None = None


def begin_run(
    reached: BatchOffset, options: SparkOptions, service: KinesisService, now_ms: int, *, is_available_now: bool
) -> QueryRun:
    """Check at the start of a run that no records are past retention. Find out where an AvailableNow run ends.

    - `reached`: the plan of the next batch, which says how far each shard was read.

    Raises: DataLossError if records are past retention, unless the job accepts that; the error of a call if a service is unreachable.
    """
    is_new = reached.batch <= 1
    lost = frozenset[str]() if is_new else lost_shards(reached, options, service, now_ms)
    if not is_available_now:
        return QueryRun(lost)
    # Existing shards are part of the run, even if the discovery has not found them yet.
    list_shards_now(options, service)
    # The service's time is truncated to whole seconds, and records of this second are part of the run.
    arrival_ms = max(service.server_time_ms(stream) for stream in options.streams) + 1000
    return QueryRun(lost, AvailableNow(arrival_ms, reached.batch - 1))


def list_shards_now(options: SparkOptions, service: KinesisService) -> None:
    """List the shards of all streams now. `discovered_shards` then returns them."""
    for stream in options.streams:
        service.list_shards(stream)


def dropped_streams(known: Iterable[str], streams: Iterable[str]) -> set[str]:
    """Return the streams of the checkpoint (`known`) that are no longer among the names or ARNs of the options (`streams`).

    Raises: ConfigurationError if none of the known streams is left. The checkpoint then belongs to another job.
    """
    known, wanted = set(known), {stream_name(stream) for stream in streams}
    if known and not known & wanted:
        names = ", ".join(sorted(known))
        valid = f"streams with {names} among them, or a new checkpointLocation and a new metadataLocation"
        raise ConfigurationError(
            "stream",
            ", ".join(sorted(wanted)),
            valid,
            reason=f"the checkpoint of this query has positions of {names}",
        )
    return known - wanted


# --- records that are near their retention, or past it (S5) ---------------------------------------------------------------------------


def lost_shards(offset: BatchOffset, options: SparkOptions, service: KinesisService, now_ms: int) -> frozenset[str]:
    """Return the keys of the offset's shards that have expired unread, if the job continues without them.

    Raises: DataLossError if records are past retention, unless the job accepts that; the error of a call if a service is unreachable.
    """
    restored = RestoredState({key: entry.state for key, entry in offset.shards.items()})
    names = options.stream_names & {entry.shard.stream for entry in offset.shards.values()}
    old = shards_read_long_ago(restored, now_ms)
    try:
        listed, expired = service.list_restored(names, restored)
        oldest = {name: service.oldest_retained_ms(name) for name in names & {key.rsplit("/", 1)[0] for key in old}}
        missing = [key for key in shards_no_longer_listed(listed, restored, names) if key in expired]
        lost = missing + shards_with_unread_children(listed, restored, oldest)
        if not options.accepts_loss:
            unfinished = [(shard, restored.shards[shard.key]) for shard in listed if shard.key in old]
            lost += [shard.key for shard, state in unfinished if _has_gap(service, shard, state)]
    except RecordPublisherError as error:
        if is_outage(error):
            raise
        # The tasks get the same error, and report it better.
        LOG.warning(
            "cannot check whether records passed retention while no query ran; the query starts nevertheless: %s", error
        )
        return frozenset()
    if lost and not options.accepts_loss:
        raise data_loss_error(lost, restored)
    if lost:
        LOG.error("%s; the query continues because flink.state.dataloss=CONTINUE", data_loss_error(lost, restored).loss)
    return frozenset(missing)


class RetentionLeft(NamedTuple):
    """The time until the unread records of a shard will be past retention.

    - `shard`: the key of the shard.
    - `left_ms`: the time left (ms).
    - `retention_ms`: how long the shard's stream keeps records (ms).
    """

    shard: str
    left_ms: int
    retention_ms: int


def least_retention_left(offset: BatchOffset, service: KinesisService, now_ms: int) -> RetentionLeft | None:
    """Return the offset's shard with the smallest part of its retention left, or None while no retention is known.

    If a shard has no unread records, its retention is counted from the time when its tip was last reached by a task or by the watch for new
    data.
    """
    left = [
        RetentionLeft(entry.key, left_ms, period_ms)
        for entry in offset.shards.values()
        if (period_ms := service.retention_ms(entry.shard.stream)) is not None
        and (left_ms := time_to_loss_ms(_seen_by_watch(entry.state, service.tip_ms(entry.key)), period_ms, now_ms))
        is not None
    ]
    return min(left, key=lambda each: each.left_ms / each.retention_ms, default=None)


def _seen_by_watch(state: ShardState, tip_ms: int | None) -> ShardState:
    return state if tip_ms is None else replace(state, tip_ms=max(tip_ms, state.tip_ms or 0))


def _has_gap(service: KinesisService, shard: Shard, state: ShardState) -> bool:
    return not state.ended and service.gap_after(shard, state, last_seen_ms(state)) is RetentionGap.LOST
