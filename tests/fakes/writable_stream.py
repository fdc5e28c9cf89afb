"""A fake stream behind the writing port, on virtual time: rate limits, latency, record errors, outages, reshards."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from recordpublisher.plugins.sinks.kinesis import KinesisSink
from recordpublisher.publishers.aggregation.kpl_format import hash_key_of
from recordpublisher.publishers.errors import FatalKinesisError, StreamNotFoundError, ThrottledError, TransientError
from recordpublisher.publishers.kinesis.ports import PutEntry, PutRecordsResponse, PutResult, StreamSummary
from recordpublisher.publishers.records import UserRecord
from recordpublisher.publishers.shards import MAX_HASH_KEY, HashRange, Shard
from recordpublisher.testing.virtual_time import VirtualClock

from fakes.batches import user_records

THROTTLED = "ProvisionedThroughputExceededException"


@dataclass
class FakeShard:
    """One shard: its records, and a token bucket of one second of its rate limit."""

    shard: Shard
    taken: list[PutEntry] = field(default_factory=list)
    level: float = 0.0
    at: float = 0.0

    def admits(self, rate: float | None, now: float) -> bool:
        if rate is None:
            return True
        self.level = min(rate, self.level + (now - self.at) * rate) if self.at else rate
        self.at = now
        if self.level < 1:
            return False
        self.level -= 1
        return True


class FakeKinesis:
    """Owns the stream. `refuse` returns an error code for an entry, or None; `fail` is raised by every call while it is set."""

    def __init__(self, shards: int = 1, *, seed: int = 0) -> None:
        width = (MAX_HASH_KEY + 1) // shards
        ranges = [HashRange(n * width, (n + 1) * width - 1) for n in range(shards - 1)]
        ranges.append(HashRange((shards - 1) * width, MAX_HASH_KEY))
        self.shards = {f"s{n}": FakeShard(Shard("out", f"s{n}", hash_range=each)) for n, each in enumerate(ranges)}
        self.random = random.Random(seed)
        self.latency = 0.005
        self.rate: float | None = None
        self.refuse = lambda entry: None
        self.fail: Exception | None = None
        self.listing_error: Exception | None = None
        self.summary_error: Exception | None = None
        self.refuse_above_limit = False
        self.lost_responses = 0
        self.summary = StreamSummary(2**20, distributes_by_key=True)
        self.calls: list[int] = []
        self.concurrent = self.most_concurrent = 0
        self.listings = self.summaries = 0
        self.is_closed = False

    async def put_records(self, stream: str, entries: list[PutEntry]) -> PutRecordsResponse:
        size = sum(len(entry.data) + len(entry.partition_key.encode()) for entry in entries)
        assert 1 <= len(entries) <= 500
        assert size <= 10 * 2**20
        self.calls.append(len(entries))
        self.concurrent += 1
        self.most_concurrent = max(self.most_concurrent, self.concurrent)
        try:
            await asyncio.sleep(self.latency * self.random.uniform(0.5, 1.5))
            if self.fail is not None:
                raise self.fail
            if self.refuse_above_limit and any(len(entry.data) > self.summary.max_record_bytes for entry in entries):
                raise FatalKinesisError("PutRecords", "ValidationException", "a record is too large")
            results = [self._put(entry) for entry in entries]
            await asyncio.sleep(0)
        finally:
            self.concurrent -= 1
        if self.lost_responses:
            self.lost_responses -= 1
            raise TransientError("PutRecords", "TimeoutError", "no response in time")
        return PutRecordsResponse(sum(result.error_code is not None for result in results), results)

    def _put(self, entry: PutEntry) -> PutResult:
        code = self.refuse(entry)
        shard = self._target_of(entry)
        if code is None and not shard.admits(self.rate, asyncio.get_running_loop().time()):
            code = THROTTLED
        if code is not None:
            return PutResult(error_code=code, error_message="refused by the test")
        shard.taken.append(entry)
        return PutResult(shard_id=shard.shard.shard_id)

    def _target_of(self, entry: PutEntry) -> FakeShard:
        if self.summary.distributes_by_key:
            return self._shard_of(hash_key_of(entry.partition_key, entry.explicit_hash_key))
        return self.shards[self.random.choice(self.open_ids())]

    def _shard_of(self, hash_key: int) -> FakeShard:
        return next(one for one in self.shards.values() if not one.shard.closed and hash_key in one.shard.hash_range)

    async def list_shards(self, stream: str) -> list[Shard]:
        self.listings += 1
        await asyncio.sleep(self.latency)
        if self.listing_error is not None:
            raise self.listing_error
        return [one.shard for one in self.shards.values()]

    async def stream_summary(self, stream: str) -> StreamSummary:
        self.summaries += 1
        await asyncio.sleep(self.latency)
        if self.summary_error is not None:
            raise self.summary_error
        return self.summary

    async def close(self) -> None:
        self.is_closed = True

    # --- for tests: faults, reshards and the records that arrived

    def switch_distribution(self, by_key: bool) -> None:
        self.summary = StreamSummary(self.summary.max_record_bytes, by_key)

    def split(self, shard_id: str) -> None:
        parent = self._close(shard_id)
        middle = parent.hash_range.middle
        self._open(HashRange(parent.hash_range.start, middle), shard_id)
        self._open(HashRange(middle + 1, parent.hash_range.end), shard_id)

    def merge(self, left: str, right: str) -> None:
        one, other = self._close(left), self._close(right)
        self._open(HashRange(one.hash_range.start, other.hash_range.end), left, right)

    def open_ids(self) -> list[str]:
        return [one.shard.shard_id for one in self.shards.values() if not one.shard.closed]

    def delete(self) -> None:
        self.fail = StreamNotFoundError("out")

    def throttle_whole_calls(self) -> None:
        self.fail = ThrottledError("PutRecords", "KMSThrottlingException", "slow down")

    def user_records(self) -> list[tuple[str, bytes]]:
        """(partition key, data) as a reader gets them, shard by shard: aggregates are split, parts of other shards dropped."""
        found = []
        for one in self.shards.values():
            for entry in one.taken:
                found += _read(entry, one.shard)
        return found

    def _close(self, shard_id: str) -> Shard:
        fake = self.shards[shard_id]
        fake.shard = Shard("out", shard_id, fake.shard.parents, fake.shard.hash_range, closed=True)
        return fake.shard

    def _open(self, keys: HashRange, *parents: str) -> None:
        shard_id = f"s{len(self.shards)}"
        self.shards[shard_id] = FakeShard(Shard("out", shard_id, parents, keys))


def _read(entry: PutEntry, shard: Shard) -> list[tuple[str, bytes]]:
    raw = UserRecord(entry.data, "0", 0.0, entry.partition_key)
    return [(part.partition_key or "", part.data) for part in user_records(raw, shard)]


def a_sink(fake: FakeKinesis, properties: dict[str, object] | None = None, **arguments: object) -> KinesisSink:
    """A sink of the fake stream on virtual time."""
    given = {"aws.region": "eu-west-1", **(properties or {})}
    return KinesisSink("out", given, port=fake, clock=VirtualClock(), **arguments)


async def put_numbers(sink: KinesisSink, numbers: Iterable[int], key: str = "k") -> None:
    for number in numbers:
        await sink.put(str(number).encode(), key)


def now() -> float:
    """Virtual seconds."""
    return asyncio.get_running_loop().time()
