"""Limits what the sink accepts: outstanding records and bytes, the writes that wait for room, and the largest record (K1, K3)."""

from __future__ import annotations

import asyncio
import logging
import math
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import ConfigurationError, FatalKinesisError
from recordpublisher.publishers.kinesis.ports import StreamSummary, WritingPort
from recordpublisher.publishers.retry import LINE_SECONDS, RetryPolicy, call_with_retries
from recordpublisher.publishers.service_limits import DEFAULT_RECORD_BYTES
from recordpublisher.publishers.user_code import describe_error, raised_line

from .records import PendingRecord
from .sink_settings import KinesisSinkCounters, QueueLimit, SinkStatistics

log = logging.getLogger(__name__)


OVERHEAD_BYTES = 220
"""Memory of a record in addition to data and key: 180 B with distinct keys (tracemalloc, CPython 3.11), rounded up."""


BYTES_PER_SHARD = 10_000_000
"""Default limit of unacknowledged bytes for each shard: about ten seconds of its throughput, as the reviewers of FLINK-9374 asked for."""


MAX_DEFAULT_BYTES = 128 * 2**20
"""Upper bound of the default limit, so that memory stays bounded with many shards."""


NO_LIMIT = 2**62


_HALVE_AFTER = 10_000
"""Number of records after which older ones count half, so that the mean follows a change of size."""


LONG_WAIT_SECONDS = 1.0
"""A write that waits longer is logged, as in Flink (after ten checks of 100 ms). All such writes share one line for each `LINE_SECONDS`."""


DEFAULT_SUMMARY = StreamSummary(DEFAULT_RECORD_BYTES, distributes_by_key=True)
"""The limits that are assumed if the credentials do not permit describing the stream."""


SECONDS_BETWEEN_LIMIT_READS = 1.0
"""Pause between two reads of the size limit, because an account has 20 DescribeStreamSummary calls a second.

A record that may be too large waits for the next read.
"""


class OutstandingRecords:
    """Owns the counts of outstanding records and bytes, by flush epoch, and their limits.

    A flush ends an epoch and waits until that epoch's records are complete. `add` runs once for each record and is kept cheap. Everything
    else is counted once for each result of PutRecords.
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
        """The measured values that a limit function receives."""
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
        """End the current epoch and begin the next. Return the epoch that ended."""
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

        If the limit function fails, the last limit is kept.

        Raises: the error of the first call of the limit function; ConfigurationError if it does not return a number of at least 1.
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
                # Later an error would end the sink, or lose count of the records that were just completed.
                if not self._has_warned:
                    where = "" if isinstance(error, ConfigurationError) else f", at {raised_line(error)}"
                    log.warning("queue_limit failed, and the last limit is kept: %s%s", describe_error(error), where)
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
        """Count records with `size` bytes in total."""
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
    lost (R3).
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
        - `prepare`: awaited first, while this write already has its place in the queue, so that no later write passes it.
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
        if now - self._warned < LINE_SECONDS:
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
    """Owns the largest size of a record of the stream.

    The size can be changed at any time, so it is read again before a record is refused.
    """

    def __init__(self, port: WritingPort, stream: str, retries: RetryPolicy, clock: Clock) -> None:
        self._port = port
        self._stream = stream
        self._retries = retries
        self._clock = clock
        self._read_at = -math.inf
        self._reading = asyncio.Lock()
        self.max_bytes = DEFAULT_SUMMARY.max_record_bytes
        """Largest size of data and key together (bytes)."""

    async def read(self) -> StreamSummary:
        """Read and return the stream's settings.

        Raises: StreamNotFoundError if there is no such stream, and errors that retries cannot fix.
        """
        began = self._clock.monotonic()
        summary = await call_with_retries(lambda: fetch_stream_summary(self._port, self._stream), self._retries)
        self.max_bytes, self._read_at = summary.max_record_bytes, began
        return summary

    async def read_after(self, given_at: float) -> None:
        """Return when the limit was read later than `given_at` (seconds of the clock). Read it if necessary, as soon as that is allowed.

        Raises: the errors of `read`.
        """
        async with self._reading:
            if self._read_at <= given_at:
                await asyncio.sleep(self._read_at + SECONDS_BETWEEN_LIMIT_READS - self._clock.monotonic())
                await self.read()


async def fetch_stream_summary(port: WritingPort, stream: str) -> StreamSummary:
    """Return the stream's limits. Without the permission kinesis:DescribeStreamSummary, which writers often lack, return the defaults."""
    try:
        return await port.stream_summary(stream)
    except FatalKinesisError:
        return DEFAULT_SUMMARY


def _checked(returned: object) -> int:
    try:
        limit = int(returned)  # type: ignore[call-overload]
    except (TypeError, ValueError, OverflowError):
        limit = 0
    if limit < 1:
        raise ConfigurationError("queue_limit", repr(returned), "a function that returns a number of at least 1")
    return int(limit)


# The rate at which records are sent to one shard: its limit, and the part of the limit that is used while other
# producers write to the shard too.

BURST_SECONDS = 0.25
"""One call sends a shard as much as it accepts in this time, and then pauses for the shard.

This makes few large calls instead of many small ones.
"""


MAX_CREDIT_SECONDS = 0.5
"""Unused time that the sink may catch up on, at most. The service allows one second; this time plus one burst stays below that."""


