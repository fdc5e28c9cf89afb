"""Takes the records of the next PutRecords call off the queues, and sorts the records of a call by result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from recordpublisher.publishers.errors import FatalKinesisError, ThrottledError, TransientError
from recordpublisher.publishers.kinesis.ports import PutEntry, PutResult

from .pending_records import VALIDATION_EXCEPTION, PendingRecord, size_of
from .shard_queues import ANY_SHARD, MisroutedRecord, TargetShardQueue
from .sink_settings import KinesisSinkSettings

NEVER = float("inf")
TIMER_TOLERANCE_SECONDS = 0.001
"""A call that is due within this time counts as due, because timers are rounded."""
COALESCE_SECONDS = 0.01
"""Shards whose next send is due within this time share one call, instead of many small ones (seconds)."""
THROTTLED = "ProvisionedThroughputExceededException"
"""The error code of a throttled record. The other error code of a single record is InternalFailure."""
NOT_SENT = "NotSent"
"""The error code of a record whose call the service has refused because of other records, or for a reason not known yet."""
LONGEST_TRY_SECONDS = 60.0
"""Longest time between two failures of a record that counts as part of an outage (seconds).

In a longer time the process may have been suspended, or may not have been permitted to write.
"""


def classify_results(
    batch: ShardBatch, results: Sequence[PutResult], limits: KinesisSinkSettings, now: float
) -> PutOutcome:
    """Sort a batch's records by result, and count the failed attempt of each record that was not taken.

    A record also counts as failed if its result has neither a shard nor an error code. Throttling does not use up a retry if the shard
    takes other records of the same call, because a slow shard is not a failure.
    """
    failed = [index for index, one in enumerate(results) if one.error_code is not None or one.shard_id is None]
    if not failed:
        return PutOutcome(batch.records, misrouted=_misrouted(batch.queue, batch.records, results))
    taken = set(range(len(results))) - set(failed)
    outcome = PutOutcome([batch.records[index] for index in sorted(taken)])
    for index in failed:
        record, result = batch.records[index], results[index]
        is_throttled = result.error_code == THROTTLED
        outcome.throttles += is_throttled
        record.attempts = 0 if is_throttled and taken else record.attempts + 1
        if record.attempts:
            count_outage(record, now)
        else:
            record.failed_at, record.failing_for = None, 0.0
        is_used_up = record.attempts > 0 and limits.retries.is_used_up(record.attempts - 1, record.failing_for)
        if is_used_up or result.error_code == VALIDATION_EXCEPTION:
            outcome.given_up.append(
                GivenUp(record, result.error_code or "MalformedResponse", result.error_message or "")
            )
        else:
            outcome.to_retry.append(record)
    taken_results = [results[index] for index in sorted(taken)]
    outcome.misrouted = _misrouted(batch.queue, outcome.acknowledged, taken_results)
    return outcome


@dataclass(frozen=True, slots=True)
class ShardBatch:
    """The records of one shard in a call, and the seconds that the shard needs for them at its rate limit."""

    queue: TargetShardQueue
    records: list[PendingRecord]
    limit_seconds: float


PutRequest = list[ShardBatch]
"""The records of one call, shard by shard, in the order in which they are sent."""
Unsent = list[tuple[ShardBatch, int, list[PendingRecord]]]
"""For each batch of a call: how many of its Kinesis records were not sent at all, and all its user records that were not sent."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A Kinesis record whose retries are used up, with its last error."""

    record: PendingRecord
    error_code: str
    error_message: str


@dataclass(slots=True)
class PutOutcome:
    """The records of one batch by result.

    `misrouted`: acknowledged records that another shard took than the one that their keys decide. With AUTO record distribution keys do
    not decide the shard, so only records that an unknown shard took are misrouted.
    """

    acknowledged: list[PendingRecord]
    to_retry: list[PendingRecord] = field(default_factory=list)
    given_up: list[GivenUp] = field(default_factory=list)
    throttles: int = 0
    misrouted: list[MisroutedRecord] = field(default_factory=list)


def count_outage(record: PendingRecord, now: float) -> None:
    """Add the time since the record's last failed attempt to `failing_for`, the time for which it has been failing."""
    if record.failed_at is not None:
        record.failing_for += min(now - record.failed_at, LONGEST_TRY_SECONDS)
    record.failed_at = now


def results_of_failed_call(error: TransientError, records: int) -> list[PutResult]:
    """Return the results of a call that failed as a whole. Every record counts as failed, although some may have been taken."""
    code = THROTTLED if isinstance(error, ThrottledError) else error.code
    return [PutResult(error_code=code, error_message=str(error))] * records


