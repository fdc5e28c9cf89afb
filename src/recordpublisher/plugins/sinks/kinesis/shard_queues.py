"""Queues each record for the shard that takes it: the map of the shards, their queues and aggregates, and new listings."""

from __future__ import annotations

import asyncio
import logging
import math
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from recordpublisher.publishers.aggregation.kpl_format import encode_aggregate
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import (
    FatalKinesisError,
    ImpossibleStateError,
    RetriesExhaustedError,
    TransientError,
)
from recordpublisher.publishers.kinesis.ports import WritingPort
from recordpublisher.publishers.retry import RetryPolicy, call_with_retries
from recordpublisher.publishers.shards import HashRange, Shard, first_unlisted_range

from .outstanding_records import Notifier
from .pending_records import PendingRecord, size_of
from .shard_rate import BURST_SECONDS, MAX_CREDIT_SECONDS, AdaptiveRate, ShardRateLimit
from .sink_settings import KinesisSinkCounters

log = logging.getLogger(__name__)
ANY_SHARD = "any shard"
"""Id of the only queue of a stream with AUTO record distribution, if records are not aggregated.

In such a stream the key of a record does not decide its shard.
"""
_MAX_CACHED_KEYS = 65_536
"""Most keys whose queue is cached. Hashing a key costs more than everything else that is done for a record."""
ALREADY_DUE = float("-inf")
RecordsAndBytes = tuple[list[PendingRecord], int]
"""Kinesis records and their total bytes."""
MIN_REFRESH_INTERVAL_SECONDS = 0.5
"""Least time between two listings (seconds), because a reshard closes shards one by one."""
PERIODIC_REFRESH_SECONDS = 60.0
"""Time between two listings of a stream with AUTO record distribution.

Any shard may take a record there, so no result would show that the stream was switched back to keys.
"""
MIN_DESCRIBE_INTERVAL_SECONDS = 10.0
"""Pause between two requests for the record distribution, because an account has 20 DescribeStreamSummary calls a second."""
UNLISTED_SECONDS = 30.0
"""How long an aggregate waits until ListShards, which is eventually consistent, shows the shard that took it (seconds).

If each listing without this shard caused another put of the aggregate, readers would get a copy of its records each time.
"""
MisroutedRecord = tuple[PendingRecord, str]
"""An acknowledged record and the shard that took it, which is not the expected one."""
_PART_OVERHEAD = 12
"""Bytes of a user record in an aggregate, in addition to its data: two tags with lengths of up to three bytes, and an index."""
_KEY_OVERHEAD = 3
"""Bytes of a key in the key table of an aggregate, in addition to the key itself."""
_HASH_KEY_BYTES = 39 + _KEY_OVERHEAD + 4
"""Bytes of an explicit hash key in the table of an aggregate, and of the index that points to it."""
_FRAME = 20
"""Bytes of an aggregate's magic number and digest."""


