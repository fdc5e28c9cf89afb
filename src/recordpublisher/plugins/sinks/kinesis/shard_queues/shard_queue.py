"""Holds the records that wait for one shard, and decides when they may be sent and how many."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from recordpublisher.publishers.shards import HashRange, Shard

from ..adaptive_rate import BURST_SECONDS, MAX_CREDIT_SECONDS, AdaptiveRate, ShardRateLimit
from ..pending_record import PendingRecord
from .kpl_aggregator import KplAggregator

ALREADY_DUE = float("-inf")
RecordsAndBytes = tuple[list[PendingRecord], int]
"""Kinesis records and their total bytes."""


class ShardQueue:
    """Owns one shard's queue, its records in flight, its rate and the time of its next send."""

    def __init__(self, shard: Shard, rate_limit: ShardRateLimit) -> None:
        self.shard = shard
        self.rate_limit = rate_limit
        self.known_shards: Mapping[str, HashRange] | None = None
        """The listed shards, each of which may take a record, if keys do not decide the shard. If None, only `shard` may take a record."""
        self.rate = AdaptiveRate(rate_limit.initial_fraction)
        self.records: deque[PendingRecord] = deque()
        self.queued_bytes = 0
        self.in_flight = 0
        self.next_send_at = 0.0
        """No record is sent before this time (seconds of the clock), because of the rate limit or a backoff."""
        self._in_flight_seconds = 0.0
        """The time the shard needs for the calls in flight at its rate limit."""
        self._burst_limit_seconds = self.rate.fraction * BURST_SECONDS
        """One call sends as much as the shard takes in this time at its rate limit."""
        self.waiting_since = 0.0
        """When the oldest queued record began to linger."""
        self.consecutive_failures = 0
        """Calls in a row from which the shard took nothing."""

    @property
    def may_send(self) -> bool:
        """Whether the calls in flight leave room for another call."""
        return self._in_flight_seconds <= MAX_CREDIT_SECONDS

    @property
    def burst_records(self) -> int:
        """Number of Kinesis records that one call may carry: a quarter second's worth, or less while the shard refuses records."""
        return max(1, int(self.rate_limit.records_per_second * self._burst_limit_seconds))

    @property
    def burst_bytes(self) -> int:
        """Bytes that one call may carry; a larger record goes alone."""
        return int(self.rate_limit.bytes_per_second * self._burst_limit_seconds)

    def add(self, record: PendingRecord, now: float) -> None:
        """Queue a record."""
        if not self.records:
            self.waiting_since = now
        self.records.append(record)
        self.queued_bytes += record.size

    def add_all(self, records: Sequence[PendingRecord], now: float) -> None:
        """Queue records, in order."""
        if not self.records:
            self.waiting_since = now
        self.records.extend(records)
        self.queued_bytes += sum([record.size for record in records])

    def put_back(self, records: Iterable[PendingRecord]) -> None:
        """Queue records again, before all other records and in their order."""
        for record in reversed(list(records)):
            self.records.appendleft(record)
            self.queued_bytes += record.size
        self.mark_due()

    def mark_due(self) -> None:
        """Let the queued records be sent in the next call, without further linger."""
        self.waiting_since = ALREADY_DUE

    def drain(self) -> list[PendingRecord]:
        """Remove and return all queued records."""
        waiting = list(self.records)
        self.records.clear()
        self.queued_bytes = 0
        return waiting

    @property
    def sendable_estimate(self) -> int:
        """Number of Kinesis records that could be sent now (estimate)."""
        return min(len(self.records), self.burst_records)

    @property
    def sendable_bytes(self) -> int:
        """Bytes that could be sent now (estimate)."""
        return min(self.queued_bytes, self.burst_bytes)

    def take(self, max_records: int, max_bytes: int, *, is_due: bool) -> RecordsAndBytes:
        """Remove and return Kinesis records up to the limits. A record larger than `max_bytes` is taken alone.

        - `is_due`: whether the linger has passed, so that aggregates are sent even if they are not full.
        """
        max_records = min(max_records, self.burst_records)
        max_bytes = min(max_bytes, self.burst_bytes)
        taken: list[PendingRecord] = []
        size = 0
        queued = self.records
        while queued and len(taken) < max_records and (not taken or size + queued[0].size <= max_bytes):
            record = queued.popleft()
            taken.append(record)
            size += record.size
        self.queued_bytes -= size
        return taken, size

    def mark_sent(self, taken: RecordsAndBytes, now: float) -> float:
        """Count records as in flight. Return the seconds that the shard needs for them at its rate limit.

        The records that are still queued begin a new linger, unless they are enough for a call and only the limits held them back.
        """
        records, size = len(taken[0]), taken[1]
        seconds = self.rate_limit.seconds_for(records, size)
        self._limit_credit(now)
        # Without a bound, a large record that is refused would double the pause at each try, because only results raise the rate.
        self.next_send_at += min(seconds / self.rate.fraction, max(seconds, self.rate_limit.longest_pause))
        self._in_flight_seconds += seconds
        self.in_flight += records
        if not self.has_full_record:
            self.waiting_since = now
        return seconds

    def mark_completed(self, records: int, seconds: float, now: float) -> None:
        """Count records of an ended call as no longer in flight."""
        self._limit_credit(now)
        self.in_flight -= records
        self._in_flight_seconds = self._in_flight_seconds - seconds if self.in_flight else 0.0  # drops rounding errors

    def adapt_rate(self, seconds: float, refused_share: float, now: float) -> None:
        """Adapt the rate, and the size of calls, to the results of a call.

        - `seconds`: the value that `mark_sent` returned for the call.
        - `refused_share`: the part of its records that was throttled.
        """
        self.rate.add_results(seconds, seconds * refused_share, now)
        self._burst_limit_seconds = self.rate.fraction * self.rate.burst_seconds(now)

    def _limit_credit(self, now: float) -> None:
        """Let unused time count as MAX_CREDIT_SECONDS at most, and as less while calls are in flight.

        Delayed calls may all reach the shard now. Together with the sends for the time since, they would exceed the shard's limit although
        each was sent at the allowed rate.
        """
        self.next_send_at = max(self.next_send_at, now - MAX_CREDIT_SECONDS + self._in_flight_seconds)

    @property
    def has_full_record(self) -> bool:
        """Whether at least one Kinesis record can be sent without waiting for more user records."""
        return bool(self.records)


