"""When a shard is read next, by the limits of GetRecords, and after a read that failed or was throttled (R1, R4). Pure."""

from __future__ import annotations

import math

from ..errors import ThrottledError, TransientError
from ..kinesis.ports import ReadResponse
from ..service_limits import (
    GET_RECORDS_CALLS_PER_SECOND,
    READ_BYTES_PER_SECOND,
    REFUSED_SECONDS,
    REFUSED_SECONDS_AFTER_LARGEST_RESPONSE,
)
from .config import PollingConfig

MIN_CALL_INTERVAL_SECONDS = 1 / GET_RECORDS_CALLS_PER_SECOND
"""Least time between two calls on a shard."""


def interval_after(response: ReadResponse, config: PollingConfig) -> float:
    """Which of the two intervals (seconds) holds now: that of the tip after a response without records at the tip."""
    is_empty_at_tip = not response.records and response.millis_behind_latest == 0
    return config.tip_interval_seconds if is_empty_at_tip else config.interval_seconds


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
