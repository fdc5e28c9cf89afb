"""Limits what the sink accepts: outstanding records and bytes, the writes that wait for room, and the largest record."""

from __future__ import annotations

import asyncio
import logging
import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import accumulate

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import ConfigurationError, FatalKinesisError
from recordpublisher.publishers.kinesis.ports import StreamSummary, WritingPort
from recordpublisher.publishers.retry import LOG_INTERVAL_SECONDS, RetryPolicy, call_with_retries
from recordpublisher.publishers.service_limits import DEFAULT_RECORD_BYTES
from recordpublisher.publishers.user_code import describe_error, raised_line

from .pending_records import PendingRecord
from .sink_settings import KinesisSinkCounters, QueueLimit, SinkStatistics

log = logging.getLogger(__name__)


OVERHEAD_BYTES = 220
"""Memory of a record in addition to data and key: 180 B with distinct keys (tracemalloc, CPython 3.11), rounded up."""


BYTES_PER_SHARD = 10_000_000
"""Default limit of unacknowledged bytes for each shard: about ten seconds of its throughput (see FLINK-9374)."""


MAX_DEFAULT_BYTES = 128 * 2**20
"""Upper bound of the default limit, so that memory stays bounded with many shards."""


NO_LIMIT = 2**62


_HALVE_AFTER = 10_000
"""Number of records after which older ones count half in `MeanSize`, so that the mean follows a change of size."""


LONG_WAIT_SECONDS = 1.0
"""A write that waits longer is logged, as in Flink (seconds). All such writes share one line in each `LOG_INTERVAL_SECONDS`.
"""


DEFAULT_SUMMARY = StreamSummary(DEFAULT_RECORD_BYTES, distributes_by_key=True)
"""The limits that are assumed if the credentials do not permit describing the stream."""


SECONDS_BETWEEN_LIMIT_READS = 1.0
"""Pause between two reads of the size limit, because an account has 20 DescribeStreamSummary calls a second.

A record that may be too large waits for the next read.
"""


