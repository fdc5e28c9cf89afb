"""Computes when a shard is read next, by the limits of GetRecords or after a failed or throttled read (R1, R4). Pure functions."""

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
    """Return the interval (seconds) to the next read: the tip's interval after an empty response at the tip, else the usual one."""
    is_empty_at_tip = not response.records and response.millis_behind_latest == 0
    return config.tip_interval_seconds if is_empty_at_tip else config.interval_seconds


def next_read_at(started: float, responded: float, interval_seconds: float, read_bytes: int) -> float:
    """Return when the next read may start (R1). All times are in seconds of one monotonic clock.

    The interval and the limit of five calls a second count from start to start. Bytes count from the response on,
    because the time at which the service charged them is unknown, and a read that comes a little early is refused for a
    second.
    """
    return max(
        started + max(interval_seconds, MIN_CALL_INTERVAL_SECONDS), responded + read_bytes / READ_BYTES_PER_SECOND
    )


def retry_pause_seconds(error: TransientError, since_lost_read: float = math.inf) -> float:
    """Return the least wait (seconds) before a failed call is tried again, to which the backoff's jitter is added.

    `since_lost_read` is the time (seconds) since a read whose response was lost. The service may have charged this read
    with 10 MiB, and then refuses reads for 5 s. Without the longer wait the retries would be used up in that time.
    """
    if isinstance(error, ThrottledError):
        return max(REFUSED_SECONDS, REFUSED_SECONDS_AFTER_LARGEST_RESPONSE - since_lost_read)
    return MIN_CALL_INTERVAL_SECONDS
