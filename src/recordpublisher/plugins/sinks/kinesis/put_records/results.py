"""What becomes of the records of a call: a plain function of its answer (K2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from recordpublisher.publishers.errors import ThrottledError, TransientError
from recordpublisher.publishers.kinesis.ports import PutResult

from ..pending_record import PendingRecord
from ..shard_queues.shard_map import ANY_SHARD
from ..shard_queues.shard_queue import ShardQueue
from .request import ShardBatch

THROTTLED = "ProvisionedThroughputExceededException"
"""One of the two codes of a refused record; the other is InternalFailure (API reference)."""


@dataclass(frozen=True, slots=True)
class GivenUp:
    """A Kinesis record whose retries are used up, and what the last refusal said."""

    outgoing: PendingRecord
    error_code: str
    error_message: str


@dataclass(slots=True)
class PutOutcome:
    """What becomes of one share: `strays` are acknowledged records that another shard took than their lane's."""

    acknowledged: list[PendingRecord]
    again: list[PendingRecord] = field(default_factory=list)
    given_up: list[GivenUp] = field(default_factory=list)
    throttles: int = 0
    strays: list[tuple[PendingRecord, str]] = field(default_factory=list)


def classify_results(share: ShardBatch, results: Sequence[PutResult], max_retries: int) -> PutOutcome:
    """Sort the records of a share by their results.

    A refusal costs a record one of its retries, unless the shard's limit refused it while others of the call were taken: that is
    progress, and a slow shard is no failure.
    """
    refused = [place for place, result in enumerate(results) if result.error_code is not None]
    if not refused:
        return PutOutcome(share.records, strays=_strays(share.lane, share.records, results))
    taken = set(range(len(results))) - set(refused)
    verdict = PutOutcome([share.records[place] for place in sorted(taken)])
    for place in refused:
        outgoing, result = share.records[place], results[place]
        is_throttled = result.error_code == THROTTLED
        verdict.throttles += is_throttled
        outgoing.attempts = 0 if is_throttled and taken else outgoing.attempts + 1
        if outgoing.attempts > max_retries:
            verdict.given_up.append(GivenUp(outgoing, result.error_code or "", result.error_message or ""))
        else:
            verdict.again.append(outgoing)
    kept = [results[place] for place in sorted(taken)]
    verdict.strays = _strays(share.lane, verdict.acknowledged, kept)
    return verdict


def results_of_failed_call(error: TransientError, records: int) -> list[PutResult]:
    """The results of a call that failed as a whole: every record is refused, as far as we know."""
    code = THROTTLED if isinstance(error, ThrottledError) else error.code
    return [PutResult(error_code=code, error_message=str(error))] * records


def _strays(
    lane: ShardQueue, records: list[PendingRecord], results: Sequence[PutResult]
) -> list[tuple[PendingRecord, str]]:
    expected = lane.shard.shard_id
    if expected == ANY_SHARD or all([result.shard_id == expected for result in results]):  # noqa: C419 - a list is faster
        return []
    return [
        (one, result.shard_id or "")
        for one, result in zip(records, results, strict=True)
        if result.shard_id != expected
    ]
