"""ShardListing: which listed shards the lease table does not have, and which parents have expired (E7, S2, S3)."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shards import Shard

from ..shards.lineage import finished_ancestors, parent_keys
from ..shards.missing_shards import MissingShards
from .documents.lease_table import Lease, LeaseTable


@dataclass(frozen=True, slots=True)
class ListedChanges:
    """Leases to add to the table, and unknown parents that nobody needs to wait for."""

    found: Mapping[str, Lease] = field(default_factory=dict)
    expired: Collection[str] = ()

    def __bool__(self) -> bool:
        return bool(self.found or self.expired)


class ShardListing:
    """Lists the shards of all streams, at most once in `interval` seconds. `start` is where the group begins (LATEST is pinned: P3).

    Nothing is found out about the leases of streams that are not listed: they keep their owners and positions (E12).
    """

    def __init__(
        self,
        list_shards: Callable[[], Awaitable[Sequence[Shard]]],
        missing: MissingShards,
        start: StartingPosition,
        clock: Clock,
        interval: float,
    ) -> None:
        self._list_shards = list_shards
        self._missing = missing
        self._start = start
        self._clock = clock
        self._interval = interval
        self._listed_at: float | None = None

    def list_soon(self) -> None:
        """Other streams are listed now."""
        self._listed_at = None

    async def first_table(self, writer: str) -> LeaseTable:
        """The first table of a group."""
        empty = LeaseTable(0, writer, self._start)
        changes = await self._changes(empty)
        return LeaseTable(1, writer, self._start, changes.found)

    async def changes(self, table: LeaseTable) -> ListedChanges:
        """What a listing changes in this table; nothing while the last listing is young."""
        now = self._clock.monotonic()
        if self._listed_at is not None and now - self._listed_at < self._interval:
            return ListedChanges()
        self._listed_at = now
        return await self._changes(table)

    async def _changes(self, table: LeaseTable) -> ListedChanges:
        listed = {shard.key: shard for shard in await self._list_shards()}
        streams = {shard.stream for shard in listed.values()}
        leases = {key: lease for key, lease in table.leases.items() if key.rpartition("/")[0] in streams}
        waited_for = {parent for lease in leases.values() for parent in lease.parents}
        parents = {parent for shard in listed.values() for parent in parent_keys(shard)}
        unlisted = (leases.keys() | waited_for | parents) - listed.keys()
        await self._missing.check(unlisted, {key.rpartition("/")[0] for key in unlisted | listed.keys()})
        expired = {key for key in unlisted if self._missing.is_expired(key)}
        if not leases.keys() <= listed.keys() | expired:
            return ListedChanges()  # an old listing: it may show a shard whose children, which were read, it lacks
        return ListedChanges(_unknown_leases(table, listed, expired), (expired & waited_for) - table.leases.keys())


def _unknown_leases(table: LeaseTable, listed: Mapping[str, Shard], expired: Collection[str]) -> dict[str, Lease]:
    """The leases of listed shards that the table does not have, nor had until they were finished: none comes back as a new shard."""
    begun = (listed[key] for key, lease in table.leases.items() if key in listed and lease.was_owned)
    finished = finished_ancestors(begun, listed) - table.leases.keys()
    streams = {shard.rpartition("/")[0] for shard in table.leases}
    return {
        key: Lease(
            parents=tuple(parent for parent in parent_keys(shard) if parent not in finished and parent not in expired),
            is_first=shard.stream not in streams,
        )
        for key, shard in sorted(listed.items())
        if key not in table.leases and key not in finished
    }
