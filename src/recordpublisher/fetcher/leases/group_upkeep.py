"""GroupUpkeep: what one worker does for its group: adds listed shards, and deletes what sealed workers have left (E7, E12)."""

from .documents.group_store import GroupStore
from .documents.table_cache import TableCache
from .planning.group_view import GroupView
from .position_store import PositionStore
from .shard_listing import ShardListing


class GroupUpkeep:
    """Owns which version of the table was the first to be read after a worker was seen sealed.

    A sealed worker may have a take under way. It can only take effect at the version that the worker has read. So once the table has moved
    on and does not name the worker, it never will.
    """

    def __init__(
        self, worker: str, group: GroupStore, cache: TableCache, positions: PositionStore, listing: ShardListing
    ) -> None:
        self._worker = worker
        self._listing = listing
        self._group = group
        self._cache = cache
        self._positions = positions
        self._first_versions: dict[str, int] = {}

    async def create_if_missing(self) -> bool:
        """Write the first table, if there is none. Returns whether that was tried."""
        if self._cache.table is not None:
            return False
        await self._cache.replace(await self._listing.first_table(self._worker))
        return True

    async def add_listed_shards(self, view: GroupView) -> bool:
        """Add shards that were found by listing. Returns whether that was tried."""
        if not self._is_first(view):
            return False
        changes = await self._listing.changes(view.table)
        if not changes:
            return False
        await self._cache.replace(view.table.after(self._worker, found=changes.found, expired=changes.expired))
        return True

    async def clean(self, view: GroupView) -> None:
        """Delete what sealed workers have left, or prepare to. Raises: StateError."""
        sealed = {worker for worker, record in view.records.items() if record.is_sealed}
        left = sealed - view.table.owners
        self._first_versions = {worker: each for worker, each in self._first_versions.items() if worker in left}
        if not left or not self._is_first(view):
            return
        if left - self._first_versions.keys():
            table = await self._cache.read()
            if table is not None:
                self._first_versions |= dict.fromkeys(left - self._first_versions.keys(), table.version)
            return
        if (table := self._cache.table) is not None and (
            left & table.drained or any(table.version == self._first_versions[worker] for worker in left)
        ):
            await self._cache.replace(table.after(self._worker, cleaned=left))
        for worker in sorted(left):
            table = self._cache.table
            if table is not None and table.version > self._first_versions[worker] and worker not in table.owners:
                await self._positions.delete(worker)
                await self._group.delete_worker(worker)

    def _is_first(self, view: GroupView) -> bool:
        """Whether it falls to this worker."""
        return view.members[:1] == (self._worker,)