class AggregatingShardQueue(ShardQueue):
    """A queue whose user records are sent as aggregates: full ones at once, and the rest when the linger has passed (K1)."""

    def __init__(self, shard: Shard, rate_limit: ShardRateLimit, aggregator: KplAggregator) -> None:
        super().__init__(shard, rate_limit)
        self._aggregator = aggregator

    @property
    def sendable_estimate(self) -> int:
        """Number of Kinesis records that could be sent now (estimate)."""
        return min(self._full_aggregates, super().sendable_estimate)

    @property
    def sendable_bytes(self) -> int:
        """Bytes that could be sent now (estimate). Records that do not fill an aggregate wait for the linger, so they do not count."""
        return min(self._full_aggregates * self._aggregator.max_bytes, super().sendable_bytes)

    @property
    def has_full_record(self) -> bool:
        """Whether the queued records fill an aggregate."""
        return self._full_aggregates > 0

    @property
    def _full_aggregates(self) -> int:
        return self.queued_bytes // self._aggregator.max_bytes + len(self.records) // self._aggregator.max_records

    def take(self, max_records: int, max_bytes: int, *, is_due: bool) -> RecordsAndBytes:
        """Remove user records and return them as Kinesis records up to the limits. Take partly filled aggregates only if `is_due`."""
        max_records = min(max_records, self.burst_records)
        max_bytes = min(max_bytes, self.burst_bytes)
        taken: list[PendingRecord] = []
        size = 0
        while self.records and len(taken) < max_records and (is_due or self.has_full_record):
            if taken and size + min(self.queued_bytes, self._aggregator.max_bytes) > max_bytes:
                break
            parts = self._aggregator.take_parts(self.records, self._aggregator.max_bytes)
            self.queued_bytes -= sum([part.size for part in parts])
            taken.append(self._aggregator.aggregate(parts))
            size += taken[-1].size
        return taken, size
