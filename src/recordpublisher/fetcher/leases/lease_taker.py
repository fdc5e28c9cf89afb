"""Takes free shards for this worker: prepares their positions, then writes the table (E3, E5).

`planning/group_view.py` decides which shards.
"""

from collections.abc import Collection, Mapping

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import StateError

from .documents.group_store import MAX_ATTEMPTS
from .documents.lease_table import LeaseTable, ShardEnd
from .documents.position_part import PositionKey, Positions, StoredPosition
from .documents.table_cache import TableCache
from .heartbeat import Heartbeat
from .lease_settings import LeaseSettings
from .owned_leases import OwnedLeases
from .planning.group_view import GroupView
from .planning.shard_loads import LoadLevels
from .position_commits import PositionCommits
from .position_store import PositionStore


class LeaseTaker:
    """Owns since when each free shard was seen free."""

    def __init__(
        self,
        worker: str,
        cache: TableCache,
        owned: OwnedLeases,
        positions: PositionStore,
        commits: PositionCommits,
        heartbeat: Heartbeat,
        loads: LoadLevels,
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
        self._clock = clock
        self._settings = settings
        self._free_since: dict[PositionKey, float] = {}

    @property
    def free_seconds(self) -> dict[str, float]:
        """How long each free shard has been seen free (seconds)."""
        now = self._clock.monotonic()
        return {key.shard: now - since for key, since in self._free_since.items()}

    async def take(self, view: GroupView, plan: Mapping[str, str]) -> bool:
        """Take the free shards that this worker should take. Return whether the lease table may have changed.

        If the outcome of a take is unknown, the same take is repeated at the same version. A prepared position is dropped only when a
        version later than the one that the take replaces shows that the take failed.

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
            await (
                self._heartbeat.write()
            )  # this record counts the shards before the workers that release them may stop counting them (E8)
        await self._write(table, ended)
        return True

    async def _write(self, before: LeaseTable, ended: Mapping[str, ShardEnd]) -> None:
        """Write the table. If another worker was faster, repeat the take on its version, for those leases that have not changed.

        Only a worker that is not sealed may repeat the take, because what a sealed worker left is deleted once the table has a later
        version (E12).
        """
        taken: Mapping[str, int] = self._owned.prepared_at(before.version)
        for _ in range(MAX_ATTEMPTS):
            table = self._cache.table or before
            taken = {shard: each for shard, each in taken.items() if table.leases.get(shard) == before.leases[shard]}
            ended = {shard: each for shard, each in ended.items() if table.leases.get(shard) == before.leases[shard]}
            if not taken and not ended:
                return
            self._owned.on_take(taken, table.version)
            if await self._cache.replace(table.after(self._worker, taken=taken, ended=ended)):
                return
            await self._heartbeat.write()

    def _observe_free(self, view: GroupView) -> None:
        now = self._clock.monotonic()
        free = {PositionKey(shard, view.table.leases[shard].epoch) for shard in view.free_shards()}
        self._free_since = {key: self._free_since.get(key, now) for key in free}

    async def _prepare(self, view: GroupView, shards: Collection[str]) -> dict[str, ShardEnd] | None:
        """Prepare the shards that can still be read, and return those that were read to their end (E7).

        Return None if the table has changed in the meantime.
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
                    self._owned.prepare(shard, view.table.version, stored, had_owner=owner is not None)
        return ended

    async def _positions_of(self, view: GroupView, owner: str) -> Positions:
        record = view.records[owner]
        return await (self._positions.seal(record) if record.is_sealed else self._positions.read(record))

    async def _fail_unless_changed(self, before: LeaseTable, shard: str) -> None:
        """Check, because a position is missing, whether the table has changed.

        The owner may have seen a later table in which it does not own the shard. Otherwise the position was deleted.

        Raises: StateError if the table has not changed.
        """
        table = await self._cache.read()
        if table is None or table.version == before.version:
            lease = before.leases[shard]
            raise StateError(
                f"the position of {shard} is missing: worker {lease.owner} must have stored it. If it was written by a sink that keeps "
                "positions, it is with the rows of that sink: start with that one again, or take the positions along with "
                "`recordpublisher positions`"
            )


def _stored_position(table: LeaseTable, shard: str, positions: Positions) -> StoredPosition | None:
    lease = table.leases[shard]
    if lease.owner is None:
        return StoredPosition(table.initial_state(shard))
    return positions.get(PositionKey(shard, lease.epoch))
