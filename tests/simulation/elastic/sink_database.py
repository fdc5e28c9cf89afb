"""A sink that commits by the entries of positions: what is staged, what an entry has committed, and what is published (E1, E3)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from typing import Any

from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.fetcher.leases.group_store import PARTS_PREFIX
from recordpublisher.fetcher.leases.position_documents import PositionPart, Positions, StoredPosition
from recordpublisher.fetcher.sink import CommitNumber, CommittingSink, Staged
from recordpublisher.publishers.errors import StoreUnavailableError
from recordpublisher.publishers.records import RecordBatch

from ..simulator import Simulator
from .rule_violation import expect
from .shared_store import SharedStore, StoreClient
from .simulated_shards import SimulatedShards

Rows = list[tuple[str, int, int]]
"""Of a shard: the first record, and the one behind the last."""


class SinkDatabase:
    """Owns the entries, and how many rows of each shard are committed. `on_commit` is told who committed."""

    def __init__(self, simulator: Simulator, shards: SimulatedShards) -> None:
        self.entries = SharedStore(simulator)
        self.entries.on_write = self._on_entry
        self.staged: dict[str, Rows] = {}
        self.committed: set[str] = set()
        self.published: set[str] = set()
        self.rows: Counter[str] = Counter()
        self.on_commit: Callable[[str], None] = lambda worker: None
        self._shards = shards

    def positions(self, worker: str) -> Positions:
        """What the worker's entry has."""
        found = self.entries.values.get(f"{PARTS_PREFIX}{worker}/0")
        return {} if found is None else PositionPart.from_bytes(found.value, worker).positions

    def publish(self, name: str) -> None:
        """As a rename: what is gone was published."""
        if name in self.staged:
            expect(name in self.committed, "S6", f"{name} is published and no entry has committed it")
            del self.staged[name]
            self.published.add(name)
        else:
            expect(name in self.published, "S6", f"{name} is named by an entry and is gone")

    def discard(self, life: str, kept: Collection[str]) -> None:
        for name in [name for name in self.staged if name.partition("/")[0] == life and name not in kept]:
            # one that a late request has made once more was published before
            expect(name not in self.unpublished, "S6", f"{name} is discarded and an entry has committed it")
            del self.staged[name]

    @property
    def unpublished(self) -> set[str]:
        """What is committed and not visible."""
        return self.committed - self.published

    def _on_entry(self, name: str, before: bytes | None, after: bytes | None) -> None:
        if after is None:
            part = PositionPart.from_bytes(before or b"", name)
            left = {each.content["name"] for each in part.staged} - self.published
            expect(not left, "E12", f"{name} is deleted, and {left} are not published")
            return
        part = PositionPart.from_bytes(after, name)
        if before is not None:
            expect(not PositionPart.from_bytes(before, name).is_sealed, "E3", f"the sealed {name} is written")
        for each in part.staged:
            if each.content["name"] not in self.committed:
                self.committed.add(each.content["name"])
                for shard, begin, end in self.staged[each.content["name"]]:
                    self._insert(part.worker, shard, begin, end)
        self.on_commit(part.worker)

    def _insert(self, worker: str, shard: str, begin: int, end: int) -> None:
        """Rows of a shard are committed: each exactly once, and those of its parents before."""
        committed = self.rows[shard]
        expect(begin == committed, "E1", f"{worker} commits rows {begin}..{end} of {shard}, committed are {committed}")
        for parent in self._shards.by_key[shard].parents:
            expect(
                self.rows[parent] == self._shards.by_key[parent].records, "S2", f"{shard} before the end of {parent}"
            )
        self.rows[shard] = end


def position_of(stored: StoredPosition) -> int:
    """The number of records before it."""
    return 0 if stored.state.position is None else int(stored.state.position.sequence)


class BetweenWrites:
    """Stands for the emitter of a process."""

    records = 0

    def __init__(self) -> None:
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def between_writes(self) -> AsyncIterator[None]:
        async with self._lock:
            yield


class SimulatedSink(CommittingSink):
    """One process's connection. Each call that has no answer in time may have taken effect, or may still."""

    def __init__(self, client: StoreClient, database: SinkDatabase, timeout: float) -> None:
        self._client = client
        self._database = database
        self._timeout = timeout
        self._life = ""
        self.waiting: Rows = []

    def entries(self) -> ConditionalStore:
        return self._client

    async def write(self, batch: RecordBatch) -> None:
        raise NotImplementedError

    def revoked(self, shards: Collection[str]) -> None:
        self.waiting = [row for row in self.waiting if row[0] not in shards]

    async def begin(self, life: str) -> None:
        self._life, self.waiting = life, []

    async def stage(self, number: CommitNumber) -> Staged | None:
        rows, name = list(self.waiting), f"{self._life}/{number.n}"
        if not rows:
            return None
        await self._call(lambda: self._database.staged.setdefault(name, rows))
        self.waiting = [row for row in self.waiting if row not in rows]
        return Staged(number, {"name": name})

    async def commit(
        self, store: ConditionalStore, name: str, value: bytes, expected: str | None, staged: Sequence[Staged]
    ) -> str:
        await self._client.before_write(name)
        return await self._in_time(super().commit(store, name, value, expected, staged))

    async def publish(self, staged: Sequence[Staged]) -> None:
        for each in staged:
            await self._call(lambda each=each: self._database.publish(each.content["name"]))

    async def discard(self, has_ended: Callable[[str], bool], kept: Sequence[Staged]) -> None:
        named = {each.content["name"] for each in kept}
        for life in {name.partition("/")[0] for name in self._database.staged}:
            if has_ended(life):
                await self._call(lambda life=life: self._database.discard(life, named))

    async def _call(self, operation: Callable[[], Any]) -> Any:
        return await self._in_time(self._client.request(operation))

    async def _in_time(self, call: Any) -> Any:
        try:
            async with asyncio.timeout(self._timeout):
                return await call
        except TimeoutError as error:
            raise StoreUnavailableError("the sink does not answer") from error
