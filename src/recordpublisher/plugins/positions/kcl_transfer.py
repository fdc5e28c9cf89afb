"""Moves positions between a job and a lease table of the KCL: reads both sides twice, plans, then writes.

A plan alone is the dry run.
"""

import asyncio
import functools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.initial_position import initial_position
from recordpublisher.publishers.kinesis.ports import ListingPort
from recordpublisher.publishers.log_fields import counted
from recordpublisher.publishers.properties.groups.reading import LIST_SHARDS_RETRIES
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.retry import call_with_retries
from recordpublisher.publishers.shards import Shard
from recordpublisher.publishers.stream_arns import stream_name

from .job_positions import ImportedPosition, JobPositions, imported_states
from .kcl_export import ExportedLease, leases_from_states
from .kcl_import import leases_by_stream, positions_from_leases
from .kcl_lease_table import KclLease, KclLeaseTable

HEARTBEATS_WATCHED = 2
"""Heartbeat intervals to wait, because a heartbeat may be late."""
Pause = Callable[[float], Awaitable[None]]
T = TypeVar("T")


@dataclass(frozen=True)
class KclTransfer:
    """A job and a lease table, which may hold several streams.

    - `streams`: the job's streams, by name or ARN.
    - `watch_seconds`: pause between the two reads of each side, which may be running (seconds).
    - `is_forced`: continue where an import or export would refuse.
    """

    job: JobPositions
    table: KclLeaseTable
    service: ListingPort
    streams: Sequence[str]
    properties: Properties
    watch_seconds: float
    is_forced: bool = False
    pause: Pause = asyncio.sleep

    async def plan_import(self) -> list[ImportedPosition]:
        """Return the positions from which the job would start. Raises: StateError if the KCL is running, or if the job has positions."""
        self.job.check_writable()
        (await self.job.load()).check_unused(self.is_forced)
        before, heartbeats = await self._read_leases(), await self._pause_for_heartbeats()
        leases = await self._read_leases()
        self._check_stopped(before, leases)
        await self._check_heartbeats(heartbeats)
        return await self._imported(leases)

    async def apply_import(self, plan: Sequence[ImportedPosition]) -> None:
        """Store the planned positions."""
        await self.job.store(imported_states(plan))

    async def plan_export(self) -> list[ExportedLease]:
        """Return the leases that would be written.

        Raises: StateError if the job has no positions, if either side is running, or if a lease is ahead of the job.
        """
        before, leases_before = (await self.job.load()).merged, await self.table.read() or []
        if not before.shards:
            raise StateError(f"the job has stored no positions in {self.job.place}: are these its properties?")
        heartbeats = await self._pause_for_heartbeats()
        restored, leases = (await self.job.load()).merged, await self.table.read() or []
        self._check_stopped(leases_before, leases)
        await self._check_heartbeats(heartbeats)
        if restored != before and not self.is_forced:
            raise StateError("the job is running: its positions have changed. Stop it first; --force continues")
        listed = [shard for stream in self.streams for shard in await self._list(stream)]
        names = [*map(stream_name, self.streams)]
        plan = leases_from_states(restored, listed, initial_position(self.properties), leases, names)
        ahead = [exported.shard for exported in plan if exported.goes_back]
        if ahead and not self.is_forced:
            raise StateError(
                f"{self.table.place} is ahead of the job, which would be read again: {', '.join(ahead)}. --force continues"
            )
        return plan

    async def apply_export(self, plan: Sequence[ExportedLease]) -> None:
        """Write the planned leases, and create the table if there is none. Raises: StateError if a row was changed since the plan."""
        if await self.table.read() is None:
            await self.table.create()
        for exported in plan:
            await self.table.write(exported.written, exported.replaced)

    async def _imported(self, leases: Sequence[KclLease]) -> list[ImportedPosition]:
        start = initial_position(self.properties)
        by_stream = leases_by_stream(leases, [*map(stream_name, self.streams)], self.table.place)
        plan: list[ImportedPosition] = []
        for stream in self.streams:
            name, listed = stream_name(stream), await self._list(stream)
            now_ms = await self._retried(functools.partial(self.service.server_time_ms, stream))
            begin = start if start.is_tip else start.pinned_at(now_ms)
            plan += positions_from_leases(by_stream[name], listed, name, begin, now_ms)
        return plan

    async def _read_leases(self) -> list[KclLease]:
        leases = await self.table.read()
        if not leases:
            there = "there is no such table" if leases is None else "the table has no leases"
            raise StateError(f"{self.table.place} cannot be imported: {there}")
        return leases

    def _check_stopped(self, before: Sequence[KclLease], after: Sequence[KclLease]) -> None:
        renewed = renewed_leases(before, after)
        if renewed and not self.is_forced:
            owners = ", ".join(sorted({lease.owner or "no worker" for lease in renewed}))
            raise StateError(
                f"a worker of the KCL is alive: {counted(len(renewed), 'lease')} of {self.table.place} changed within "
                f"{self.watch_seconds:g} s, owned by {owners}. Stop it first; --force continues"
            )

    async def _pause_for_heartbeats(self) -> Mapping[str, int]:
        """Pause between the two reads, and return the heartbeats from before. On a quiet stream they are all that a group changes."""
        before = await self.job.heartbeats()
        await self.pause(max(self.watch_seconds, HEARTBEATS_WATCHED * self.job.heartbeat_seconds if before else 0.0))
        return before

    async def _check_heartbeats(self, before: Mapping[str, int]) -> None:
        after = await self.job.heartbeats()
        live = sorted(worker for worker, beat in after.items() if before.get(worker) != beat)
        if live and not self.is_forced:
            raise StateError(
                f"the job is running: worker {', '.join(live)} of its group sends heartbeats. Stop it first; --force continues"
            )

    async def _list(self, stream: str) -> list[Shard]:
        return await self._retried(lambda: self.service.list_shards(stream))

    async def _retried(self, call: Callable[[], Awaitable[T]]) -> T:
        return await call_with_retries(call, LIST_SHARDS_RETRIES.policy(self.properties))


def renewed_leases(before: Sequence[KclLease], after: Sequence[KclLease]) -> list[KclLease]:
    """Return new leases, and leases whose counter or owner changed between two reads. They show that a worker is running."""
    known = {lease.key: (lease.counter, lease.owner) for lease in before}
    return [lease for lease in after if known.get(lease.key) != (lease.counter, lease.owner)]
