"""Reads the group's documents, measures for how long each heartbeat has not changed, and seals silent workers (declares them dead, E3)."""

import asyncio
import logging
from collections.abc import Iterable, Set
from dataclasses import replace

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.shards import stream_of

from ..conditional_store import ConflictError, Stored
from .group_store import GroupStore, TableCache, WorkerRecord
from .heartbeat import SilenceObserver
from .lease_settings import LeaseSettings
from .planning import GroupView
from .position_store import PositionStore
from .shard_listing import ShardListing

log = logging.getLogger("recordpublisher.group")


class GroupObserver:
    """Keeps what one worker has observed of the others: how long each has been silent, and since when the members are the same.

    Times are measured by a clock that also runs while the machine sleeps. A read of the group's documents that the machine's sleep has
    interrupted took too long, and is not used.
    """

    def __init__(
        self, group: GroupStore, cache: TableCache, clock: Clock, worker: str, settings: LeaseSettings
    ) -> None:
        self._group = group
        self._cache = cache
        self._clock = clock
        self._worker = worker
        self._settings = settings
        self._silence = SilenceObserver(2 * settings.interval)
        self._records: dict[str, Stored[WorkerRecord]] = {}
        self._consistent_since = 0
        self._members: tuple[str, ...] = ()
        self._members_since = 0.0
        self._sealed_since: dict[str, float] = {}
        self._late: set[str] = set()

    @property
    def members(self) -> frozenset[str]:
        """The workers that were in the group at the last read, without those that were sealed (declared dead) or are leaving."""
        return frozenset(self._members)

    @property
    def has_looked(self) -> bool:
        """Whether the group was read at least once. Before that `members` is empty, which proves nothing."""
        return bool(self._records)

    @property
    def never_moved(self) -> frozenset[str]:
        """The members of which this worker has seen no new heartbeat yet. They may have been killed before this worker joined."""
        return self.members & self._silence.never_moved

    @property
    def is_settled(self) -> bool:
        """Whether the members have been the same for two intervals. Only then are shards moved between running workers (E6)."""
        return self._clock.boottime() - self._members_since > 2 * self._settings.interval

    @property
    def sealed_for_long(self) -> frozenset[str]:
        """The workers that were seen sealed (declared dead) for longer than the tracker timeout. They no longer hold back the watermark
        (E8).
        """
        latest = self._clock.boottime() - self._settings.tracker_timeout
        return frozenset(worker for worker, since in self._sealed_since.items() if since < latest)

    @property
    def late(self) -> Set[str]:
        """The workers that, at the last read, had sent no heartbeat for half of their lease, which is two of their intervals."""
        return self._late

    async def look(self) -> GroupView | None:
        """Read the group's documents.

        Return None if there is no lease table, or if the read took longer than an interval, because it then shows an old state (E8).
        """
        began = self._clock.boottime()
        if self._cache.is_older_than(0):
            await self._cache.read()
        sent, records = await self._read_records()
        if self._cache.is_older_than(max((each.document.table_version for each in records.values()), default=0)):
            await self._cache.read()
            (
                sent,
                records,
            ) = await self._read_records()  # Records are read again because none of them may be older than the table.
        now, table = self._clock.boottime(), self._cache.table
        if table is None or now - began > self._settings.interval:
            return None
        # A worker that runs alone sends no heartbeats. The table shows whether it runs.
        records = {
            name: each for name, each in records.items() if each.document.is_sealed or not each.document.is_alone
        }
        beats = {name: each.document.beat for name, each in records.items() if not each.document.is_sealed}
        self._silence.observe(beats, sent, now)
        sealed = records.keys() - beats.keys()
        self._sealed_since = {worker: self._sealed_since.get(worker, now) for worker in sealed}
        view = GroupView(table, {name: each.document for name, each in records.items()})
        self._observe_late(view)
        if view.members != self._members:
            self._members, self._members_since = view.members, now
        return view

    async def seal_silent(self, view: GroupView) -> GroupView:
        """Seal (declare dead) each worker that has sent no heartbeat for its lease duration. Return the view with the sealed records."""
        sealed: dict[str, WorkerRecord] = {}
        for worker in sorted(self._silent(view, 1)):
            try:
                sealed[worker] = await self._group.seal_record(self._records[worker])
            # The worker has sent a heartbeat in the meantime, or another process has sealed it.
            except ConflictError:
                continue
            log.warning(
                "worker %s sent no heartbeat for %g s: it was sealed (it counts as ended), and other workers "
                "acquire its shards",
                worker,
                self._lease_of(view.records[worker]),
            )
        return replace(view, records={**view.records, **sealed}) if sealed else view

    def _observe_late(self, view: GroupView) -> None:
        late = self._silent(view, 0.5)
        for worker in late - self._late:
            lease = self._lease_of(view.records[worker])
            text = "worker %s has sent no heartbeat for %g s: after %g s it is sealed, and others take its shards"
            log.warning(text, worker, lease / 2, lease)
        self._late = late

    def _silent(self, view: GroupView, share: float) -> set[str]:
        """Return the other workers that have sent no heartbeat for this share of their lease."""
        leases = {name: self._lease_of(view.records[name]) * share for name in view.unsealed}
        return self._silence.silent_for(leases) - {self._worker}

    def _lease_of(self, record: WorkerRecord) -> float:
        """Return the lease duration of a worker in seconds: the longer one of that worker's own and this worker's.

        They differ while the setting is changed worker by worker.
        """
        return max(self._settings.duration, (record.lease_ms or 0) / 1000)

    async def _read_records(self) -> tuple[float, dict[str, Stored[WorkerRecord]]]:
        """Read the worker records. Return when the call was sent, and the records, none of which is older than the lease table.

        An owner that the table names must count its shards in its record (E8), so the first read after a new table is consistent. Later
        reads need not be, but a record is never replaced by an older one.
        """
        version, before = self._cache.version, self._records
        sent, is_consistent = self._clock.boottime(), version != self._consistent_since
        records = await self._group.read_records(consistent=is_consistent)
        if not is_consistent and before.keys() - records.keys():
            # A worker has left, or this read returned older records than the last one.
            sent, is_consistent = self._clock.boottime(), True
            records = await self._group.read_records(consistent=True)
        if not is_consistent:
            records = {name: _newer(record, before.get(name)) for name, record in records.items()}
        self._records, self._consistent_since = records, version
        return sent, records


