"""How fast a shard is read within the limits of GetRecords: when it is read next, and how many records are asked for. Pure.

The pauses are by the limits, and after a read that failed or was throttled (R1, R4). How many records a read asks for goes by their
measured size (R1, P6).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import ThrottledError, TransientError
from ..service_limits import (
    GET_RECORDS_CALLS_PER_SECOND,
    GET_RECORDS_RECORDS,
    READ_BYTES_PER_SECOND,
    REFUSED_SECONDS,
    REFUSED_SECONDS_AFTER_LARGEST_RESPONSE,
)

MIN_CALL_INTERVAL_SECONDS = 1 / GET_RECORDS_CALLS_PER_SECOND
"""Least time between two calls on a shard."""
FIRST_READ_BUDGET_BYTES = 2**20
"""Budget of the first read when none was set. It measures the records, so that a thousand shards may start at once (P6)."""


def next_read_at(started: float, responded: float, interval_seconds: float, read_bytes: int) -> float:
    """When the next read may start (R1). All times are in seconds of one monotonic clock.

    The interval and the limit of five calls a second count from start to start. Bytes count from the response on: the time at which the
    service charged them is unknown, and a read that comes a little early is refused for a second.
    """
    return max(
        started + max(interval_seconds, MIN_CALL_INTERVAL_SECONDS), responded + read_bytes / READ_BYTES_PER_SECOND
    )


def retry_pause_seconds(error: TransientError, since_lost_read: float = math.inf) -> float:
    """The least wait before a failed call is tried again, below the backoff's jitter.

    `since_lost_read`: seconds since a read whose response was lost. The service may have charged it with 10 MiB, and then refuses reads
    for 5 s. Without the longer wait the retries would be used up meanwhile.
    """
    if isinstance(error, ThrottledError):
        return max(REFUSED_SECONDS, REFUSED_SECONDS_AFTER_LARGEST_RESPONSE - since_lost_read)
    return MIN_CALL_INTERVAL_SECONDS


@dataclass(frozen=True, slots=True)
class RecordSize:
    """Mean bytes of a Kinesis record: `read` as the service counts them, `held` in memory after de-aggregation.

    Before anything was read, the defaults are larger than usual records, so that the first read stays within its budget.
    """

    read: float = 10_240.0
    held: float = 10_240.0
    is_measured: bool = False

    def after(self, raw_count: int, read_bytes: int, held_bytes: int) -> RecordSize:
        """The means of a response with `raw_count` Kinesis records; unchanged when it has none."""
        if raw_count == 0:
            return self
        return RecordSize(max(read_bytes / raw_count, 1.0), held_bytes / raw_count, is_measured=True)


def records_to_request(max_records: int, size: RecordSize, budget_bytes: int | None, loop_seconds: float | None) -> int:
    """The Limit of the next read, 1 to 10,000.

    With adaptive reads it is what the shard yields in one loop of `loop_seconds`, which may be more than `max_records` (R1). It is
    lowered to what fits into `budget_bytes` (P6), but never below one record.
    """
    limit = max_records
    if loop_seconds is not None:
        limit = int(READ_BYTES_PER_SECOND * max(loop_seconds, MIN_CALL_INTERVAL_SECONDS) / size.read)
    if budget_bytes is None and not size.is_measured:
        budget_bytes = FIRST_READ_BUDGET_BYTES
    if budget_bytes is not None:
        limit = min(limit, int(budget_bytes / size.held))
    return max(1, min(limit, GET_RECORDS_RECORDS))
