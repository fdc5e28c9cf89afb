"""Workers of one group on one virtual loop, over a store in memory, with shards that are read by hand."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Collection, Mapping
from contextlib import asynccontextmanager

from recordpublisher.fetcher.conditional_store import VersionedValue
from recordpublisher.fetcher.leases.group_store import LEASE_TABLE, GroupStore
from recordpublisher.fetcher.leases.group_watermark import ShardWatermark
from recordpublisher.fetcher.leases.lease_settings import LeaseSettings
from recordpublisher.fetcher.leases.lease_table import LeaseTable, table_from_bytes
from recordpublisher.fetcher.leases.position_documents import StoredPosition
from recordpublisher.fetcher.leases.position_store import CheckpointPositions
from recordpublisher.fetcher.leases.shard_listing import ShardListing
from recordpublisher.fetcher.leases.worker import Worker
from recordpublisher.fetcher.shards.discovery import MissingShards
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.sink import RevocationReason
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.shards import Shard
from recordpublisher.testing.virtual_time import VirtualClock

from ..memory_store import MemoryStore

CALL_SECONDS, FLUSH_SECONDS = 0.02, 0.3


class CountingStore(MemoryStore):
    """Counts the requests by their kind; each takes a moment."""

    def __init__(self) -> None:
        super().__init__()
        self.requests = {"get": 0, "list": 0, "write": 0}

    async def get(self, name: str) -> VersionedValue | None:
        await self._count("get")
        return await super().get(name)

    async def put_if_absent(self, name: str, value: bytes) -> str:
        await self._count("write")
        return await super().put_if_absent(name, value)

    async def compare_and_set(self, name: str, value: bytes, expected: str) -> str:
        await self._count("write")
        return await super().compare_and_set(name, value, expected)

    async def list(self, prefix: str, *, consistent: bool = True) -> dict[str, VersionedValue]:
        await self._count("list")
        return await super().list(prefix, consistent=consistent)

    async def _count(self, kind: str) -> None:
        self.requests[kind] += 1
        await asyncio.sleep(CALL_SECONDS)


class UnreadTimes:
    """For how long each shard had no reader, each time that it moved."""

    def __init__(self) -> None:
        self.gaps: list[float] = []
        self._since: dict[str, float] = {}

    def stop(self, shard: str) -> None:
        self._since[shard] = asyncio.get_running_loop().time()

    def begin(self, shard: str) -> None:
        if shard in self._since:
            self.gaps.append(asyncio.get_running_loop().time() - self._since.pop(shard))


class HandReaders:
    """The ShardReaders port: `positions` are moved by the test. A flush takes a moment."""

    is_aligned, is_held = False, False

    def __init__(self, unread: UnreadTimes) -> None:
        self._unread = unread
        self.positions: dict[str, int] = {}
        self.stopped: set[str] = set()
        self.children: dict[str, dict[str, tuple[str, ...]]] = {}
        """Of shards that were read to their end."""
        self.tip_ms: int | None = None
        """When the shards were last read at their tips."""

    def begin(self, shard: str, state: ShardState, *, is_taken_over: bool = False) -> None:
        self.positions[shard] = 0 if state.position is None else int(state.position.sequence)
        self.stopped.discard(shard)
        self._unread.begin(shard)

    async def stop(self, shards: Collection[str]) -> None:
        for shard in self.positions.keys() & set(shards) - self.stopped:
            self._unread.stop(shard)
        self.stopped |= set(shards)

    def drop(self, shards: Mapping[str, RevocationReason]) -> None:
        for shard in shards:
            self.positions.pop(shard, None)

    def drop_all(self) -> None:
        self.positions.clear()

    @asynccontextmanager
    async def checkpoint(self, *, may_be_partial: bool = False) -> AsyncIterator[CheckpointPositions]:
        await asyncio.sleep(FLUSH_SECONDS)
        yield CheckpointPositions({shard: self._stored(shard) for shard in self.positions})

    def watermarks(self) -> dict[str, ShardWatermark]:
        return {shard: ShardWatermark(position) for shard, position in self.positions.items()}

    def has_unfinished(self, shards: Collection[str]) -> bool:
        return False

    def loads(self) -> dict[str, float]:
        return {}

    def _stored(self, shard: str) -> StoredPosition:
        position = self.positions[shard]
        sequence = SequenceNumber(str(position)) if position else None
        children = self.children.get(shard, {})
        start = StartingPosition.trim_horizon()
        state = ShardState(start, sequence, watermark=position, ended=bool(children), tip_ms=self.tip_ms)
        return StoredPosition(state, children)


class LeaseGroup:
    """Owns the store and the workers' tasks."""

    def __init__(self, shards: int, settings: LeaseSettings | None = None) -> None:
        self.store = CountingStore()
        self.unread = UnreadTimes()
        self.settings = settings or LeaseSettings()
        self.readers: dict[str, HandReaders] = {}
        self.workers: dict[str, Worker] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self._shards = [f"t/{number}" for number in range(shards)]

    def join(self, name: str) -> Worker:
        """Start a worker."""
        readers = self.readers[name] = HandReaders(self.unread)
        group = GroupStore(self.store, 5.0)
        start = StartingPosition.trim_horizon()
        listing = ShardListing(self._list_shards, MissingShards(), start, VirtualClock(), 3_600.0)
        worker = Worker(name, group, readers, listing, self.settings, VirtualClock(), jitter=random.Random(name))
        self.workers[name] = worker
        self.tasks[name] = asyncio.create_task(worker.run())
        return worker

    async def kill(self, name: str) -> None:
        """The worker's process is gone."""
        self.tasks[name].cancel()
        await asyncio.gather(self.tasks[name], return_exceptions=True)
        del self.readers[name]

    async def close(self) -> None:
        """End all workers."""
        for task in self.tasks.values():
            task.cancel()
        await asyncio.gather(*self.tasks.values(), return_exceptions=True)

    @property
    def table(self) -> LeaseTable:
        """The stored lease table."""
        return table_from_bytes(self.store.values[LEASE_TABLE].value, LEASE_TABLE)

    def owned(self) -> dict[str, list[str]]:
        """The shards of each worker by the lease table."""
        found: dict[str, list[str]] = {}
        for shard, lease in self.table.leases.items():
            if lease.owner is not None:
                found.setdefault(lease.owner, []).append(shard)
        return found

    async def _list_shards(self) -> list[Shard]:
        return [Shard("t", shard.removeprefix("t/")) for shard in self._shards]
