"""Moves positions between a job and the KCL: look at both sides twice, plan, then write. A plan alone is the dry run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

from recordpublisher.fetcher.checkpoints.snapshot import RestoredState
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.initial_position import initial_position
from recordpublisher.publishers.kinesis.ports import ListingPort
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.table import LIST_SHARDS_RETRIES
from recordpublisher.publishers.retry import call_with_retries
from recordpublisher.publishers.shards import Shard
from recordpublisher.publishers.stream_arns import stream_name

from .job_positions import JobPositions, StoredPositions
from .kcl_export import ExportedLease, leases_from_states
from .kcl_import import ImportedPosition, imported_states, leases_by_stream, positions_from_leases
from .kcl_lease_table import LeaseTable, renewed_leases
from .kcl_leases import KclLease

Pause = Callable[[float], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class PositionTransfer:
    """A job and a lease table of the KCL. `streams` are the job's, by name or ARN. `watch_seconds` lie between the two looks at what may be
    running; `is_forced` goes on where an import or export would refuse."""

    job: JobPositions
    table: LeaseTable
    service: ListingPort
    streams: Sequence[str]
    properties: Properties
    watch_seconds: float
    is_forced: bool = False
    pause: Pause = asyncio.sleep

    async def plan_import(self) -> list[ImportedPosition]:
        """What the job would start from. Raises: StateError when a worker of the KCL is alive, or when the job has positions."""
        self.job.check_writable()
        check_unused(await self.job.load(), self.is_forced)
        before = await self._read_leases()
        await self.pause(self.watch_seconds)
        leases = await self._read_leases()
        self._check_workers(before, leases)
        start = initial_position(self.properties)
        by_stream = leases_by_stream(leases, [*map(stream_name, self.streams)], self.table.place)
        found: list[ImportedPosition] = []
        for given in self.streams:
            stream = stream_name(given)
            listed, now_ms = await self._list(given), await self._server_time_ms(given)
            found += positions_from_leases(by_stream[stream], listed, stream, start, now_ms)
        return found

    async def apply_import(self, plan: Sequence[ImportedPosition]) -> None:
        """Store the planned positions."""
        await self.job.store(imported_states(plan))

    async def plan_export(self) -> list[ExportedLease]:
        """The leases that would be written. Raises: StateError when either side is running, or when a row is ahead of the job."""
        before, rows_before = (await self.job.load()).merged, await self.table.read() or []
        if not before.shards:
            raise StateError("the job has stored no positions: are these its properties?")
        await self.pause(self.watch_seconds)
        restored, rows = (await self.job.load()).merged, await self.table.read() or []
        self._check_workers(rows_before, rows)
        if restored != before and not self.is_forced:
            raise StateError("the job is running: its positions have changed. Stop it first; --force goes on")
        listed = [shard for given in self.streams for shard in await self._list(given)]
        names = [*map(stream_name, self.streams)]
        plan = leases_from_states(restored, listed, initial_position(self.properties), rows, names)
        ahead = [each.shard for each in plan if each.goes_back]
        if ahead and not self.is_forced:
            raise StateError(
                f"{self.table.place} is ahead of the job, which would be read again: {', '.join(ahead)}. --force goes on"
            )
        return plan

    async def apply_export(self, plan: Sequence[ExportedLease]) -> None:
        """Write the planned leases, and create the table if there is none. Raises: StateError when a row was changed since the plan."""
        if await self.table.read() is None:
            await self.table.create()
        for each in plan:
            await self.table.write(each.lease, each.replaced)

    async def _read_leases(self) -> list[KclLease]:
        leases = await self.table.read()
        if not leases:
            there = "there is no such table" if leases is None else "the table has no leases"
            raise StateError(f"{self.table.place} cannot be imported: {there}")
        return leases

    def _check_workers(self, before: Collection[KclLease], after: Collection[KclLease]) -> None:
        renewed = renewed_leases(before, after)
        if renewed and not self.is_forced:
            owners = sorted({lease.owner or "nobody" for lease in renewed})
            raise StateError(
                f"a worker of the KCL is alive: {len(renewed)} leases of {self.table.place} changed within {self.watch_seconds:g} s, "
                f"owned by {', '.join(owners)}. Stop it first; --force goes on"
            )

    async def _list(self, stream: str) -> list[Shard]:
        policy = LIST_SHARDS_RETRIES.policy(self.properties)
        return await call_with_retries(lambda: self.service.list_shards(stream), policy)

    async def _server_time_ms(self, stream: str) -> int:
        policy = LIST_SHARDS_RETRIES.policy(self.properties)
        return await call_with_retries(lambda: self.service.server_time_ms(stream), policy)


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