class ShardQueues:
    """The queues of all shards, and the current shard map."""

    def __init__(self, shard_map: ShardMap, rate_limit: ShardRateLimit, aggregator: KplAggregator | None) -> None:
        self._rate_limit = rate_limit
        self._aggregator = aggregator
        self._queues: dict[str, TargetShardQueue] = {}
        self._by_key: dict[str, TargetShardQueue] = {}
        self.update(shard_map, 0.0)

    def __iter__(self) -> Iterator[TargetShardQueue]:
        return iter(self._queues.values())

    def __contains__(self, queue: TargetShardQueue) -> bool:
        return self._queues.get(queue.shard.shard_id) is queue

    def update(self, shard_map: ShardMap, now: float) -> None:
        """Apply a newer shard map. Records that are queued for a closed shard move to its children, in order."""
        self.map = shard_map
        before, self._queues = self._queues, {}
        self._by_key.clear()
        for shard in shard_map.shards:
            queue = before.pop(shard.shard_id) if shard.shard_id in before else self._new_queue(shard)
            queue.rate_limit = self._rate_limit_of(shard)
            queue.known_shards = None if shard_map.keys_decide else shard_map.ranges
            self._queues[shard.shard_id] = queue
        for closed in before.values():
            self.requeue([part for record in closed.drain() for part in split_aggregate(record)], now)

    def requeue(self, records: Iterable[PendingRecord], now: float) -> None:
        """Queue records that have waited before. They are sent in the next calls."""
        for record in records:
            queue = self.queue_for(record)
            queue.add(record, now)
            queue.mark_due()

    def queue_for(self, record: PendingRecord) -> TargetShardQueue:
        """Return the queue of the shard that takes this record, by the current map."""
        if record.explicit_hash_key is not None:
            return self._queues[self.map.shard_of(record.hash_key).shard_id]
        key = record.partition_key
        queue = self._by_key.get(key)
        if queue is None:
            queue = self._queues[self.map.shard_of(record.hash_key).shard_id]
            if len(self._by_key) >= _MAX_CACHED_KEYS:
                self._by_key.clear()
            self._by_key[key] = queue
        return queue

    def by_queue(self, records: Sequence[PendingRecord]) -> Iterable[tuple[TargetShardQueue, Sequence[PendingRecord]]]:
        """Return each queue with the records that go into it, in order."""
        if len(self._queues) == 1:
            return [(next(iter(self)), records)]
        found: dict[TargetShardQueue, list[PendingRecord]] = {}
        for record in records:
            found.setdefault(self.queue_for(record), []).append(record)
        return found.items()

    def mark_all_due(self) -> None:
        """Let all queued records be sent in the next calls."""
        for queue in self:
            queue.mark_due()

    def _new_queue(self, shard: Shard) -> TargetShardQueue:
        rate_limit = self._rate_limit_of(shard)
        if self._aggregator is None:
            return TargetShardQueue(shard, rate_limit)
        return AggregatingShardQueue(shard, rate_limit, self._aggregator)

    def _rate_limit_of(self, shard: Shard) -> ShardRateLimit:
        # ANY_SHARD represents all open shards of the stream, so it gets the sum of their limits.
        shards = self.map.open_count if shard.shard_id == ANY_SHARD else 1
        limit = self._rate_limit
        records, size = limit.records_per_second * shards, limit.bytes_per_second * shards
        return replace(limit, records_per_second=records, bytes_per_second=size)


