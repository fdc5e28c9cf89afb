"""RecordDistributionCheck: asks whether partition keys decide the shard of a stream's records, and again when needed (S4)."""

import asyncio
import logging
import math
from enum import Enum
from typing import Protocol

from ..clock import Clock
from ..errors import KinesisError, RetriesExhaustedError
from ..kinesis.ports import RecordDistribution
from ..log_fields import about
from ..retry import RetryPolicy, call_with_retries

log = logging.getLogger(__name__)

MIN_INTERVAL_SECONDS, PROVISIONED_INTERVAL_SECONDS = 10.0, 1.0
"""Least time between two requests for one stream: an account has 20 DescribeStreamSummary calls a second."""
FAILED_INTERVAL_SECONDS = 600.0
"""Least time until the next request after one that failed: the permission may be granted later."""
ARRIVAL_TOLERANCE_MS = 60_000
"""How inaccurate an arrival time may be. The service guarantees nothing."""


class DistributionPort(Protocol):
    """The call to the service that de-aggregation needs."""

    async def record_distribution(self, stream: str) -> RecordDistribution:
        """Return how the stream (name or ARN) distributes its records now (DescribeStreamSummary)."""


class ForeignSubRecords(Enum):
    """The ways to treat sub-records whose hash key belongs to another shard."""

    DROP = "keys decide the shard: the producer puts them again, into their own shard"
    KEEP = "keys do not decide the shard (AUTO record distribution)"
    KEEP_MISPLACED = "keys decide now, but did not when this record was put: its producer does not put it again"
    KEEP_UNCHECKED = "not known, the request failed: a duplicate is better than a lost record"


class RecordDistributionCheck:
    """Owns what is known about one stream. AUTO is never forgotten: records that were put at that time may still be read.

    The distribution can change while the stream is read. So a response "by key" holds only for records that were put
    before the request. For later records the request is sent again, at most every 10 s, and their shard waits for the
    response. A stream in provisioned mode is asked about again after one second. Its mode must be changed first, so
    this is rarely needed, and its shards hardly wait.
    """

    def __init__(self, port: DistributionPort, stream: str, retries: RetryPolicy, clock: Clock) -> None:
        self._port = port
        self._stream = stream
        self._retries = retries
        self._clock = clock
        self._request_lock = asyncio.Lock()
        self._requested_at = self._failed_at = -math.inf
        self._by_key_until_ms = -math.inf
        self._is_auto = self._is_switchable = False
        self._has_warned = False

    async def foreign_sub_records(self, arrival_ms: float, is_misplaced: bool = False) -> ForeignSubRecords:
        """Return what to do with foreign sub-records of a record that was just read, whose arrival is `arrival_ms`.

        If keys decide, a record goes to the shard of its own hash key, and only a reshard leaves some of its
        sub-records outside. So a misplaced record of a stream in on-demand mode was put under AUTO, before the stream
        was switched back. Streams in another mode are never switched.

        Raises: StreamNotFoundError if the stream does not exist.
        """
        found = await self._foreign_by_response(arrival_ms)
        return (
            ForeignSubRecords.KEEP_MISPLACED
            if is_misplaced and self._is_switchable and found is ForeignSubRecords.DROP
            else found
        )

    async def _foreign_by_response(self, arrival_ms: float) -> ForeignSubRecords:
        read_at = self._clock.monotonic()
        if self._is_known_by_key(read_at, arrival_ms):
            return ForeignSubRecords.DROP
        async with self._request_lock:
            if not self._is_auto and not self._has_failed_lately() and not self._is_known_by_key(read_at, arrival_ms):
                interval = MIN_INTERVAL_SECONDS if self._is_switchable else PROVISIONED_INTERVAL_SECONDS
                await asyncio.sleep(max(0.0, self._requested_at + interval - self._clock.monotonic()))
                await self._request()
        if self._is_auto:
            return ForeignSubRecords.KEEP
        return ForeignSubRecords.KEEP_UNCHECKED if self._has_failed_lately() else ForeignSubRecords.DROP

    def _is_known_by_key(self, read_at: float, arrival_ms: float) -> bool:
        if self._is_auto or self._has_failed_lately():
            return False
        return self._requested_at >= read_at or arrival_ms + ARRIVAL_TOLERANCE_MS <= self._by_key_until_ms

    def _has_failed_lately(self) -> bool:
        return self._clock.monotonic() < self._failed_at + FAILED_INTERVAL_SECONDS

    async def _request(self) -> None:
        requested_at = self._clock.monotonic()
        try:
            found = await call_with_retries(lambda: self._port.record_distribution(self._stream), self._retries)
        except (KinesisError, RetriesExhaustedError) as error:
            self._failed_at = self._clock.monotonic()
            self._warn_once(error)
            return
        self._requested_at, self._is_auto = requested_at, not found.by_key
        self._is_switchable = found.is_switchable
        if found.by_key and found.server_ms is not None:
            self._by_key_until_ms = found.server_ms

    def _warn_once(self, error: Exception) -> None:
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "cannot find out whether keys decide the shard of the records of %s, so sub-records with the key of another shard are "
                "kept, and some may be read twice: %s",
                self._stream,
                error,
                extra=about(self._stream),
            )


class RecordDistributionChecks:
    """Owns the check of each stream that a factory reads."""

    def __init__(self, retries: RetryPolicy, clock: Clock) -> None:
        self._retries = retries
        self._clock = clock
        self._checks: dict[str, RecordDistributionCheck] = {}

    def of(self, port: DistributionPort, stream: str) -> RecordDistributionCheck:
        """Return the check of a stream (name or ARN). All its shards share it."""
        if stream not in self._checks:
            self._checks[stream] = RecordDistributionCheck(port, stream, self._retries, self._clock)
        return self._checks[stream]
