"""How much to ask for and how long to wait: plain functions of what was read (R1, P6)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..errors import ThrottledError, TransientError
from ..positions import StartingPosition
from ..records import RecordBatch, UserRecord

LARGEST_RESPONSE_SECONDS = 5.0
"""How long reads are refused after an answer of 10 MiB, the largest (service limit), whether it arrived or not."""
MIN_CALL_INTERVAL_SECONDS = 0.2
"""Least time between two calls on a shard: 5 GetRecords calls a second (service limit)."""
BYTES_PER_SECOND = 2 * 2**20
"""What a shard gives: 2 MiB a second (service limit); an answer of 10 MiB is followed by 5 s of refusals."""
THROTTLED_SECONDS = 1.0
"""After a refusal calls are refused for the rest of a second (API reference of GetRecords)."""
MAX_LIMIT = 10_000
"""The largest Limit of GetRecords (service limit)."""
FIRST_READ_BUDGET_BYTES = 2**20
"""Room of the first read when nobody offered any: it measures the records, so that a thousand shards may start at once (P6)."""
MAX_ITERATOR_AGE_SECONDS = 240.0
"""An older iterator is replaced before use (R2): the service takes it for 300 s."""


@dataclass(frozen=True, slots=True)
class RecordSize:
    """Bytes of a Kinesis record, on average: `read` as the service counts them, `held` in memory once taken apart.

    Before anything was read, a guess on the large side, so that the first read does not overrun its room.
    """

    read: float = 10_240.0
    held: float = 10_240.0
    is_measured: bool = False

    def after(self, batch: RecordBatch, read_bytes: int) -> RecordSize:
        """The means of `batch`, unchanged when it is of no records."""
        if batch.raw_count == 0:
            return self
        return RecordSize(max(read_bytes / batch.raw_count, 1.0), batch.held_bytes / batch.raw_count, is_measured=True)


def key_bytes_of(records: Sequence[UserRecord]) -> int:
    """What the service counts besides data: partition keys."""
    return len("".join([record.partition_key or "" for record in records]))


def next_read_at(started: float, answered: float, interval_seconds: float, read_bytes: int) -> float:
    """When the next read may start (R1), in seconds of the clock that `started` and `answered` are of.

    The interval and the five calls a second count from start to start. Bytes count from the answer on: when the service charged them
    is not known to us, and a read that comes a little early is refused for a second.
    """
    return max(started + max(interval_seconds, MIN_CALL_INTERVAL_SECONDS), answered + read_bytes / BYTES_PER_SECOND)


def retry_pause_seconds(error: TransientError, since_unanswered: float = math.inf) -> float:
    """The least wait before a failed call is tried again, below the backoff's jitter.

    `since_unanswered`: seconds since a read whose answer was lost. What it was charged is not known before the next is refused: then
    it may have been the most, and retries would be used up meanwhile.
    """
    if isinstance(error, ThrottledError):
        return max(THROTTLED_SECONDS, LARGEST_RESPONSE_SECONDS - since_unanswered)
    return MIN_CALL_INTERVAL_SECONDS


def read_limit(max_records: int, size: RecordSize, room_bytes: int | None, adaptive_seconds: float | None) -> int:
    """The Limit of the next read, 1 to 10,000.

    Under adaptive reads it is what the shard gives in one loop of `adaptive_seconds`, more or less than `max_records` (R1). It is
    lowered to what fits into `room_bytes` (P6); one record is always asked for.
    """
    limit = max_records
    if adaptive_seconds is not None:
        limit = int(BYTES_PER_SECOND * max(adaptive_seconds, MIN_CALL_INTERVAL_SECONDS) / size.read)
    if room_bytes is None and not size.is_measured:
        room_bytes = FIRST_READ_BUDGET_BYTES
    if room_bytes is not None:
        limit = min(limit, int(room_bytes / size.held))
    return max(1, min(limit, MAX_LIMIT))


@dataclass(frozen=True, slots=True)
class CarriedReaderState:
    """`iterator` (None: none in hand) stands at `position` and is from `since`; no read before `next_read_at`, by the quota (R1);
    `unanswered_at`: when the last read was sent, if its answer was lost, else -inf; all in monotonic seconds. `size`: of the shard's
    records, so that the first read fits its room (P6)."""

    position: StartingPosition
    iterator: str | None
    since: float
    size: RecordSize
    next_read_at: float
    unanswered_at: float
