"""A shard in memory behind the polling ports, with the service's iterator expiry and quotas; its publisher, and a consumer."""

from __future__ import annotations

import asyncio
from collections import deque

from recordpublisher.publishers.base import RunResult
from recordpublisher.publishers.errors import (
    ExpiredIteratorError,
    ResourceNotFoundError,
    StreamNotFoundError,
    ThrottledError,
    TransientError,
)
from recordpublisher.publishers.kinesis.ports import ReadResponse, RecordDistribution
from recordpublisher.publishers.polling import PollingConfig, PollingRecordPublisher
from recordpublisher.publishers.positions import PositionType, StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import UserRecord
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import Shard
from recordpublisher.testing.virtual_time import EPOCH_MS, VirtualClock, run_virtual

SHARD = Shard("orders", "shardId-000000000000")
CHILD = Shard("orders", "shardId-000000000001", parents=("shardId-000000000000",))
ITERATOR_SECONDS = 300.0


class FakeShard:
    """Records 1, 2, 3 ...; `errors` are raised by the next calls of an API; quotas of the service refuse calls that come too early."""

    def __init__(self, *data: bytes, closed: bool = False, quotas: bool = True) -> None:
        self.records = [UserRecord(d, str(n), 1.0, "k") for n, d in enumerate(data, 1)]
        self.closed = closed
        self.quotas = quotas
        self.listed: list[Shard] | None = [SHARD]
        self.errors: dict[str, deque[Exception]] = {"GetRecords": deque(), "GetShardIterator": deque()}
        self.positions: list[StartingPosition] = []
        self.limits: list[int] = []
        self.read_at: list[float] = []
        self.page = 10_000
        self.latency = 0.0
        self._free_at = 0.0

    async def get_shard_iterator(self, shard: Shard, position: StartingPosition) -> str:
        self.positions.append(position)
        await asyncio.sleep(self.latency)
        self._fail("GetShardIterator")
        return self._iterator(self._index_of(position))

    async def get_records(self, shard: Shard, iterator: str, limit: int) -> ReadResponse:
        await asyncio.sleep(self.latency)
        now = asyncio.get_running_loop().time()
        self._fail("GetRecords")
        self._check_quotas(now)
        index, issued = iterator.split("@")
        if now - float(issued) > ITERATOR_SECONDS:
            raise ExpiredIteratorError("GetRecords", "ExpiredIteratorException", "Iterator expired.")
        self.read_at.append(now)
        self.limits.append(limit)
        return self._read_once(int(index), min(limit, self.page), now)

    async def list_shards(self, stream: str) -> list[Shard]:
        if self.listed is None:
            raise StreamNotFoundError(stream)
        return self.listed

    async def server_time_ms(self, stream: str) -> int:
        return EPOCH_MS

    async def record_distribution(self, stream: str) -> RecordDistribution:
        return RecordDistribution(by_key=True, server_ms=EPOCH_MS)

    def add(self, *data: bytes) -> None:
        for one in data:
            self.records.append(UserRecord(one, str(len(self.records) + 1), 1.0, "k"))

    def _read_once(self, index: int, limit: int, now: float) -> ReadResponse:
        records = self.records[index : index + limit]
        after = index + len(records)
        self._free_at = now + max(0.2, sum(len(r.data) for r in records) / 2**21)
        if self.closed and after == len(self.records):
            return ReadResponse(records, 0, None, child_shards=(CHILD,))
        return ReadResponse(records, (len(self.records) - after) * 1000, self._iterator(after))

    def _check_quotas(self, now: float) -> None:
        if self.quotas and now < self._free_at - 1e-9:
            raise ThrottledError("GetRecords", "ProvisionedThroughputExceededException", "Rate exceeded for shard")

    def _index_of(self, position: StartingPosition) -> int:
        if position.type is PositionType.TRIM_HORIZON:
            return 0
        if position.type is PositionType.AT_TIMESTAMP:
            return 0
        index = [record.sequence_number for record in self.records].index(position.sequence_number)
        return index + (position.type is PositionType.AFTER_SEQUENCE_NUMBER)

    def _iterator(self, index: int) -> str:
        return f"{index}@{asyncio.get_running_loop().time()}"

    def _fail(self, api: str) -> None:
        if self.errors[api]:
            raise self.errors[api].popleft()


BROKEN = TransientError("GetRecords", "InternalFailure", "oh")
THROTTLED = ThrottledError("GetRecords", "ProvisionedThroughputExceededException", "slow down")
NOT_FOUND = ResourceNotFoundError("GetRecords", "ResourceNotFoundException", "no such shard")


class Reader:
    """A consumer that records the batches. It returns the read position, or the next of `results`."""

    def __init__(self, hold=0.0, results=None, stop_after=None):
        self.batches = []
        self.at = []
        self._hold = hold
        self._results = list(results or [])
        self._stop_after = stop_after

    async def __call__(self, batch):
        self.batches.append(batch)
        self.at.append(asyncio.get_running_loop().time())
        if len(self.batches) == self._stop_after:
            raise StopError
        await asyncio.sleep(self._hold.pop(0) if isinstance(self._hold, list) and self._hold else self._hold or 0)
        return self._results.pop(0) if self._results else batch.read_position

    @property
    def data(self):
        return [record.data for batch in self.batches for record in batch.records]


class StopError(Exception):
    pass


def publisher_of(fake, position=None, metrics=None, shard=SHARD, **properties):
    prefixes = {"adaptivereads": "flink.shard."}
    given = {prefixes.get(key, "flink.shard.getrecords.") + key: value for key, value in properties.items()}
    config = PollingConfig.of(Properties(given))
    position = position or StartingPosition.trim_horizon()
    return PollingRecordPublisher(fake, shard, position, config, metrics or ShardMetrics(), VirtualClock())


async def published(fake, consumer, **more):
    return await publisher_of(fake, **more).run(consumer)


def read(fake, reader=None, **more):
    """Read to the shard's end, or until the reader stops."""
    reader = reader or Reader()

    async def run():
        try:
            return await publisher_of(fake, **more).run(reader)
        except StopError:
            return RunResult.CANCELLED

    return reader, run_virtual(run())
