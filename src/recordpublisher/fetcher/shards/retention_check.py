"""Finds out whether records after a position expired before they were read (S5)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Any

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.log_fields import log_extra
from recordpublisher.publishers.positions import SequenceNumber
from recordpublisher.publishers.shards import OldestRecord, Shard

from .read_state import latest
from .shard_state import ShardState

log = logging.getLogger("recordpublisher.fetcher")

SHORTEST_RETENTION_MS = 24 * 3_600_000
"""The shortest retention that a stream can have (service limit, ms)."""
CLOCK_ERROR_MS = 3_600_000
"""If this machine's clock differs from the service's by at most this (ms), no loss of records is overlooked."""
CACHE_SECONDS = 300.0
"""How long a stream's retention is cached (seconds). It can be changed at any time."""
STILL_THERE_SECONDS = 10.0
"""How long a record that is past retention counts as still there after it was seen (seconds). The service may drop it at any time."""
HOLE_MS = 60_000
"""If more time than this (ms) lies between what was read last and the next record, the stream's retention is requested again. It may have
been shortened.
"""
PARALLEL_CHECKS = 8
UNKNOWN_MS = 0
"""Arrival time that stands for an unknown one, for example in a position from the KCL. The shard's oldest record is then always
requested.
"""
SERVICE_TIME_STEP_MS = 1_000
"""Resolution of the service's times (ms). They are cut to whole seconds."""


class RetentionCheck:
    """Finds out from the service whether records after a position expired unread.

    It keeps what the service last said about the retention of each stream, and about the oldest record of each shard that lags.

    - `oldest_retained`: returns the arrival time (epoch ms) before which a stream has dropped its records, or None if unknown.
    - `oldest_record`: returns the oldest record of a shard, or None if the source does not report it.
    - `order_of`: a sort key for sequence numbers.
    """

    def __init__(
        self,
        oldest_retained: Callable[[str], Awaitable[int | None]],
        oldest_record: Callable[[Shard], Awaitable[OldestRecord | None]],
        order_of: Callable[[str], Any],
        clock: Clock,
    ) -> None:
        self._oldest_retained = oldest_retained
        self._oldest_record = oldest_record
        self._order_of = order_of
        self._clock = clock
        self._retained: dict[str, _CachedTime] = {}
        self._still_there: dict[str, _CachedTime] = {}
        self._slots = asyncio.Semaphore(PARALLEL_CHECKS)

    async def oldest_retained_ms(self, stream: str, cache_seconds: float = CACHE_SECONDS) -> int | None:
        """Return the arrival time before which the stream has dropped its records (epoch ms), or None if unknown.

        `cache_seconds`: an answer of the service that is older than this is requested again.
        """
        now_ms = self._clock.now_ms()
        cached = self._retained.get(stream)
        if cached is None or not cached.is_fresh(now_ms, cache_seconds):
            try:
                cached = _CachedTime(await self._oldest_retained(stream), now_ms)
            except RecordPublisherError as error:
                log.warning(
                    "the retention period of stream %s cannot be read; the job requests it again later: %s",
                    stream,
                    error,
                    extra=log_extra(stream),
                )
                cached = _CachedTime(None, now_ms)
            self._retained[stream] = cached
        return cached.as_of(now_ms)

    async def gap_after(
        self, shard: Shard, position: SequenceNumber | None, seen_ms: int, next_ms: int | None = None
    ) -> RetentionGap:
        """Return whether records after `position` were lost. None stands for the shard's beginning.

        - `seen_ms`: the arrival of the last record read, or the time of the last read at the tip, whichever is later (epoch ms).
        - `next_ms`: when the next record that a read found arrived, or the time of the read if it found none; None before a read.

        Records are lost if both of these are true:

        - The position is older than the retention period, or its age is unknown.
        - The oldest record of the shard comes after the position. A shard without records proves nothing, because records may have arrived
          and expired.
        """
        async with self._slots:
            if await self._is_retained(shard, seen_ms, next_ms):
                return RetentionGap.NONE
            try:
                oldest = await self._oldest_record(shard)
            except RecordPublisherError as error:
                log.warning(
                    "the oldest record of shard %s cannot be read, so a loss of records may not be noticed: %s",
                    shard.key,
                    error,
                    extra=log_extra(shard.key),
                )
                return RetentionGap.NOT_CHECKED
        if oldest is None:
            return RetentionGap.NONE
        if oldest.sequence is None:
            return RetentionGap.NOT_CHECKED
        if position is not None and self._order_of(oldest.sequence) <= self._order_of(position.sequence):
            self._still_there[shard.key] = _CachedTime(oldest.arrival_ms, self._clock.now_ms())
            return RetentionGap.NONE
        return RetentionGap.LOST

    async def _is_retained(self, shard: Shard, seen_ms: int, next_ms: int | None) -> bool:
        """Return whether it is certain that every record that arrived at `seen_ms` or later is still retained.

        The cached answers of the service decide. Without an answer about the stream's retention, the shortest retention that a stream can
        have is assumed. If `next_ms` is more than `HOLE_MS` after `seen_ms`, the retention may have been shortened, so an answer about it
        that is older than `STILL_THERE_SECONDS` is requested again. `gap_after` describes `seen_ms` and `next_ms`.
        """
        has_hole = next_ms is not None and next_ms - seen_ms > HOLE_MS
        cache_seconds = STILL_THERE_SECONDS if has_hole else CACHE_SECONDS
        now_ms, oldest_ms = self._clock.now_ms(), await self.oldest_retained_ms(shard.stream, cache_seconds)
        sure_ms = now_ms - SHORTEST_RETENTION_MS if oldest_ms is None else oldest_ms + SERVICE_TIME_STEP_MS
        if seen_ms >= sure_ms:
            return True
        # A record of that age still existed a moment ago. This saves a call for each read of a reader that is just ahead of the
        # retention.
        seconds = CACHE_SECONDS if oldest_ms is None else STILL_THERE_SECONDS
        seen = self._still_there.get(shard.key)
        known_ms = seen.as_of(now_ms) if seen is not None and seen.is_fresh(now_ms, seconds) else None
        return known_ms is not None and seen_ms >= known_ms


