"""PositionTransfer: moves positions between a job and another client's table: look at both sides twice, plan, then write.

A plan alone is the dry run. `kcl_transfer.py` and `async_kinesis_transfer.py` say what is special to one client.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, Protocol, TypeVar

from recordpublisher.fetcher.checkpoints.snapshot import RestoredState
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.initial_position import initial_position
from recordpublisher.publishers.kinesis.ports import ListingPort
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.table import LIST_SHARDS_RETRIES
from recordpublisher.publishers.retry import call_with_retries
from recordpublisher.publishers.shards import Shard

from .job_positions import JobPositions, StoredPositions
from .plans import ExportedRow, ImportedPosition, R, imported_states

HEARTBEATS_WATCHED = 2
"""A heartbeat may be late."""
Pause = Callable[[float], Awaitable[None]]
T = TypeVar("T")


class ClientTable(Protocol[R]):
    """The table of another client. `place` names it in messages."""

    place: str

    async def read(self) -> list[R] | None:
        """Every row; None when there is no table."""
        ...

    async def write(self, row: R, seen: R | None) -> None:
        """Put a row in the place of the one that was `seen`, or of none. Raises: StateError when the row has changed."""
        ...

    async def create(self) -> None:
        """Create the table."""
        ...


@dataclass(frozen=True)
class PositionTransfer(ABC, Generic[R]):
    """A job and a table. `streams` are the job's, by name or ARN. `watch_seconds` lie between the two looks at what may be running;
    `is_forced` goes on where an import or export would refuse."""

    job: JobPositions
    table: ClientTable[R]
    service: ListingPort
    streams: Sequence[str]
    properties: Properties
    watch_seconds: float
    is_forced: bool = False
    pause: Pause = asyncio.sleep
    rows_are: ClassVar[str]
    """What the client calls the rows, in messages."""

    async def plan_import(self) -> list[ImportedPosition]:
        """What the job would start from. Raises: StateError when the other client is running, or when the job has positions."""
        self.job.check_writable()
        check_unused(await self.job.load(), self.is_forced)
        before, heartbeats = await self._read_rows(), await self._pause_for_heartbeats()
        rows = await self._read_rows()
        self._check_stopped(before, rows)
        await self._check_heartbeats(heartbeats)
        return await self._imported(rows, initial_position(self.properties))

    async def apply_import(self, plan: Sequence[ImportedPosition]) -> None:
        """Store the planned positions."""
        await self.job.store(imported_states(plan))

    async def plan_export(self) -> list[ExportedRow[R]]:
        """The rows that would be written. Raises: StateError when either side is running, or when a row is ahead of the job."""
        before, rows_before = (await self.job.load()).merged, await self.table.read() or []
        if not before.shards:
            raise StateError("the job has stored no positions: are these its properties?")
        heartbeats = await self._pause_for_heartbeats()
        restored, rows = (await self.job.load()).merged, await self.table.read() or []
        self._check_stopped(rows_before, rows)
        await self._check_heartbeats(heartbeats)
        if restored != before and not self.is_forced:
            raise StateError("the job is running: its positions have changed. Stop it first; --force goes on")
        plan = await self._exported(restored, rows, initial_position(self.properties))
        ahead = [each.shard for each in plan if each.goes_back]
        if ahead and not self.is_forced:
            raise StateError(
                f"{self.table.place} is ahead of the job, which would be read again: {', '.join(ahead)}. --force goes on"
            )
        return plan

    async def apply_export(self, plan: Sequence[ExportedRow[R]]) -> None:
        """Write the planned rows, and create the table if there is none. Raises: StateError when a row was changed since the plan."""
        if await self.table.read() is None:
            await self.table.create()
        for each in plan:
            await self.table.write(each.written, each.replaced)

    @abstractmethod
    async def _imported(self, rows: Sequence[R], start: StartingPosition) -> list[ImportedPosition]:
        """The position of every shard of the job's streams. `start` is where the job's properties begin."""

    @abstractmethod
    async def _exported(
        self, restored: RestoredState, rows: Sequence[R], start: StartingPosition
    ) -> list[ExportedRow[R]]:
        """The row of each shard. `rows` are what the table has now."""

    @abstractmethod
    def _renewed(self, before: Sequence[R], after: Sequence[R]) -> Sequence[R]:
        """The rows that a running process of the other client has changed between two looks."""

    @abstractmethod
    def _running(self, changed: str) -> str:
        """The message that the other client is running: `changed` says how many rows changed, and who owns them."""

    async def _read_rows(self) -> list[R]:
        rows = await self.table.read()
        if not rows:
            there = "there is no such table" if rows is None else f"the table has no {self.rows_are}"
            raise StateError(f"{self.table.place} cannot be imported: {there}")
        return rows

    def _check_stopped(self, before: Sequence[R], after: Sequence[R]) -> None:
        renewed = self._renewed(before, after)
        if renewed and not self.is_forced:
            owners = sorted({row.owner or "nobody" for row in renewed})
            within = f"{len(renewed)} {self.rows_are} of {self.table.place} changed within {self.watch_seconds:g} s"
            raise StateError(self._running(f"{within}, owned by {', '.join(owners)}"))

    async def _pause_for_heartbeats(self) -> Mapping[str, int]:
        """Pause between the two looks; returns the heartbeats before. A group on a quiet stream changes nothing else."""
        before = await self.job.heartbeats()
        await self.pause(max(self.watch_seconds, HEARTBEATS_WATCHED * self.job.heartbeat_seconds if before else 0.0))
        return before

    async def _check_heartbeats(self, before: Mapping[str, int]) -> None:
        after = await self.job.heartbeats()
        live = sorted(worker for worker, beat in after.items() if before.get(worker) != beat)
        if live and not self.is_forced:
            raise StateError(
                f"the job is running: worker {', '.join(live)} of its group sends heartbeats. Stop it first; --force goes on"
            )

    async def _list(self, stream: str) -> list[Shard]:
        return await self._retried(lambda: self.service.list_shards(stream))

    async def _server_time_ms(self, stream: str) -> int:
        return await self._retried(lambda: self.service.server_time_ms(stream))

    async def _retried(self, call: Callable[[], Awaitable[T]]) -> T:
        return await call_with_retries(call, LIST_SHARDS_RETRIES.policy(self.properties))


def check_unused(stored: StoredPositions, is_forced: bool) -> None:
    """Raises: StateError when the job has positions that imported ones would replace, or that come before them."""
    if stored.in_sink.shards:
        raise StateError(
            f"the sink has positions of {_streams(stored.in_sink)} with its rows, and the job goes on from these: "
            "give the job a new name or place"
        )
    if stored.in_store.shards and not is_forced:
        raise StateError(
            f"the job has positions of {_streams(stored.in_store)}. --force puts the imported ones in their place"
        )


def _streams(restored: RestoredState) -> str:
    return ", ".join(sorted(restored.streams))
