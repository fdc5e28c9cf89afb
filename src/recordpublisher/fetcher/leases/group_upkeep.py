"""One worker's work for its group: it adds listed shards, and removes documents of deleted streams and dead workers (E7, E12)."""

from collections.abc import Iterable

from recordpublisher.publishers.shards import stream_of

from .group_store import GroupStore, TableCache
from .planning import GroupView
from .position_store import PositionStore
from .shard_listing import ShardListing


class GroupUpkeep:
    """Keeps the lease table complete, and deletes documents that no process needs. Only the member whose name sorts first does this work.

    A dead (sealed) worker may still be writing the lease table, to acquire shards. Its documents are deleted only after a later version of
    the table is stored that does not name the worker. Then its write can no longer take effect.
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
        """Write the first table, if there is none. Return whether a write was tried."""
        if self._cache.table is not None:
            return False
        await self._cache.replace(await self._listing.first_table(self._worker))
        return True

    async def add_listed_shards(self, view: GroupView) -> bool:
        """Add leases for shards that a listing has shown. Return whether a write was tried."""
        if not self._is_first(view):
            return False
        changes = await self._listing.changes(view.table)
        if not changes:
            return False
        after = view.table.with_changes(
            self._worker,
            found=changes.found,
            expired=changes.expired,
            children=changes.children,
            deleted=changes.deleted,
        )
        await self._cache.replace(after)
        return True

    def forget_deleted(self, kept: Iterable[str]) -> None:
        """Forget the deleted streams of which this worker holds no shard: streams with their names may have been created again.

        `kept`: the shards that this worker holds.
        """
        self._listing.deleted.intersection_update({stream_of(shard) for shard in kept})

    async def remove_deleted(self) -> bool:
        """Remove the leases of streams that this worker has found deleted. Return whether a write was tried.

        A later stream of the same name has shards with the same ids. They must not be read from the positions of the deleted stream.
        """
        table, deleted = self._cache.table, self._listing.deleted
        gone = set() if table is None else {shard for shard in table.leases if stream_of(shard) in deleted}
        if table is None or not gone:
            return False
        await self._cache.replace(table.with_changes(self._worker, deleted=gone))
        self._listing.list_soon()
        return True

    async def clean(self, view: GroupView) -> None:
        """Delete the documents of sealed workers that no lease names.

        This needs two calls, because the documents are deleted only after a later version of the lease table is stored.

        Raises: StateError if the documents cannot be used.
        """
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
            await self._cache.replace(table.with_changes(self._worker, cleaned=left))
        for worker in sorted(left):
            table = self._cache.table
            if table is None or table.version <= self._first_versions[worker] or worker in table.owners:
                continue
            if await self._positions.delete(worker):
                await self._group.delete_worker(worker)

    def _is_first(self, view: GroupView) -> bool:
        return view.members[:1] == (self._worker,)