class OutstandingRecords:
    """Counts the records and bytes that are not acknowledged (outstanding), and decides whether more may be accepted.

    Records are counted by epoch. A flush ends an epoch, and waits until all records of that epoch and of earlier ones are complete.
    """

    def __init__(self, limit: QueueLimit | None, limit_bytes: int | None) -> None:
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._mean = MeanSize()
        self._shards = 1
        self._has_warned = False
        self._ended_epochs: dict[int, int] = {}
        """Number of records that are still outstanding, by ended epoch, the oldest first."""
        self._in_ended_epochs = 0
        """The sum of `_ended_epochs`.

        It is kept, because in an outage each write ends an epoch, and summing them up each time would take long.
        """
        self.epoch = 0
        self.records = 0
        self.bytes = 0
        self.max_records = NO_LIMIT
        self.max_bytes = NO_LIMIT
        self.update_limits(1)

    @property
    def statistics(self) -> SinkStatistics:
        """The measured values that are passed to the user's function `queue_limit`."""
        records, size = self.records, self.bytes  # Each is read once, because other threads measure a Producer.
        waiting = size / records - OVERHEAD_BYTES if records else 0.0
        return SinkStatistics(self._mean.value or waiting, self._shards, records, size)

    def has_capacity(self, size: int) -> bool:
        """Return whether a record of `size` bytes may be accepted.

        A record that is larger than the limit may be accepted if no other record is outstanding.
        """
        if self.records == 0:
            return True
        return self.records < self.max_records and self.bytes + size + OVERHEAD_BYTES <= self.max_bytes

    def fitting(self, records: Sequence[PendingRecord]) -> int:
        """Return how many records from the front of `records` may be accepted."""
        room = min(len(records), self.max_records - self.records)
        needed = [record.size + OVERHEAD_BYTES for record in records[: max(room, 0)]]
        if sum(needed) > self.max_bytes - self.bytes:
            room = bisect_right(list(accumulate(needed)), self.max_bytes - self.bytes)
        return max(room, 1 if self.records == 0 else 0)

    def add_all(self, records: Sequence[PendingRecord]) -> None:
        """Count accepted records."""
        for record in records:
            record.epoch = self.epoch
        self.records += len(records)
        self.bytes += sum([record.size for record in records]) + OVERHEAD_BYTES * len(records)

    def add(self, record: PendingRecord) -> None:
        """Count an accepted record."""
        record.epoch = self.epoch
        self.records += 1
        self.bytes += record.size + OVERHEAD_BYTES

    def complete(self, done: Sequence[PendingRecord]) -> tuple[int, int]:
        """Remove user records that were acknowledged or given up. Return their number, and their bytes of data and key."""
        records, size = len(done), sum([one.size for one in done])
        if self._ended_epochs:
            self._complete_in_ended_epochs(done)
        self.records -= records
        self.bytes -= size + OVERHEAD_BYTES * records
        self._mean.add(records, size)
        self.update_limits(self._shards)
        return records, size

    def end_epoch(self) -> int:
        """End the current epoch (the records accepted since the last call), and return its number. Later records are in the next epoch."""
        ended, self.epoch = self.epoch, self.epoch + 1
        count = self.records - self._in_ended_epochs
        if count:
            self._ended_epochs[ended] = count
            self._in_ended_epochs = self.records
        return ended

    def left_of(self, epoch: int) -> int:
        """Return how many records of an ended epoch are outstanding."""
        return self._ended_epochs.get(epoch, 0)

    def is_complete(self, epoch: int) -> bool:
        """Return whether every record up to this ended epoch was acknowledged or given up."""
        return next(iter(self._ended_epochs), epoch + 1) > epoch

    def update_limits(self, shards: int) -> None:
        """Compute the limits for this number of shards.

        If the user's function `queue_limit` fails, the last limit is kept.

        Raises: the error of the first call of `queue_limit`; ConfigurationError if it does not return a number of at least 1.
        """
        self._shards = shards
        default = min(MAX_DEFAULT_BYTES, BYTES_PER_SHARD * shards)
        self.max_bytes = default if self._limit_bytes is None else self._limit_bytes
        if callable(self._limit):
            try:
                self.max_records = _checked(self._limit(self.statistics))
            except Exception as error:
                if self.max_records == NO_LIMIT:  # the first call, when the sink is made
                    raise
                # Not raised later, because the error would end the sink in the middle of counting completed records.
                if not self._has_warned:
                    where = "" if isinstance(error, ConfigurationError) else f", at {raised_line(error)}"
                    log.warning(
                        "the function `queue_limit` failed, so the last limit is kept: %s%s",
                        describe_error(error),
                        where,
                    )
                self._has_warned = True
        elif self._limit is not None:
            self.max_records = self._limit

    def _complete_in_ended_epochs(self, done: Sequence[PendingRecord]) -> None:
        for epoch, count in Counter([one.epoch for one in done]).items():
            if epoch in self._ended_epochs:
                self._ended_epochs[epoch] -= count
                self._in_ended_epochs -= count
                if not self._ended_epochs[epoch]:
                    del self._ended_epochs[epoch]


class MeanSize:
    """The mean size of recently completed records."""

    def __init__(self) -> None:
        self._records = 0
        self._bytes = 0

    def add(self, records: int, size: int) -> None:
        """Count `records` records that have `size` bytes in total."""
        if self._records >= _HALVE_AFTER:
            self._records //= 2
            self._bytes //= 2
        self._records += records
        self._bytes += size

    @property
    def value(self) -> float:
        """Mean bytes of a record; 0 before the first record."""
        return self._bytes / self._records if self._records else 0.0