def results_of_refused_call(error: FatalKinesisError, entries: Sequence[PutEntry], largest: int) -> list[PutResult]:
    """Return the results of a call that the service refused because the stream's limit for the size of records was lowered.

    Records that exceed the new limit (`largest`, in bytes) count as refused. The other records are sent again.
    """
    refused = PutResult(
        error_code=VALIDATION_EXCEPTION, error_message=f"the stream now accepts at most {largest} bytes: {error}"
    )
    others = PutResult(error_code=NOT_SENT, error_message=str(error))
    return [refused if size_of(entry.data, entry.partition_key) > largest else others for entry in entries]


def split_by_sent(request: PutRequest, kept: Sequence[PendingRecord | None]) -> tuple[PutRequest, Unsent]:
    """Divide a request into the records that were sent and those that were not.

    - `kept`: the sent part of each record of the request; None if no part was sent.
    """
    remaining = iter(kept)
    sent: PutRequest = []
    unsent: Unsent = []
    for batch in request:
        pairs = [(record, next(remaining)) for record in batch.records]
        if records := [one for _, one in pairs if one is not None]:
            sent.append(ShardBatch(batch.queue, records, batch.limit_seconds))
        if left := [part for record, one in pairs if one is not record for part in _parts_besides(record, one)]:
            unsent.append((batch, len(pairs) - len(records), left))
    return sent, unsent


def _parts_besides(record: PendingRecord, kept: PendingRecord | None) -> list[PendingRecord]:
    ids = set() if kept is None else {id(part) for part in kept.user_records}
    return [part for part in record.user_records if id(part) not in ids]


def _expected_shards(queue: TargetShardQueue) -> tuple[str, ...]:
    """Return the ids of the shards that may take a record of the queue."""
    return tuple(queue.known_shards or ()) or (queue.shard.shard_id,)


def _misrouted(
    queue: TargetShardQueue, records: list[PendingRecord], results: Sequence[PutResult]
) -> list[MisroutedRecord]:
    expected = _expected_shards(queue)
    if ANY_SHARD in expected or all([result.shard_id in expected for result in results]):  # noqa: C419 - a list is faster
        return []
    return [
        (one, result.shard_id or "")
        for one, result in zip(records, results, strict=True)
        if result.shard_id not in expected
    ]


def user_records_without(acknowledged: list[PendingRecord], misrouted: list[MisroutedRecord]) -> list[PendingRecord]:
    """Return the user records of the acknowledged Kinesis records, without those in misrouted aggregates."""
    if not any([record.parts for record in acknowledged]):  # noqa: C419 - a list is faster
        return acknowledged
    excluded = {id(record) for record, _ in misrouted}
    return [part for one in acknowledged if id(one) not in excluded for part in one.user_records]


def take_next_request(
    queues: Iterable[TargetShardQueue], now: float, limits: KinesisSinkSettings
) -> PutRequest | float:
    """Remove the records of a call that is due now from the queues, and return them. If no call is due, return the time of the next check.

    A call is due when it can be filled, or when a record has waited long enough (the linger).
    """
    ready, check_at = _ready(queues, now)
    if not ready:
        return check_at
    due = [queue for queue in ready if queue.waiting_since + limits.linger_seconds <= now + TIMER_TOLERANCE_SECONDS]
    if due or _fills_a_call(ready, limits):
        # The shard that has waited longest comes first, so that no shard starves if one call cannot take all records.
        request = _take_batches(sorted(ready, key=lambda queue: queue.next_send_at), set(due), now, limits)
        if request:
            return request
    return min(check_at, *(queue.waiting_since + limits.linger_seconds for queue in ready))


def _ready(queues: Iterable[TargetShardQueue], now: float) -> tuple[list[TargetShardQueue], float]:
    """Return the queues that may send now, and the time at which the first of the other queues may send."""
    waiting = [queue for queue in queues if queue.records and queue.may_send]
    ready = [queue for queue in waiting if queue.next_send_at <= now + COALESCE_SECONDS]
    later = [queue.next_send_at for queue in waiting if queue.next_send_at > now + COALESCE_SECONDS]
    return ready, min(later, default=NEVER)


def _fills_a_call(ready: list[TargetShardQueue], limits: KinesisSinkSettings) -> bool:
    return (
        sum([queue.sendable_estimate for queue in ready]) >= limits.request_count
        or sum([queue.sendable_bytes for queue in ready]) >= limits.request_bytes
    )


def _take_batches(
    ready: list[TargetShardQueue], due: set[TargetShardQueue], now: float, limits: KinesisSinkSettings
) -> PutRequest:
    batches: PutRequest = []
    records, size = limits.request_count, limits.request_bytes
    for queue in ready:
        taken = queue.take(records, size, is_due=queue in due)
        if not taken[0]:
            continue
        if batches and taken[1] > size:  # A record larger than the room left in this call waits for a call of its own.
            queue.put_back(taken[0])
            continue
        batches.append(ShardBatch(queue, taken[0], queue.mark_sent(taken, now)))
        records, size = records - len(taken[0]), size - taken[1]
        if records <= 0 or size <= 0:
            break
    return batches