class TargetShardQueue:
    """The queue of one shard, with its records in flight, its rate and the time of its next send.

    The linger is the time for which a queued record waits, so that later records share its call.
    """

    def __init__(self, shard: Shard, rate_limit: ShardRateLimit) -> None:
        self.shard = shard
        self.rate_limit = rate_limit
        self.known_shards: Mapping[str, HashRange] | None = None
        """The listed shards, if the stream has AUTO record distribution: each may take a record. Otherwise None: only `shard` may."""
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
        """Since when the oldest queued record waits for later records (seconds of the clock)."""
        self.consecutive_failures = 0
        """Number of calls in a row of which the shard took no record."""

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
        """Bytes that one call may carry. A larger record is sent alone."""
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

    def remove_while(self, is_removed: Callable[[PendingRecord], bool], most: int) -> list[PendingRecord]:
        """Remove and return the first queued records for which `is_removed` is true, at most `most` records."""
        removed = removed_while(self.records, is_removed, most)
        self.queued_bytes -= sum([record.size for record in removed])
        return removed

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

        - `is_due`: whether records have waited long enough (the linger). Then aggregates are taken even if they are not full.
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

        The waiting time (linger) of the records that are still queued begins now, unless they already fill a Kinesis record.
        """
        records, size = len(taken[0]), taken[1]
        seconds = self.rate_limit.seconds_for(records, size)
        self._limit_credit(now)
        # The pause is bounded, because only results raise the rate: a large record that is refused would otherwise double the pause at
        # each try.
        self.next_send_at += min(seconds / self.rate.fraction, max(seconds, self.rate_limit.longest_pause))
        self._in_flight_seconds += seconds
        self.in_flight += records
        if not self.has_full_record:
            self.waiting_since = now
        return seconds

    def mark_completed(self, records: int, seconds: float, now: float) -> None:
        """Count records of an ended call as no longer in flight. `seconds`: the value that `mark_sent` returned for them."""
        self._limit_credit(now)
        self.in_flight -= records
        self._in_flight_seconds = self._in_flight_seconds - seconds if self.in_flight else 0.0  # drops rounding errors

    def adapt_rate(self, seconds: float, refused_share: float, now: float) -> None:
        """Adapt the rate, and the size of calls, to the results of a call.

        - `seconds`: the value that `mark_sent` returned for the call.
        - `refused_share`: the part of the call's records that was throttled.
        """
        self.rate.add_results(seconds, seconds * refused_share, now)
        self._burst_limit_seconds = self.rate.fraction * self.rate.burst_seconds(now)

    def _limit_credit(self, now: float) -> None:
        """Limit the unused time that later calls may catch up on: MAX_CREDIT_SECONDS, minus the seconds of the calls in flight.

        A delayed call in flight may reach the shard together with new calls. All of them must fit into the shard's limit.
        """
        self.next_send_at = max(self.next_send_at, now - MAX_CREDIT_SECONDS + self._in_flight_seconds)

    @property
    def has_full_record(self) -> bool:
        """Whether at least one Kinesis record can be sent without waiting for more user records."""
        return bool(self.records)


class AggregatingShardQueue(TargetShardQueue):
    """A queue whose user records are sent as aggregates. Full aggregates are sent at once, the last one after a short wait (the linger)."""

    def __init__(self, shard: Shard, rate_limit: ShardRateLimit, aggregator: KplAggregator) -> None:
        super().__init__(shard, rate_limit)
        self._aggregator = aggregator

    @property
    def sendable_estimate(self) -> int:
        """Number of Kinesis records that could be sent now (estimate)."""
        return min(self._full_aggregates, super().sendable_estimate)

    @property
    def sendable_bytes(self) -> int:
        """Bytes that could be sent now (estimate). Records that do not fill an aggregate wait for later records, so they do not count."""
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


class KplAggregator:
    """Makes Kinesis records of at most `max_records` user records and `max_bytes` bytes.

    An aggregate carries the partition key and the hash key of its first part, so it is stored in the shard of all its parts.
    """

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self.max_records = max_records
        self.max_bytes = max_bytes

    def take_parts(
        self, queue: deque[PendingRecord], max_bytes: int, *, of_one_key: bool = False
    ) -> list[PendingRecord]:
        """Remove the user records of the next Kinesis record from a queue. An existing aggregate, or a large record, is taken alone.

        - `of_one_key`: whether all records of the queue have one partition key. Their explicit hash keys may lead to several shards.
        """
        first = queue.popleft()
        parts, keys = [first], {first.partition_key}
        size = _FRAME + _bytes_of(first, is_new_key=True)
        max_bytes = min(max_bytes, self.max_bytes)
        while queue and not first.parts and len(parts) < self.max_records:
            following = queue[0]
            size += _bytes_of(following, is_new_key=following.partition_key not in keys)
            may_differ_in_shard = of_one_key and following.explicit_hash_key != first.explicit_hash_key
            if following.parts or may_differ_in_shard or size > max_bytes:
                break
            keys.add(following.partition_key)
            parts.append(queue.popleft())
        return parts

    def aggregate(self, parts: Sequence[PendingRecord]) -> PendingRecord:
        """Return one Kinesis record of these user records. A single user record is returned unchanged."""
        first = parts[0]
        if len(parts) == 1:
            return first
        data = encode_aggregate([(part.partition_key, part.explicit_hash_key, part.data) for part in parts])
        size = size_of(data, first.partition_key)
        aggregate = PendingRecord(data, first.partition_key, str(first.hash_key), size, parts=tuple(parts))
        aggregate.failed_at, aggregate.failing_for = first.failed_at, first.failing_for
        return aggregate


class KeyOrder:
    """Holds records back until the earlier records of their key are acknowledged."""

    def __init__(self, aggregator: KplAggregator | None) -> None:
        self._aggregator = aggregator
        self._held: dict[str, deque[PendingRecord]] = {}

    def admit_or_hold(self, record: PendingRecord) -> bool:
        """Return True if the record may be sent now. If not, hold the record until `release_after` returns it."""
        held = self._held.get(record.partition_key)
        if held is None:
            self._held[record.partition_key] = deque()
            return True
        held.append(record)
        return False

    def held_of(self, leading: Iterable[PendingRecord]) -> dict[str, deque[PendingRecord]]:
        """Return the held records that have the key of one of the records `leading`, by key and in order."""
        return {one.partition_key: self._held[one.partition_key] for record in leading for one in record.user_records}

    def take_held(self) -> list[PendingRecord]:
        """Remove and return every held record, key by key and in order, and forget the keys."""
        held, self._held = self._held, {}
        return [record for of_key in held.values() for record in of_key]

    def release_after(self, done: Iterable[PendingRecord]) -> list[PendingRecord]:
        """Remove and return the held records that may be sent now, because the records `done` are complete.

        For each key of `done` this is the next held record or aggregate.
        """
        return [one for key in {one.partition_key for one in done} if (one := self._release_next(key)) is not None]

    def _release_next(self, key: str) -> PendingRecord | None:
        held = self._held[key]
        if not held:
            del self._held[key]
            return None
        if self._aggregator is None:
            return held.popleft()
        return self._aggregator.aggregate(
            self._aggregator.take_parts(held, self._aggregator.max_bytes, of_one_key=True)
        )


def removed_while(
    records: deque[PendingRecord], is_removed: Callable[[PendingRecord], bool], most: int
) -> list[PendingRecord]:
    """Remove and return the first records for which `is_removed` is true, at most `most` records."""
    removed: list[PendingRecord] = []
    while records and len(removed) < most and is_removed(records[0]):
        removed.append(records.popleft())
    return removed


@dataclass(frozen=True, slots=True)
class ShardMap:
    """The open shards, sorted by the start of their hash ranges.

    - `open_count`: the number of open shards, even if keys do not decide the shard.
    - `ranges`: the hash range of every listed shard, including closed shards.
    - `keys_decide`: whether the key of a record decides its shard.
    """

    shards: tuple[Shard, ...]
    starts: tuple[int, ...]
    open_count: int
    ranges: dict[str, HashRange]
    keys_decide: bool = True

    @classmethod
    def of(cls, listed: Iterable[Shard], distributes_by_key: bool = True, keeps_ranges: bool = False) -> ShardMap:
        """Return the map of a listing. Closed shards take no records.

        - `distributes_by_key`: whether the key of a record decides its shard. With AUTO record distribution it does not.
        - `keeps_ranges`: whether each aggregate has only records of one shard's range, even with AUTO record distribution. If a stream is
          switched back from AUTO, readers drop those records of an aggregate that are outside the range of its shard.

        Raises: ImpossibleStateError if the listing has no open shard.
        """
        listed = tuple(listed)
        shards = tuple(sorted((shard for shard in listed if not shard.closed), key=lambda one: one.hash_range.start))
        if not shards:
            raise ImpossibleStateError("a stream was listed without any open shard")
        count = len(shards)
        if not distributes_by_key and not keeps_ranges:
            shards = (Shard(shards[0].stream, ANY_SHARD, hash_range=HashRange()),)
        ranges = {shard.shard_id: shard.hash_range for shard in listed}
        return cls(shards, tuple(shard.hash_range.start for shard in shards), count, ranges, distributes_by_key)

    def shard_of(self, hash_key: int) -> Shard:
        """Return the shard that takes a hash key."""
        return self.shards[max(bisect_right(self.starts, hash_key) - 1, 0)]


NO_SHARDS = ShardMap((), (), 0, {})
"""The shard map before the shards are listed."""


class TargetShardListing:
    """Lists the shards again after a reshard, or after a switch to AUTO record distribution and back.

    Acknowledged aggregates that reached an unexpected shard wait here until a listing shows which of their parts readers will accept.
    """

    def __init__(
        self,
        port: WritingPort,
        stream: str,
        aggregates: bool,
        retries: RetryPolicy,
        clock: Clock,
        metrics: KinesisSinkCounters,
    ) -> None:
        self._port = port
        self._stream = stream
        self._keys_decide = True
        self._aggregates = aggregates
        self._retries = retries
        self._clock = clock
        self._metrics = metrics
        self._misrouted: list[MisroutedRecord] = []
        self._being_listed: list[MisroutedRecord] = []
        """The aggregates that wait for the listing that is being made."""
        self._last_misrouted: dict[str, int] = {}
        self._unlisted_since: dict[str, float] = {}
        """When a listing first lacked a shard that has taken an aggregate (seconds of the clock), by the id of the shard."""
        self._described_at = -math.inf
        self._is_requested = False
        self._wakeup = Notifier()

    def request(self, misrouted: list[MisroutedRecord]) -> None:
        """List the shards soon, because unexpected shards took these records. Keep the aggregates among the records for `next_map`."""
        self._misrouted += [each for each in misrouted if each[0].parts]
        record, shard_id = misrouted[-1]
        self._last_misrouted[shard_id] = record.hash_key
        self._is_requested = True
        self._wakeup.notify_all()

    def take_misrouted(self) -> list[MisroutedRecord]:
        """Remove the aggregates that wait for a listing, and return them."""
        taken, self._misrouted, self._being_listed = self._being_listed + self._misrouted, [], []
        return taken

    async def list_first(self, keys_decide: bool) -> ShardMap:
        """List the shards for the first time, before any record is sent.

        - `keys_decide`: whether the key of a record decides its shard at present. It does not while the stream distributes records (AUTO).

        Raises: RetriesExhaustedError if the shards cannot be listed, and errors that retries cannot fix.
        """
        self._keys_decide = keys_decide
        return self._map_of(await self._list())

    async def next_map(self) -> tuple[ShardMap, list[MisroutedRecord]]:
        """Wait until a listing is due, list the shards, and return the new map with the misrouted aggregates that waited for it.

        A listing is due when it was requested. While keys do not decide the shard, it is also due periodically. A *misrouted* aggregate is
        an acknowledged one that reached an unexpected shard (`MisroutedRecord`).

        Raises: RetriesExhaustedError if the listing fails while aggregates wait for it, and errors that retries cannot fix.
        """
        while True:
            # 1. Wait until a listing is requested. If keys do not decide the shard, listings are also made periodically.
            if not self._is_requested:
                await self._wakeup.wait(None if self._keys_decide else PERIODIC_REFRESH_SECONDS)
                if self._keys_decide and not self._is_requested:
                    continue
            # 2. Forget the request before the call, because a record that is misrouted during the call needs another listing.
            was_requested, self._is_requested = self._is_requested, False
            self._being_listed, self._misrouted = self._misrouted, []
            # 3. List.
            try:
                shard_map = await self._refresh()
            except RetriesExhaustedError as error:
                if self._being_listed:
                    self._misrouted, self._is_requested = self.take_misrouted(), True
                    raise
                # No aggregate waits for the new map, so the failure does not end the sink. The next periodic listing, or the next try
                # after a misrouted record, may bring the map.
                log.warning("the shards of %s cannot be listed, so records are sent as before: %s", self._stream, error)
                self._is_requested |= was_requested
            else:
                misrouted, self._being_listed = self._being_listed, []
                return shard_map, self._without_unlisted(misrouted, shard_map)
            await asyncio.sleep(MIN_REFRESH_INTERVAL_SECONDS)

    def _without_unlisted(self, misrouted: list[MisroutedRecord], shard_map: ShardMap) -> list[MisroutedRecord]:
        """Return the aggregates whose shard is listed, or is missing in listings for too long. The others wait for another listing."""
        now = self._clock.monotonic()
        unlisted = {shard_id for _, shard_id in misrouted} - shard_map.ranges.keys() if shard_map.keys_decide else ()
        self._unlisted_since = {shard_id: self._unlisted_since.get(shard_id, now) for shard_id in unlisted}
        awaited = {shard_id for shard_id, since in self._unlisted_since.items() if now - since < UNLISTED_SECONDS}
        if not awaited:
            return misrouted
        self._is_requested = True
        self._misrouted = [each for each in misrouted if each[1] in awaited] + self._misrouted
        return [each for each in misrouted if each[1] not in awaited]

    async def _refresh(self) -> ShardMap:
        listed = await self._list()
        self._metrics.add("shardMapRefreshes")
        if not self._keys_decide or self._has_foreign_record(listed):
            self._keys_decide = await self._fetch_whether_keys_decide()
        self._last_misrouted.clear()
        return self._map_of(listed)

    def _map_of(self, listed: Sequence[Shard]) -> ShardMap:
        return ShardMap.of(listed, self._keys_decide, keeps_ranges=self._aggregates)

    async def _list(self) -> Sequence[Shard]:
        return await call_with_retries(self._list_once, self._retries)

    async def _list_once(self) -> Sequence[Shard]:
        """List the shards. Raises: TransientError if shards are missing, because ListShards is eventually consistent."""
        listed = await self._port.list_shards(self._stream)
        missing = first_unlisted_range(listed) if self._keys_decide else None
        if missing is not None or all(shard.closed for shard in listed):
            raise TransientError(
                "ListShards", "IncompleteListing", f"some hash keys of {self._stream} have no open shard"
            )
        return listed

    def _has_foreign_record(self, listed: Sequence[Shard]) -> bool:
        """Return whether a shard took a record whose hash key lies outside the shard's range.

        Only AUTO record distribution causes that, because a reshard never changes the range of a shard.
        """
        taken = self._last_misrouted
        ranges = {shard.shard_id: shard.hash_range for shard in listed}
        return any(shard in ranges and key not in ranges[shard] for shard, key in taken.items())

    async def _fetch_whether_keys_decide(self) -> bool:
        """Return whether the key of a record decides its shard at present. Return False if the permission to ask the service is missing."""
        await asyncio.sleep(max(0.0, self._described_at + MIN_DESCRIBE_INTERVAL_SECONDS - self._clock.monotonic()))
        self._described_at = self._clock.monotonic()
        try:
            summary = await call_with_retries(lambda: self._port.stream_summary(self._stream), self._retries)
        except FatalKinesisError as error:
            log.log(
                logging.WARNING if self._keys_decide else logging.DEBUG,
                "shards of %s take records of any key (AUTO record distribution), so records of one key have no order. Whether keys decide "
                "again cannot be checked: %s",
                self._stream,
                error,
            )
            return False
        return summary.distributes_by_key


def split_aggregate(record: PendingRecord) -> tuple[PendingRecord, ...]:
    """Return the records to queue after a reshard: the user records of an aggregate, or the aggregate itself if all have the same keys."""
    first = record.user_records[0]
    if all(
        (part.partition_key, part.explicit_hash_key) == (first.partition_key, first.explicit_hash_key)
        for part in record.parts
    ):
        return (record,)
    return record.parts


def _bytes_of(part: PendingRecord, *, is_new_key: bool) -> int:
    """Return the most bytes that a part adds to an aggregate.

    - `is_new_key`: whether the aggregate's key table lacks the key of the part. The table has each key only once.
    """
    size = (part.size + _KEY_OVERHEAD if is_new_key else len(part.data)) + _PART_OVERHEAD
    return size if part.explicit_hash_key is None else size + _HASH_KEY_BYTES
