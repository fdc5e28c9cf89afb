"""Finds records that are near their stream's retention, or past it (S5).

At the start of a query it checks whether records passed retention while no query ran. While the query runs, the fetchers of its tasks check
each read, and the driver reports how far the worst shard is from a loss.
"""

import logging
from dataclasses import replace
from typing import NamedTuple

from recordpublisher.fetcher.checkpoints.snapshot import RestoredState
from recordpublisher.fetcher.checkpoints.starts import (
    data_loss_error,
    last_seen_ms,
    old_shards,
    shards_no_longer_listed,
    shards_with_unread_children,
)
from recordpublisher.fetcher.shards.retention_check import Gap, time_to_loss_ms
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.shards import Shard

from ..options.spark_options import SparkOptions
from ..outages import is_outage
from ..service.kinesis_service import KinesisService
from .offset import BatchOffset

LOG = logging.getLogger("recordpublisher.spark")


def lost_shards(offset: BatchOffset, options: SparkOptions, service: KinesisService, now_ms: int) -> frozenset[str]:
    """Return the shards of the offset, by `Shard.key`, that have expired unread, if the job continues without them.

    Raises: DataLossError, which names the records past retention, unless the job accepts the loss (S5); the error of a service that is
    away.
    """
    restored = RestoredState({key: entry.state for key, entry in offset.shards.items()})
    names = options.stream_names & {entry.shard.stream for entry in offset.shards.values()}
    old = old_shards(restored, now_ms)
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
        # The tasks get the same error and report it better.
        LOG.warning("cannot check whether records are past retention: %s", error)
        return frozenset()
    if lost and not options.accepts_loss:
        raise data_loss_error(lost, restored)
    if lost:
        LOG.error("%s; going on because flink.state.dataloss=CONTINUE", data_loss_error(lost, restored))
    return frozenset(missing)


class RetentionLeft(NamedTuple):
    """The shard, by `Shard.key`, whose unread records are nearest to their stream's retention.

    - `left_ms`: the time left (ms).
    - `retention_ms`: the retention (ms).
    """

    shard: str
    left_ms: int
    retention_ms: int


def least_retention_left(offset: BatchOffset, service: KinesisService, now_ms: int) -> RetentionLeft | None:
    """Return the offset's shard that is nearest to a loss, as a part of its retention; None while no retention is known.

    A shard without unread records has its whole retention left, counted from the last read of a task or the watch at its tip.
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
    return not state.ended and service.gap_after(shard, state, last_seen_ms(state)) is Gap.LOST