@dataclass(frozen=True, slots=True)
class ShardRateLimit:
    """Records and bytes per second that one shard may be sent: the service's limits times the property `RateLimit`.

    - `initial_fraction`: the part of the limit that is used first.
    - `longest_pause`: longest time in which a shard is sent nothing because of a low rate (seconds). A call that needs more time at the
      full rate is followed by a longer pause.
    """

    records_per_second: float
    bytes_per_second: float
    initial_fraction: float = 1.0
    longest_pause: float = 2.0

    def seconds_for(self, records: int, size: int) -> float:
        """Return how long the shard needs for this many records and bytes at its rate limit."""
        return max(records / self.records_per_second, size / self.bytes_per_second)


INCREASE = 0.032
"""Growth of the rate in a second, as a part of the rate limit."""


DECREASE = 2.1
"""Records per second by which one refused record lowers the rate.

Together with INCREASE it makes the rate stable when 1.5 % of the rate limit is refused (15 of 1,000 records/s), whatever the rate is.
"""


MAX_DECREASE = 0.5
"""The results of one call lower the rate at most to half."""


MIN_RATE = 0.001


UNCONTESTED_SECONDS = 5.0


UNCONTESTED_INCREASE = 0.1
"""Without a refusal for five seconds the rate grows by a tenth a second, since the other producers write less than before."""


FREQUENT_REFUSALS = 5.0
"""Number of refusing calls in the time in which the shard takes one second's worth of our records. Above it, refusals are frequent.

Producers that back off cause one to five such calls; one that does not back off causes nine (measured with boto3). Refusals as frequent as
these do not end when this sink slows down.
"""


REFUSALS_MEMORY = 3.0
"""Refusing calls are averaged over the records that the shard takes in three seconds."""


TOLERATED_SHARE = 0.05


FREQUENT_DECREASE = 1.2
"""Records per second by which a refused record lowers the rate while refusals are frequent.

The part TOLERATED_SHARE of the records sent may be refused without slowing down. Refusals above it count four sevenths (1.2 instead of
2.1).
"""


RARE_BURST = 0.025
"""Size of a call while refusals are rare, in seconds of the rate limit: 25 records."""


FREQUENT_BURST_SECONDS = 0.04
"""Time between calls while refusals are frequent. Other producers take little between two such calls."""


BURST_JITTER = 0.5
"""Each of these calls is up to this part smaller or larger.

Otherwise sinks with the same rate would always follow each other in the same order, and the last one would be refused most.
"""


class AdaptiveRate:
    """Adapts the rate at which one shard is sent records (`fraction`, a part of its rate limit) to refused records.

    The rate grows by the same amount every second, and each refused record lowers it by the same amount (the primal algorithm of Kelly,
    Maulloo and Tan, 1998: additive increase, a decrease by the price). So the rate is stable at a certain number of refusals per second.
    Sinks that share a shard have the same part of their records refused, so all of them come to the same rate.

    If refusals continue at any rate, they are random, or other producers do not back off. Then a small part of the records may be refused,
    and calls are small. Amounts of records are given in seconds that the shard needs for them at its rate limit.
    """

    def __init__(self, initial: float = 1.0) -> None:
        self.fraction = initial
        self._is_in_slow_start = True
        self._last_result_at: float | None = None
        self._last_refusal_at = float("-inf")
        self._refusing_calls = FREQUENT_REFUSALS  # so that the first refusals decide whether refusals are frequent

    @property
    def has_frequent_refusals(self) -> bool:
        """Whether calls are refused so often that slowing down does not help."""
        return self._refusing_calls > FREQUENT_REFUSALS

    def burst_seconds(self, now: float) -> float:
        """Return the time whose worth of records one call sends (seconds). It is random while the shard refuses records."""
        if self._is_uncontested(now):
            return BURST_SECONDS
        seconds = FREQUENT_BURST_SECONDS
        if not self.has_frequent_refusals:
            seconds = max(seconds, RARE_BURST / self.fraction)
        return min(BURST_SECONDS, seconds * random.uniform(1 - BURST_JITTER, 1 + BURST_JITTER))  # noqa: S311 - jitter

    def add_results(self, sent: float, refused: float, now: float) -> None:
        """Adapt the rate to the results of a call.

        - `sent`, `refused`: the records that were sent, and the part of them that the shard refused, both in seconds of the rate limit.
        """
        since_last = 0.0 if self._last_result_at is None else now - self._last_result_at
        self._last_result_at = now
        if refused:
            self._last_refusal_at = now
            self._is_in_slow_start = False
        if self._is_in_slow_start:
            self.fraction = min(1.0, 2 * self.fraction)
            return
        self._count_refusing_calls(sent, refused)
        change = self._increase(now) * since_last - self._decrease(sent, refused)
        self.fraction = min(1.0, max(MIN_RATE, MAX_DECREASE * self.fraction, self.fraction + change))

    def _is_uncontested(self, now: float) -> bool:
        return now - self._last_refusal_at >= UNCONTESTED_SECONDS

    def _count_refusing_calls(self, sent: float, refused: float) -> None:
        weight = min(1.0, sent / REFUSALS_MEMORY)
        self._refusing_calls += (refused > 0) / REFUSALS_MEMORY - weight * self._refusing_calls

    def _decrease(self, sent: float, refused: float) -> float:
        if self.has_frequent_refusals:
            return FREQUENT_DECREASE * (refused - TOLERATED_SHARE * sent)
        return DECREASE * refused

    def _increase(self, now: float) -> float:
        """Return the growth of the rate per second.

        The upper half of the rate limit is approached slowly, because a producer that backs off leaves that half free although it would use
        it.
        """
        steady = INCREASE * min(1.0, 2 * (1 - self.fraction))
        return max(steady, UNCONTESTED_INCREASE * self.fraction) if self._is_uncontested(now) else steady