class LiveWorkerError(Exception):
    """A worker sends heartbeats, so the group is running; `worker` is its name (E10)."""

    def __init__(self, worker: str) -> None:
        super().__init__(worker)
        self.worker = worker


async def seal_all_silent(group: GroupStore, settings: LeaseSettings, clock: Clock) -> GroupView:
    """Wait until no process is in the group: seal each worker (declare it dead) whose heartbeat has not changed for its lease duration.

    Raises: LiveWorkerError as soon as a heartbeat changes; StoreUnavailableError if the store does not answer; StateError if a document
    cannot be read.
    """
    observer = GroupObserver(group, TableCache(group, clock), clock, "", settings)
    beats: dict[str, int] = {}
    while True:
        view = await observer.look()
        if view is not None:
            now = {name: view.records[name].beat for name in view.unsealed}
            if moving := sorted(name for name, beat in now.items() if beat > beats.get(name, beat)):
                raise LiveWorkerError(moving[0])
            if new := now.keys() - beats.keys():
                log.info(
                    "waiting until the lease of worker %s has expired, because the worker may be running",
                    ", ".join(sorted(new)),
                )
            beats |= now
            view = await observer.seal_silent(view)
            owners = {lease.owner for lease in view.table.leases.values()} - {None}
            if not view.unsealed and owners <= view.records.keys():
                return view
        await asyncio.sleep(settings.interval / 2)


def _newer(record: Stored[WorkerRecord], known: Stored[WorkerRecord] | None) -> Stored[WorkerRecord]:
    if known is None or _order(record.document) >= _order(known.document):
        return record
    return known


def _order(record: WorkerRecord) -> tuple[int, bool]:
    return record.beat, record.is_sealed


# Work for the group that one of its workers does: add listed shards, and remove documents of deleted streams and sealed workers (E7, E12).


class GroupUpkeep:
    """Keeps the lease table complete, and deletes documents that no process needs. Only the first of the members does this work.

    The documents of a sealed worker are deleted late, because that worker may still be writing the table to acquire shards. Such a write
    takes effect only on the version of the table that the worker has read. So this class remembers the version of the table at the time of
    the seal. If a later version does not name the worker, no write of the worker can take effect any longer.
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
        after = view.table.after(
            self._worker,
            found=changes.found,
            expired=changes.expired,
            children=changes.children,
            deleted=changes.deleted,
        )
        await self._cache.replace(after)
        return True

    def keep_deleted(self, kept: Iterable[str]) -> None:
        """Forget a deleted stream when this worker holds none of its shards, because a stream of that name may have been created again."""
        self._listing.deleted.intersection_update({stream_of(shard) for shard in kept})

    async def remove_deleted(self) -> bool:
        """Remove the leases of streams that this worker has found deleted. Return whether a write was tried.

        A later stream of the same name has shards with the same ids. They must not be read from the positions of the deleted stream.
        """
        table, deleted = self._cache.table, self._listing.deleted
        gone = set() if table is None else {shard for shard in table.leases if stream_of(shard) in deleted}
        if table is None or not gone:
            return False
        await self._cache.replace(table.after(self._worker, deleted=gone))
        self._listing.list_soon()
        return True

    async def clean(self, view: GroupView) -> None:
        """Delete the documents of sealed workers that no lease names. For a worker that was sealed just now, remember the table's version
        first.

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
            await self._cache.replace(table.after(self._worker, cleaned=left))
        for worker in sorted(left):
            table = self._cache.table
            if table is None or table.version <= self._first_versions[worker] or worker in table.owners:
                continue
            if await self._positions.delete(worker):
                await self._group.delete_worker(worker)

    def _is_first(self, view: GroupView) -> bool:
        """Return whether this worker does the upkeep: it is the first of the members."""
        return view.members[:1] == (self._worker,)
