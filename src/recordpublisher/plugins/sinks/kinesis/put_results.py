"""Sorts the records of a PutRecords call by result: acknowledged, to send again, given up, or misrouted (K2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from recordpublisher.publishers.errors import FatalKinesisError, ThrottledError, TransientError
from recordpublisher.publishers.kinesis.ports import PutEntry, PutResult

from .pending_records import VALIDATION_EXCEPTION, PendingRecord, size_of
from .shard_queues import ANY_SHARD, MisroutedRecord, TargetShardQueue
from .sink_settings import KinesisSinkSettings

THROTTLED = "ProvisionedThroughputExceededException"
"""One of the two error codes of a single record; the other is InternalFailure (API reference)."""
NOT_SENT = "NotSent"
"""The error code of a record whose call the service has refused because of other records, or for a reason not known yet."""
LONGEST_TRY_SECONDS = 60.0
"""Longest time between two failures of a record that counts as part of an outage.

If it was longer, the process may have been suspended, or may not have been permitted to write.
"""


def classify_results(
    batch: ShardBatch, results: Sequence[PutResult], limits: KinesisSinkSettings, now: float
) -> PutOutcome:
    """Sort a batch's records by result, and count the failed attempt of each record that was not taken.

    A record also counts as failed if its result has neither a shard nor an error code. A throttled record does not lose an attempt while
    the shard takes other records of the same call, because a slow shard is not a failure.
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


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A Kinesis record whose retries are used up, with its last error."""

    record: PendingRecord
    error_code: str
    error_message: str


@dataclass(slots=True)
class PutOutcome:
    """The records of one batch by result.

    `misrouted` are acknowledged records that were not taken by the shard that their keys decide. With AUTO record distribution, in which
    keys do not decide the shard, only records that an unknown shard took are misrouted.
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
    """Return the results of a call that the service refused because records exceed the stream's size limit, which was lowered.

    Records that exceed the new limit (`largest`, in bytes) count as refused. The other records are sent again.
    """
    refused = PutResult(
        error_code=VALIDATION_EXCEPTION, error_message=f"the stream now accepts at most {largest} bytes: {error}"
    )
    others = PutResult(error_code=NOT_SENT, error_message=str(error))
    return [refused if size_of(entry.data, entry.partition_key) > largest else others for entry in entries]


def split_by_sent(
    request: PutRequest, entries: Sequence[PutEntry | None]
) -> tuple[PutRequest, list[tuple[ShardBatch, list[PendingRecord]]]]:
    """Return the request without the records whose entry is None, and for each batch these records, which must not be sent."""
    remaining = iter(entries)
    sent: PutRequest = []
    unsent: list[tuple[ShardBatch, list[PendingRecord]]] = []
    for batch in request:
        pairs = [(record, next(remaining)) for record in batch.records]
        if kept := [record for record, entry in pairs if entry is not None]:
            sent.append(ShardBatch(batch.queue, kept, batch.limit_seconds))
        if len(kept) < len(pairs):
            unsent.append((batch, [record for record, entry in pairs if entry is None]))
    return sent, unsent


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
