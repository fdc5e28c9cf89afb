"""Makes the tasks of a batch: how many there are, and the shards, limits and publisher of each."""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.stores.spark_read_claims import BatchId
from recordpublisher.publishers.properties.retry_properties import MAX_OUTAGE
from recordpublisher.publishers.shards import Shard

from ..options.spark_options import SparkOptions
from .claims import batch_id, claim_name
from .offset import EMIT_NOTHING, BatchOffset, ShardOffset


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """The plan of a task, which the driver sends to it. It is pickled, and has no secrets.

    - `group`: the number of the task.
    - `bounds`: the limits of the first read.
    - `publisher`: reads the batch the first time.
    - `replay_publisher`: reads the batch again. It polls, because a second subscription would end the first one.
    - `store_token`: a text by which the task checks that it uses the driver's claim store.
    - `accepts_loss`: whether the task continues if records that it must read again are past retention.
    - `max_outage_ms`: how long the task waits for a service that is unreachable.
    """

    batch: BatchId
    group: int
    shards: tuple[ShardOffset, ...]
    bounds: Bounds
    publisher: str
    replay_publisher: str
    store_token: str
    consumer_arns: Mapping[str, str]
    accepts_loss: bool = False
    max_outage_ms: int = MAX_OUTAGE.default

    @property
    def name(self) -> str:
        """Name under which the task stores its claim (the record of what it has read)."""
        return claim_name(self.group)

    @property
    def where(self) -> str:
        """Name of the task in messages, such as `task 3 of batch 7`."""
        return f"task {self.group} of batch {self.batch.batch}"

    @property
    def start_states(self) -> dict[Shard, ShardState]:
        """The state from which the task reads each shard."""
        return {entry.shard: entry.state for entry in self.shards}


MAX_DOUBLINGS = 4
"""How often the time of a read may double. The time grows from 1.5 s to 24 s at most."""


def task_plans(
    offset: BatchOffset,
    options: SparkOptions,
    store_token: str,
    consumer_arns: Mapping[str, str] | None,
    lost_claims: bool = False,
) -> list[TaskPlan]:
    """Return the tasks that read a batch.

    - `store_token`: the token by which a task checks that it uses the claim store of the driver.
    - `consumer_arns`: the ARNs of the fan-out consumers. None if the tasks poll, as in the first batch after a start.
    - `lost_claims`: whether the batch's claims (what its tasks have read) are lost. Its tasks then return no rows: the sink may have this
      batch already, and would ignore other rows under its number. The records come with the next batch instead.
    """
    may_subscribe = uses_subscriptions(offset, options) and consumer_arns is not None and not lost_claims
    publisher = options.publisher if may_subscribe else options.polling_publisher
    groups = offset.tasks()
    return [
        TaskPlan(
            batch=batch_id(offset),
            group=number,
            shards=tuple(group),
            bounds=Bounds(max_records=0)
            if lost_claims
            else bounds_of(offset, group, len(groups), options, may_subscribe=may_subscribe),
            publisher=publisher,
            replay_publisher=options.polling_publisher,
            store_token=store_token,
            consumer_arns=consumer_arns or {},
            accepts_loss=options.accepts_loss,
            max_outage_ms=options.max_outage_ms,
        )
        for number, group in enumerate(groups)
    ]


def uses_subscriptions(offset: BatchOffset, options: SparkOptions) -> bool:
    """Return whether the first read of the batch may subscribe.

    A batch that emits nothing polls, because it ends long before the 5 s that must be between two subscriptions.
    """
    return options.is_fan_out and offset.emit_limit != EMIT_NOTHING


def bounds_of(
    offset: BatchOffset, group: list[ShardOffset], tasks: int, options: SparkOptions, *, may_subscribe: bool
) -> Bounds:
    """Return the limits of a task's read. The task reads the shards `group`, and the batch has `tasks` tasks.

    - `may_subscribe`: whether the task reads by fan-out. It then reads for the whole window, and otherwise stops at the tip.
    """
    reading = sum(entry.task is not None for entry in offset.shards.values())
    # The limit allows at least one record of each shard, so that every shard makes progress.
    share = None if offset.limit is None else max(1, offset.limit // max(1, reading))
    window_ms = options.fan_out_window_ms if may_subscribe else options.window_ms
    return Bounds(
        max_time=window_ms * window_factor(group) / 1000,
        max_records=options.max_task_records,
        max_bytes=_task_bytes(tasks, options),
        until_event_time=offset.emit_limit,
        # A fan-out read uses its whole window, because the next one may not subscribe before (F9).
        stop_at_tip=not may_subscribe,
        shard_limits={} if share is None else {entry.key: share for entry in group},
    )


def _task_bytes(tasks: int, options: SparkOptions) -> int:
    return min(options.max_bytes, max(1, (options.max_batch_bytes or options.max_bytes * tasks) // tasks))


def window_factor(group: list[ShardOffset]) -> int:
    """Return how many times longer than usual a task may read. The factor doubles after each read in which a shard made no progress.

    A shard that was silent for days returns many empty responses before its next record, and every read starts again at the last record. If
    all reads were equally long, they would never reach the next record. The same is true for reads that wait because of throttling.
    """
    return 1 << min(MAX_DOUBLINGS, max(entry.empty_windows for entry in group))


# --- the number of tasks --------------------------------------------------------------------------------------------------------------

SHARDS_AT_ONCE = 16
"""The most shards that a task of `spark.read`, or of the first batch of an AvailableNow run, reads at once.

It applies if the options do not set the number of tasks. The number of the driver's CPUs is not used, because a cluster may have more
slots.
"""


def count_tasks(shards: int, options: SparkOptions) -> int:
    """Return how many tasks read `shards` shards."""
    if options.shards_per_task is not None:
        wanted = -(-shards // options.shards_per_task)
        return min(wanted, options.max_tasks) if options.max_tasks else wanted
    return min(shards, options.max_tasks or os.cpu_count() or 1)


def count_tasks_of_first_batch(shards: int, options: SparkOptions) -> int:
    """Return how many tasks read `shards` shards in the first batch of an AvailableNow run.

    There are few such tasks, because a scheduled run mostly finds little, and each task starts a Python process (0.4 s of CPU). If the
    batch does not reach the tips, the following batches have all tasks.
    """
    tasks = count_tasks(shards, options)
    return tasks if options.shards_per_task else min(tasks, -(-shards // SHARDS_AT_ONCE))


def count_tasks_of_batch_read(shards: int, options: SparkOptions) -> int:
    """Return the number of tasks among which `spark.read` divides `shards` shards."""
    tasks = count_tasks(shards, options)
    is_given = options.shards_per_task is not None or options.max_tasks is not None
    return tasks if is_given else max(tasks, -(-shards // SHARDS_AT_ONCE))