class FifoWaiters:
    """The writes that wait at the limit, served in the order of their arrival.

    A completed record wakes the first write. A write that leaves the queue, served or cancelled, wakes the next one, so no notification is
    lost.
    """

    def __init__(self, clock: Clock, check_interval_seconds: float, metrics: KinesisSinkCounters) -> None:
        self._clock = clock
        self._check_interval_seconds = check_interval_seconds
        self._metrics = metrics
        self.waiting: list[Notifier] = []
        """The waiters in order; the first one is served first."""
        self._warned = float("-inf")

    def __len__(self) -> int:
        return len(self.waiting)

    def notify_first(self) -> None:
        """Let the first waiter check for capacity."""
        if self.waiting:
            self.waiting[0].notify_all()

    async def wait_until(
        self,
        has_capacity: Callable[[], bool],
        describe: Callable[[], str],
        prepare: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Return when there is capacity and no earlier waiter is left. Each failed check counts as a back-pressure cycle.

        - `describe`: returns the text about the limits for the warning.
        - `prepare`: awaited first, when this write already has its place in the queue, so that no later write passes it.
        """
        began, has_warned, me = self._clock.monotonic(), False, Notifier()
        self.waiting.append(me)
        try:
            if prepare is not None:
                await prepare()
            while self.waiting[0] is not me or not has_capacity():
                self._metrics.add("backpressureCycles")
                await me.wait(self._check_interval_seconds)
                waited = self._clock.monotonic() - began
                if waited > LONG_WAIT_SECONDS and not has_warned and self.waiting[0] is me and not has_capacity():
                    has_warned = True
                    self._warn(waited, describe)
        finally:
            self.waiting.remove(me)
            self.notify_first()

    def _warn(self, waited: float, describe: Callable[[], str]) -> None:
        """Warn of all waiting writes together, once a minute, because in an outage each request of a server may be such a write."""
        now = self._clock.monotonic()
        if now - self._warned < LOG_INTERVAL_SECONDS:
            return
        self._warned = now
        others = f", and {len(self) - 1} more after it" if len(self) > 1 else ""
        log.warning(
            "a write has been waiting for %.1f s because too many records are not acknowledged%s: %s",
            waited,
            others,
            describe(),
        )


class Notifier:
    """Wakes all tasks that wait for it; each checks its own condition again."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify_all(self) -> None:
        """Wake every waiting task."""
        self._event.set()
        self._event.clear()

    async def wait(self, timeout_seconds: float | None = None) -> None:
        """Return at the next notification, or after the timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_seconds):
                await self._event.wait()


class RecordLimit:
    """Keeps the size limit of the stream's records. A user can raise the limit, so it is read again before a record is refused."""

    def __init__(self, port: WritingPort, stream: str, retries: RetryPolicy, clock: Clock) -> None:
        self._port = port
        self._stream = stream
        self._retries = retries
        self._clock = clock
        self._read_at = -math.inf
        self._reading = asyncio.Lock()
        self._known = DEFAULT_SUMMARY
        self.max_bytes = DEFAULT_SUMMARY.max_record_bytes
        """Largest size of data and key together (bytes)."""

    async def read(self) -> StreamSummary:
        """Read and return the stream's settings. If the credentials do not permit that, the settings that were read before stay valid.

        Raises: StreamNotFoundError if there is no such stream, and errors that retries cannot fix.
        """
        began = self._clock.monotonic()
        found = await call_with_retries(
            lambda: fetch_stream_summary(self._port, self._stream, self._known), self._retries
        )
        self._known, self.max_bytes, self._read_at = found, found.max_record_bytes, began
        return found

    async def read_after(self, given_at: float) -> None:
        """Read the limit, if the last read was not after `given_at` (seconds of the clock), the time of the `put` of a record.

        Wait first if the last read is less than `SECONDS_BETWEEN_LIMIT_READS` ago.

        Raises: the errors of `read`.
        """
        async with self._reading:
            if self._read_at <= given_at:
                await asyncio.sleep(self._read_at + SECONDS_BETWEEN_LIMIT_READS - self._clock.monotonic())
                await self.read()


async def fetch_stream_summary(port: WritingPort, stream: str, known: StreamSummary = DEFAULT_SUMMARY) -> StreamSummary:
    """Return the stream's limits. Without the permission kinesis:DescribeStreamSummary, which writers often lack, return `known`."""
    try:
        return await port.stream_summary(stream)
    except FatalKinesisError:
        return known


def _checked(returned: object) -> int:
    try:
        limit = int(returned)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        limit = 0
    if limit < 1:
        raise ConfigurationError("queue_limit", returned, "a function that returns a number of at least 1")
    return int(limit)
