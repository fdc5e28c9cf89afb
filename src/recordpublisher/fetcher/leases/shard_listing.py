"""Lists shards for a group: finds those that the lease table does not have, and parents that are past retention (E7, S2, S3)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from msgspec import structs

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shards import Shard, stream_of

from ..shards.discovery import MissingShards
from ..shards.lineage import Children, finished_ancestors, parent_keys
from ..shards.read_state import latest
from .lease_table import Lease, LeaseTable, ShardEnd


class ShardListing:
    """Lists the shards of all streams, at most once in `interval` seconds, and finds out what has to change in the lease table.

    The leases of streams that are not listed keep their owners and positions.

    - `start`: where the group begins. LATEST was replaced by a time.
    - `is_latest`: whether `start` is a time that replaced LATEST.
    - `deleted`: the streams that this process has found deleted.
    - `not_found`: the streams that the last listing did not find.
    """

    def __init__(
        self,
        list_shards: Callable[[], Awaitable[Sequence[Shard]]],
        missing: MissingShards,
        start: StartingPosition,
        clock: Clock,
        interval: float,
        *,
        is_latest: bool = False,
        deleted: set[str] | None = None,
        not_found: Collection[str] = (),
    ) -> None:
        self._not_found = not_found
        self.deleted = set() if deleted is None else deleted
        self._list_shards = list_shards
        self._missing = missing
        self._start = start
        self._is_latest = is_latest
        self._clock = clock
        self._interval = interval
        self._listed_at: float | None = None

    def list_soon(self) -> None:
        """Let the next call of `changes` list all shards, however recent the last listing is."""
        self._listed_at = None

    async def first_table(self, writer: str) -> LeaseTable:
        """Return the first table of a group: every listed shard has a lease without an owner."""
        empty = LeaseTable(0, writer, self._start, is_latest=self._is_latest)
        changes = await self._changes(empty)
        return empty.with_changes(writer, found=changes.found)

    async def with_children(self, ends: Mapping[str, ShardEnd]) -> Mapping[str, ShardEnd]:
        """Return `ends`, with the listed children of each shard whose end names no children.

        If the table has the children when their parent ends, the group's watermark cannot pass their records.
        """
        if not (unnamed := [shard for shard, end in ends.items() if not end.children]):
            return ends
        known = Children(await self._list_shards())
        found = {shard: {child.key: tuple(parent_keys(child)) for child in known.of(shard)} for shard in unnamed}
        return {**ends, **{shard: replace(ends[shard], children=children) for shard, children in found.items()}}

    async def changes(self, table: LeaseTable) -> ListedChanges:
        """List the shards, and return the changes that follow for `table`. Return no changes if the last listing is recent."""
        now = self._clock.monotonic()
        if self._listed_at is not None and now - self._listed_at < self._interval:
            return ListedChanges()
        self._listed_at = now
        return await self._changes(table)

    async def _changes(self, table: LeaseTable) -> ListedChanges:
        listed = {shard.key: shard for shard in await self._list_shards()}
        streams = {shard.stream for shard in listed.values()}
        leases = {key: lease for key, lease in table.leases.items() if stream_of(key) in streams}
        waited_for = {parent for lease in leases.values() for parent in lease.parents}
        parents = {parent for shard in listed.values() for parent in parent_keys(shard)}
        unlisted = (leases.keys() | waited_for | parents) - listed.keys()
        await self._missing.check(unlisted, {stream_of(key) for key in unlisted | listed.keys()})
        expired = {key for key in unlisted if self._missing.is_expired(key)}
        unknown = (expired & waited_for) - table.leases.keys()
        # An old listing may show a shard that was read to its end and removed from the table, but not the later shards that prove
        # it. Its stream is left unchanged until the next listing, so that the shard is not read again.
        if old := {stream_of(key) for key in (leases.keys() | parents) - listed.keys() - expired}:
            self.list_soon()
            listed = {key: shard for key, shard in listed.items() if shard.stream not in old}
            leases = {key: lease for key, lease in leases.items() if stream_of(key) not in old}
        children = _children_of([key for key, lease in leases.items() if lease.has_unknown_children], listed)
        gone = {key for key in expired & leases.keys() - children.keys() if leases[key].has_unknown_children}
        found = _unknown_leases(table, listed, expired, gone)
        found = {key: self._seen_now(lease) for key, lease in found.items()}
        return ListedChanges(found, unknown | gone, children, self._of_deleted_streams(table))

    def _seen_now(self, lease: Lease) -> Lease:
        """Return `lease`, with the current time as its `seen_ms` if it is not known when the shard began.

        It is known if the shard was in the first listing, if the lease names parents, or if `seen_ms` is set.
        """
        is_known = lease.is_first or lease.parents or lease.seen_ms is not None
        return lease if is_known else structs.replace(lease, seen_ms=self._clock.now_ms())

    def _of_deleted_streams(self, table: LeaseTable) -> tuple[str, ...]:
        streams = {stream_of(key) for key in table.leases}.intersection(self._not_found)
        streams -= {stream_of(key) for key, lease in table.leases.items() if lease.owner is not None}
        return tuple(key for key in table.leases if stream_of(key) in streams)


@dataclass(frozen=True, slots=True)
class ListedChanges:
    """The changes of the lease table that follow from a listing.

    - `found`: leases to add.
    - `expired`: shards past retention that no listing shows. They are parents that the table lacks and for which its shards wait, and ended
      shards without known children.
    - `children`: the children of each ended shard whose last read did not name them.
    - `deleted`: leases of streams that do not exist. They must be removed, because shards of a later stream with the same name would
      continue at their positions.
    """

    found: Mapping[str, Lease] = field(default_factory=dict)
    expired: Collection[str] = ()
    children: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    deleted: Collection[str] = ()

    def __bool__(self) -> bool:
        return bool(self.found or self.expired or self.children or self.deleted)


def _unknown_leases(
    table: LeaseTable, listed: Mapping[str, Shard], expired: Set[str], gone: Iterable[str]
) -> dict[str, Lease]:
    """Return a lease for each listed shard that is new. A shard that was removed from the table after its end is not new.

    - `expired`: parents that are past retention.
    - `gone`: ended shards whose children are past retention and were never read. A new shard of their stream with an expired parent gets
      their latest `seen_ms`, so that the gap is noticed.
    """
    seen: dict[str, int | None] = {}
    for key in gone:
        seen[stream_of(key)] = latest(seen.get(stream_of(key)), table.leases[key].seen_ms)
    begun = (listed[key] for key, lease in table.leases.items() if key in listed and lease.was_owned)
    finished = finished_ancestors(begun, listed) - table.leases.keys()
    unread = expired - finished - table.leases.keys()
    streams = {stream_of(shard) for shard in table.leases}
    return {
        key: Lease(
            # A parent in the table is waited for even if it is past retention: it is marked as ended first, and passes its watermark
            # on.
            parents=tuple(
                parent
                for parent in parent_keys(shard)
                if parent not in finished and (parent in table.leases or parent not in expired)
            ),
            is_first=shard.stream not in streams,
            seen_ms=None if unread.isdisjoint(parent_keys(shard)) else seen.get(shard.stream),
        )
        for key, shard in sorted(listed.items())
        if key not in table.leases and key not in finished
    }


def _children_of(parents: Collection[str], listed: Mapping[str, Shard]) -> dict[str, tuple[str, ...]]:
    known = Children(listed.values() if parents else ())
    children = {parent: tuple(sorted(child.key for child in known.of(parent))) for parent in parents}
    return {parent: found for parent, found in children.items() if found}
