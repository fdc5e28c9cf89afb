"""The tasks of a batch: the shards, bounds and publisher of each."""

from __future__ import annotations

from collections.abc import Mapping

from recordpublisher.fetcher.pipeline.bounds import Bounds

from ..options import SparkOptions
from .batch_claims import batch_id
from .offset import EMIT_NOTHING, BatchOffset, ShardOffset
from .retention import accepts_data_loss
from .shard_grouping import records_per_shard, task_groups, window_factor
from .task_read import TaskPlan


def task_plans(
    offset: BatchOffset,
    options: SparkOptions,
    store_token: str,
    consumer_arns: Mapping[str, str] | None,
    lost_claims: bool = False,
) -> list[TaskPlan]:
    """The tasks that read a batch. Without `consumer_arns` (None: they cannot be asked for now) they poll.

    With `lost_claims` they return no rows. The sink may have this batch already, and would then ignore other rows under its number; the
    records come with the next batch instead.
    """
    replay_publisher = "POLLING" if options.is_fan_out else options.publisher
    may_subscribe = subscribes(offset, options) and consumer_arns is not None and not lost_claims
    publisher = options.publisher if may_subscribe else replay_publisher
    groups = task_groups(offset)
    return [
        TaskPlan(
            batch=batch_id(offset),
            group=number,
            shards=tuple(group),
            bounds=Bounds(max_records=0) if lost_claims else bounds_of(offset, group, len(groups), options),
            publisher=publisher,
            replay_publisher=replay_publisher,
            store_token=store_token,
            consumer_arns=consumer_arns or {},
            accepts_loss=accepts_data_loss(options.properties),
            max_outage_ms=options.max_outage_ms,
        )
        for number, group in enumerate(groups)
    ]


def subscribes(offset: BatchOffset, options: SparkOptions) -> bool:
    """Whether first reads subscribe. A batch that emits nothing polls: it ends long before the 5 s between two subscriptions (F9)."""
    return options.is_fan_out and offset.emit_limit != EMIT_NOTHING


def bounds_of(offset: BatchOffset, group: list[ShardOffset], tasks: int, options: SparkOptions) -> Bounds:
    """What ends the read of one of `tasks` tasks."""
    share = records_per_shard(offset)
    fan_out = subscribes(offset, options)
    window_ms = options.fan_out_window_ms if fan_out else options.window_ms
    return Bounds(
        max_time=window_ms * window_factor(group) / 1000,
        max_records=options.max_task_records,
        max_bytes=options.task_bytes(tasks),
        until_event_time=offset.emit_limit,
        # a fan-out read uses its whole window: the next one may not subscribe before (F9)
        stop_at_tip=not fan_out,
        shard_limits={} if share is None else {entry.key: share for entry in group},
    )
