"""The tasks of a batch: the shards, bounds and publisher of each; and what the driver counts of their reads: unanswered, disturbed ones."""

from collections.abc import Mapping

from recordpublisher.fetcher.pipeline.bounds import Bounds
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.fanout.resubscribe_policy import SubscriptionPreemptionDetector

from ..options.spark_options import SparkOptions
from ..outages import OutageWatch
from .batch_claims import BatchClaims, batch_id
from .claim import ShardRead
from .offset import EMIT_NOTHING, BatchOffset, ShardOffset
from .retention import accepts_data_loss
from .task_read import TaskPlan

MAX_DOUBLINGS = 4
"""A window grows from 1.5 s to 24 s at most."""


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
    may_subscribe = subscribes(offset, options) and consumer_arns is not None and not lost_claims
    publisher = options.publisher if may_subscribe else options.polling_publisher
    groups = offset.tasks()
    return [
        TaskPlan(
            batch=batch_id(offset),
            group=number,
            shards=tuple(group),
            bounds=Bounds(max_records=0) if lost_claims else bounds_of(offset, group, len(groups), options),
            publisher=publisher,
            replay_publisher=options.polling_publisher,
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
    reading = sum(entry.task is not None for entry in offset.shards.values())
    # at least one record of each shard, so that every shard progresses
    share = None if offset.limit is None else max(1, offset.limit // max(1, reading))
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


def window_factor(group: list[ShardOffset]) -> int:
    """How many times longer than usual a task may read: doubled after each window in which a shard got no record and did not reach its tip.

    A shard that was silent for days returns many empty responses before its next record, and every window starts again at the last record.
    With windows of constant length it would never reach the next one. The same holds for reads that wait because of throttling.
    """
    return 1 << min(MAX_DOUBLINGS, max(entry.empty_windows for entry in group))


NO_RESPONSE = "no response to any read, however long it was waited for"


class UnansweredReads:
    """Owns when the next batch may try again, and tells the watch of outages which shards fail.

    A shard fails if its whole read got no response and its last call failed. While others are read, batches follow each other as usual.
    """

    def __init__(self, outages: OutageWatch, clock: Clock) -> None:
        self._outages = outages
        self._clock = clock
        self.retry_at_ms = 0

    def note(self, offset: BatchOffset, claims: BatchClaims) -> None:
        """Note how the reads of an offset's batch ended; call it once for each batch. Raises: OutageError."""
        pauses = []
        has_response = any(read.had_response for read in claims.shards.values())
        for key, read in claims.shards.items():
            is_silent = not has_response and offset.shards[key].empty_windows >= MAX_DOUBLINGS
            failure = read.seen.failure or (NO_RESPONSE if is_silent else None)
            if read.had_response:
                self._outages.on_success(key)
            elif failure is not None:
                pauses.append(self._outages.on_failure(f"{key}: {failure}", key))
        pause = max(pauses, default=0.0) if not has_response else 0.0
        self.retry_at_ms = self._clock.now_ms() + round(pause * 1000)


class SharedConsumer:
    """Owns, for each shard, how often in a row another user of our consumer took over a subscription or kept us from one (F10).

    A task cannot count: it sees a take-over or a refusal or two, then its window ends.
    """

    def __init__(self) -> None:
        self._detectors: dict[str, SubscriptionPreemptionDetector] = {}
        self._disturbed: frozenset[str] = frozenset()

    def note(self, shards: Mapping[str, ShardOffset], reads: Mapping[str, ShardRead], consumer: str) -> frozenset[str]:
        """Note the reads of a batch, once; returns the shards that are disturbed for the second time in a row, at least.

        Raises: ConsumerError when too many subscriptions in a row were taken over or refused.
        """
        for key, read in reads.items():
            detector = self._detectors.setdefault(key, SubscriptionPreemptionDetector(shards[key].shard))
            for _ in range(read.seen.refused):
                detector.on_in_use(consumer)
            for _ in range(read.seen.taken_over):
                detector.on_preempted(consumer)
            if read.had_response:
                detector.on_subscribed()
            if read.had_response and not read.seen.taken_over:
                detector.on_other_end()
        before, self._disturbed = self._disturbed, frozenset(key for key, read in reads.items() if _is_disturbed(read))
        return before & self._disturbed


def _is_disturbed(read: ShardRead) -> bool:
    return read.seen.taken_over > 0 or (read.seen.refused > 0 and not read.had_response)
