"""A sink that keeps its positions: a worker commits rows and positions in one transaction, until it is sealed here, too (E1, E3)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from recordpublisher.fetcher.leases.documents.position_part import Positions, StoredPosition
from recordpublisher.fetcher.leases.documents.worker_record import WorkerRecord
from recordpublisher.fetcher.leases.position_store import PositionStore
from recordpublisher.publishers.errors import FencedError, StoreUnavailableError

from .rule_violation import expect
from .shared_store import StoreClient
from .simulated_shards import SimulatedShards

PAUSE_SECONDS = 0.5


@dataclass(frozen=True)
class WorkerRow:
    """The positions of one worker. `number`: of its last commit."""

    number: int = 0
    is_sealed: bool = False
    positions: Positions = field(default_factory=dict)


class SinkDatabase:
    """Owns each worker's row, and how many rows of each shard are durable. `on_commit` is told who committed."""

    def __init__(self, shards: SimulatedShards) -> None:
        self.workers: dict[str, WorkerRow] = {}
        self.rows: Counter[str] = Counter()
        self.on_commit: Callable[[str], None] = lambda worker: None
        self._shards = shards
        self._joins = 0

    def join(self, worker: str) -> int:
        """The number of the row, new ones far apart: one that a late call makes, when the worker was deleted, fits none of its commits."""
        self._joins += 1
        return self.workers.setdefault(worker, WorkerRow(self._joins << 20)).number

    def commit(self, worker: str, numbers: range, positions: Positions, before: Positions) -> None:
        """Insert the rows between the positions before and now. Raises: FencedError for a worker that was sealed or deleted."""
        row, number = self.workers.get(worker), numbers[-1]
        if row is None or row.is_sealed or row.number not in numbers:
            raise FencedError(f"{worker} was sealed in the sink")
        if row.number >= number:
            return
        for key, stored in positions.items():
            if key in before:
                self._insert(worker, key.shard, position_of(before[key]), position_of(stored))
        self.workers[worker] = WorkerRow(number, False, dict(positions))
        self.on_commit(worker)

    def seal(self, worker: str) -> Positions:
        row = self.workers.get(worker)
        if row is None:
            return {}
        self.workers[worker] = replace(row, is_sealed=True)
        return row.positions

    def _insert(self, worker: str, shard: str, begin: int, end: int) -> None:
        """Rows of a shard become durable: each exactly once, and those of its parents before."""
        if end == begin:
            return
        durable = self.rows[shard]
        expect(begin == durable, "E1", f"{worker} commits rows {begin}..{end} of {shard}, durable are {durable}")
        for parent in self._shards.by_key[shard].parents:
            expect(
                self.rows[parent] == self._shards.by_key[parent].records, "S2", f"{shard} before the end of {parent}"
            )
        self.rows[shard] = end


def position_of(stored: StoredPosition) -> int:
    """The number of records before it."""
    return 0 if stored.state.position is None else int(stored.state.position.sequence)


class SinkPositions(PositionStore):
    """One worker's connection to the database. An unknown commit is looked up before anything else is committed."""

    def __init__(self, client: StoreClient, database: SinkDatabase, worker: str, timeout: float) -> None:
        self._client = client
        self._database = database
        self._worker = worker
        self._timeout = timeout
        self._joined: int | None = None
        self._number = 0
        self._committed: Positions = {}

    async def join(self) -> None:
        number = await self._call(lambda: self._database.join(self._worker))
        if self._joined is None:
            self._joined = self._number = number

    async def commit(self, positions: Positions, *, is_checkpoint: bool = False) -> None:
        self._number += 1
        numbers, before = range(self._joined, self._number + 1), self._committed
        while True:
            try:
                await self._call(lambda: self._database.commit(self._worker, numbers, positions, before))
            except StoreUnavailableError:  # a repeated commit of this number does nothing if the first one took effect
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                self._committed = positions
                return

    async def read(self, record: WorkerRecord) -> Positions:
        found: Positions = await self._call(lambda: self._database.workers.get(record.worker, WorkerRow()).positions)
        return found

    async def seal(self, record: WorkerRecord) -> Positions:
        found: Positions = await self._call(lambda: self._database.seal(record.worker))
        return found

    async def delete(self, worker: str) -> None:
        await self._call(lambda: self._database.workers.pop(worker, None))

    async def _call(self, operation: Callable[[], Any]) -> Any:
        try:
            async with asyncio.timeout(self._timeout):
                return await self._client.request(operation)
        except TimeoutError as error:
            raise StoreUnavailableError("the sink does not answer") from error