class RetentionGap(Enum):
    """Whether records after a position were lost."""

    NONE = "nothing was lost"
    LOST = "the records after the position are gone, later ones are there"
    NOT_CHECKED = "it is not known: the shard has no records now, or its oldest record cannot be read"


def may_have_gap(seen_ms: int | None, now_ms: int) -> bool:
    """Return whether a position is so old that records after it may have expired. The service is not called.

    `seen_ms` is the arrival of the last record read, or the time of the last read at the shard's tip, whichever is later (epoch ms).
    """
    return seen_ms is not None and seen_ms < now_ms - SHORTEST_RETENTION_MS + CLOCK_ERROR_MS


def time_to_loss_ms(state: ShardState, retention_ms: int | None, now_ms: int) -> int | None:
    """Return the time left (ms) until a record after this state may be past retention. None if it is unknown, or if the shard has ended.

    The retention counts from the latest of these times, or else from the time at which the shard starts:

    - The last emitted record arrived.
    - A read was last at the tip.
    - The parents of an unread child were last known to be open.
    """
    seen_ms = latest(state.arrival_ms, state.tip_ms, state.seen_ms)
    safe_until = state.start.timestamp_ms if seen_ms is None else seen_ms
    if retention_ms is None or safe_until is None or state.ended:
        return None
    return safe_until + retention_ms - now_ms


class _CachedTime:
    """A time that the service reported and that advances with the clock, such as the beginning of the retention period."""

    def __init__(self, value_ms: int | None, at_ms: int) -> None:
        self._value_ms = value_ms
        self._at_ms = at_ms

    def is_fresh(self, now_ms: int, seconds: float = CACHE_SECONDS) -> bool:
        return 0 <= now_ms - self._at_ms < seconds * 1000

    def as_of(self, now_ms: int) -> int | None:
        return None if self._value_ms is None else self._value_ms + now_ms - self._at_ms
