"""Moves shards between workers: a worker releases shards (E5), and takes free ones (E3, E5). `planning.py` decides which."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping

from recordpublisher.publishers.clock import Clock, wait_until_set
from recordpublisher.publishers.errors import FencedError, ImpossibleStateError, StateError
from recordpublisher.publishers.safe_text import few_of

from .group_store import MAX_ATTEMPTS, MissingPositionsError, TableCache
from .heartbeat import Heartbeat
from .lease_settings import HANDOVER_SECONDS, LEAVING_POLL_SECONDS, LeaseSettings
from .lease_table import LeaseTable, ShardEnd
from .owned_leases import OwnedLeases
from .planning import GroupView, StatedLoadLevels
from .position_commits import PositionCommits
from .position_documents import PositionKey, Positions, StoredPosition
from .position_store import PositionStore, ShardReaders
from .shard_listing import ShardListing

log = logging.getLogger("recordpublisher.group")
MAX_PAUSE_SECONDS = 5.0
"""The longest pause between two checkpoints while the sink has records of a released shard to finish (seconds).

The pause doubles up to this value, or up to `LEAVING_POLL_SECONDS` if the worker is leaving. Therefore a transfer takes at most twice as
long as the sink needs, and a slow transfer costs few writes.
"""
WARN_SECONDS = 60.0


class LeaseGiver:
    """Releases shards that other workers should have, or all shards if the worker is leaving.

    A shard is released when the sink has finished all records that it has received, and the position is stored (`take_checkpoint`). A
    stopped shard is not read again under the same lease. `on_sink_error` is called with an error of the sink. If it is None, `run` raises
    the error.
    """

    def __init__(
        self,
        owned: OwnedLeases,
        readers: ShardReaders,
        heartbeat: Heartbeat,
        take_checkpoint: Callable[[], Awaitable[None]],
        on_sink_error: Callable[[Exception], None] | None = None,
    ) -> None:
        self._owned = owned
        self._readers = readers
        self._heartbeat = heartbeat
        self._take_checkpoint = take_checkpoint
        self._on_sink_error = on_sink_error
        self._requested: set[str] = set()
        self._has_work = asyncio.Event()
        self.is_leaving = False
        """Whether the worker releases all shards and acquires none."""

    @property
    def is_busy(self) -> bool:
        """Whether shards still wait to be released."""
        return bool(self._requested)

    def request(self, shards: Collection[str]) -> None:
        """Release these shards soon."""
        if shards:
            self._requested |= set(shards)
            self._has_work.set()

    def announce(self) -> None:
        """Note that this worker will release all shards soon, so it must acquire no more of them."""
        self.is_leaving = True

    def leave(self) -> None:
        """Release all shards, and then let `run` return."""
        self.is_leaving = True
        self._has_work.set()

    async def run(self, retry: Callable[[Callable[[], Awaitable[None]]], Awaitable[None]]) -> None:
        """Release requested shards until the worker has left.

        `retry`: calls a function again until the store answers.
        """
        pause, waited = HANDOVER_SECONDS, 0.0
        while True:
            await self._wait_for_work(pause if self._requested else None)
            # Read before the round: if the worker starts to leave during the round, another round must release the other shards.
            is_last = self.is_leaving
            try:
                await retry(self.give_once)
            except (FencedError, StateError, ImpossibleStateError):
                # This worker has ended: it was replaced, or its positions cannot be trusted.
                raise
            except Exception as error:
                if self._on_sink_error is None:
                    raise
                self._requested.clear()
                self._on_sink_error(error)
                continue
            if not self._requested:
                pause, waited = HANDOVER_SECONDS, 0.0
                if is_last:
                    return
                continue
            waited += pause
            # A process that ends should not wait when its last record is handled.
            pause = min(2 * pause, LEAVING_POLL_SECONDS if self.is_leaving else MAX_PAUSE_SECONDS)
            if waited >= WARN_SECONDS:
                waited = 0.0
                log.warning(
                    "shards wait to be transferred to other workers, because the sink has not finished their records: %s",
                    few_of(sorted(self._requested)),
                )

    async def give_once(self) -> None:
        """Release the requested shards, or all shards if the worker is leaving.

        Raises: FencedError if the worker was sealed; StateError if the positions cannot be stored.
        """
        if self.is_leaving:
            await self._heartbeat.write()  # After this heartbeat no plan gives this worker a shard.
            self._requested |= set(self._owned.shards)
        requested = set(self._requested)
        leases = self._owned.leases_of(requested)
        await self._readers.stop(leases.keys())
        self._owned.stop(leases)
        await self._take_checkpoint()
        await self._heartbeat.write()
        self._requested -= requested - self._owned.unfinished

    async def _wait_for_work(self, seconds: float | None) -> None:
        await wait_until_set(self._has_work, seconds)
        self._has_work.clear()


class LeaseTaker:
    """Acquires free shards for this worker."""

    def __init__(
        self,
        worker: str,
        cache: TableCache,
        owned: OwnedLeases,
        positions: PositionStore,
        commits: PositionCommits,
        heartbeat: Heartbeat,
        loads: StatedLoadLevels,
        listing: ShardListing,
        clock: Clock,
        settings: LeaseSettings,
    ) -> None:
        self._worker = worker
        self._cache = cache
        self._owned = owned
        self._positions = positions
        self._commits = commits
        self._heartbeat = heartbeat
        self._loads = loads
        self._listing = listing
        self._clock = clock
        self._settings = settings
        self._free_since: dict[PositionKey, float] = {}

    @property
    def free_seconds(self) -> dict[str, float]:
        """How long each free shard has been seen free (seconds)."""
        now = self._clock.monotonic()
        return {key.shard: now - since for key, since in self._free_since.items()}

    async def take(self, view: GroupView, plan: Mapping[str, str]) -> bool:
        """Acquire the free shards that this worker should have. Return whether the lease table may have changed.

        The positions of these shards are stored before the lease table is written. If the outcome of that write is unknown, it is repeated
        on the same version of the table.

        Raises: FencedError if this worker was sealed; StateError if a stored position is missing or cannot be read.
        """
        again = self._owned.prepared_at(view.table.version)
        self._observe_free(view)
        wanted = view.shards_to_take(self._worker, plan, self.free_seconds, self._settings) - again.keys()
        if not wanted and not again:
            return False
        table = await self._cache.read()
        if table is None or table.version != view.table.version:
            return True
        ended = await self._prepare(view, wanted)
        if ended is None:
            return True
        if self._owned.prepared_at(table.version):
            await self._commits.store_prepared()
            # This record counts the shards for the watermark. It must be stored before the former owners may stop counting
            # them (E8).
            await self._heartbeat.write()
        await self._write(table, ended)
        return True

    async def _write(self, before: LeaseTable, ended: Mapping[str, ShardEnd]) -> None:
        """Write the lease table.

        If another worker was faster, write again on that worker's version, without the leases that it has changed.

        Each further attempt begins with a heartbeat, which fails if this worker was sealed. A sealed worker must not write.

        - `before`: the table for which the positions were prepared.
        - `ended`: the ends to write, of shards that turned out to have ended.
        """
        taken: Mapping[str, int] = self._owned.prepared_at(before.version)
        for _ in range(MAX_ATTEMPTS):
            table = self._cache.table or before
            taken = {shard: each for shard, each in taken.items() if table.leases.get(shard) == before.leases[shard]}
            ended = {shard: each for shard, each in ended.items() if table.leases.get(shard) == before.leases[shard]}
            if not taken and not ended:
                return
            self._owned.on_take(taken, table.version)
            if await self._cache.replace(table.with_changes(self._worker, taken=taken, ended=ended)):
                return
            # The documents of a sealed worker may be deleted by now, and the table would name the worker.
            await self._heartbeat.write()

    def _observe_free(self, view: GroupView) -> None:
        now = self._clock.monotonic()
        free = {PositionKey(shard, view.table.leases[shard].epoch) for shard in view.free_shards()}
        self._free_since = {key: self._free_since.get(key, now) for key in free}

    async def _prepare(self, view: GroupView, shards: Collection[str]) -> Mapping[str, ShardEnd] | None:
        """Keep the positions of the shards to acquire, so that the next commit stores them.

        Shards that were read to their end are not acquired. Return the end of each of them.

        Return None if the table has changed during the call.
        """
        ended: dict[str, ShardEnd] = {}
        by_owner: dict[str | None, list[str]] = {}
        for shard in sorted(shards):
            by_owner.setdefault(view.table.leases[shard].owner, []).append(shard)
        for owner, theirs in by_owner.items():
            positions = {} if owner is None else await self._positions_of(view, owner)
            for shard in theirs:
                stored = _stored_position(view.table, shard, positions)
                if stored is None:
                    await self._fail_unless_changed(view.table, shard)
                    return None
                if stored.state.ended:
                    ended[shard] = ShardEnd(stored.state.watermark, stored.children, stored.state.seen_ms)
                else:
                    self._loads.inherit(shard, view.load_level(shard))
                    self._owned.prepare_take(shard, view.table.version, stored, had_owner=owner is not None)
        return await self._listing.with_children(ended)

    async def _positions_of(self, view: GroupView, owner: str) -> Positions:
        record = view.records[owner]
        return await (self._positions.seal(record) if record.is_sealed else self._positions.read(record))

    async def _fail_unless_changed(self, before: LeaseTable, shard: str) -> None:
        """Raise MissingPositionsError for a shard without a stored position, but only if the lease table has not changed since `before`.

        In a newer table the shard may have another owner. Then the old owner was right to drop the position.
        """
        table = await self._cache.read()
        if table is None or table.version == before.version:
            # The table has the job of this start, which is not the one that has stored the positions.
            raise MissingPositionsError.of(shard, self._cache.place, None)


def _stored_position(table: LeaseTable, shard: str, positions: Positions) -> StoredPosition | None:
    lease = table.leases[shard]
    if lease.owner is None:
        return StoredPosition(table.initial_state(shard))
    return positions.get(PositionKey(shard, lease.epoch))
