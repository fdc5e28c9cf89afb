"""Computes the Limit of GetRecords from the measured size of records and the free memory (R1, P6). Pure functions."""

from __future__ import annotations

import msgspec

from ..service_limits import GET_RECORDS_RECORDS, READ_BYTES_PER_SECOND
from .read_rate import MIN_CALL_INTERVAL_SECONDS

FIRST_READ_BUDGET_BYTES = 2**20
"""Budget of the first read if none was set. This read measures the records, so that a thousand shards may start at once (P6)."""


class RecordSize(msgspec.Struct, frozen=True):
    """Mean bytes of a Kinesis record: `read` as the service counts them, `held` in memory after de-aggregation.

    The defaults, used before the first response, are larger than usual records, so that the first read stays within its
    budget.
    """

    read: float = 10_240.0
    held: float = 10_240.0
    is_measured: bool = False

    def after(self, raw_count: int, read_bytes: int, held_bytes: int) -> RecordSize:
        """Return the means of a response with `raw_count` Kinesis records, or this size unchanged if there are none."""
        if raw_count == 0:
            return self
        return RecordSize(max(read_bytes / raw_count, 1.0), held_bytes / raw_count, is_measured=True)


def records_to_request(max_records: int, size: RecordSize, budget_bytes: int | None, loop_seconds: float | None) -> int:
    """Return the Limit of the next read, 1 to 10,000.

    With adaptive reads (`loop_seconds` is given) it is what the shard yields in one loop, which may be more than
    `max_records` (R1). It is lowered to what fits into `budget_bytes` (P6), but never below one record.
    """
    limit = max_records
    if loop_seconds is not None:
        limit = int(READ_BYTES_PER_SECOND * max(loop_seconds, MIN_CALL_INTERVAL_SECONDS) / size.read)
    if budget_bytes is None and not size.is_measured:
        budget_bytes = FIRST_READ_BUDGET_BYTES
    if budget_bytes is not None:
        limit = min(limit, int(budget_bytes / size.held))
    return max(1, min(limit, GET_RECORDS_RECORDS))
