"""Reads the group, measures how long each heartbeat has not changed, and declares silent workers dead (seals them, E3)."""

import asyncio
import logging
from collections.abc import Set
from dataclasses import replace

from recordpublisher.publishers.clock import Clock

from ..conditional_store import ConflictError, Stored
from .group_store import GroupStore, TableCache, WorkerRecord
from .heartbeat import SilenceObserver
from .lease_settings import LeaseSettings
from .planning import GroupView

log = logging.getLogger("recordpublisher.group")


class GroupObserver:
    """Owns what one worker has observed of the others: how long each has been silent, and since when the members are the same.

    It uses a clock that runs while the machine sleeps. A read of the group that was interrupted by sleep took long, and is not used.
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
        """The workers that were in the group at the last read, and were neither declared dead (sealed) nor leaving."""
        return frozenset(self._members)

    @property
    def has_looked(self) -> bool:
        """Whether the group was read at least once; before that the members are not known."""
        return bool(self._records)

    @property
    def never_moved(self) -> frozenset[str]:
        """The members of which no new heartbeat was seen yet: they may have been killed before this worker joined."""
        return self.members & self._silence.never_moved

    @property
    def is_settled(self) -> bool:
        """Whether the members have been the same for two intervals. Only then do shards move between running workers (E6)."""
        return self._clock.boottime() - self._members_since > 2 * self._settings.interval

    @property
    def sealed_for_long(self) -> frozenset[str]:
        """The workers found declared dead (sealed) more than the tracker timeout ago. They no longer hold back the watermark (E8)."""
        latest = self._clock.boottime() - self._settings.tracker_timeout
        return frozenset(worker for worker, since in self._sealed_since.items() if since < latest)

    @property
    def late(self) -> Set[str]:
        """The workers that, at the last read, had sent no heartbeat for half of their lease, which is two of their intervals."""
        return self._late

    async def look(self) -> GroupView | None:
        """Read the group. Return None if there is no table, or if the read took longer than an interval and is not used (E8)."""
        began = self._clock.boottime()
        if self._cache.is_older_than(0):
            await self._cache.read()
        sent, records = await self._read_records()
        if self._cache.is_older_than(max((each.document.table_version for each in records.values()), default=0)):
            await self._cache.read()
            sent, records = await self._read_records()  # read again, because no record may be older than the table
        now, table = self._clock.boottime(), self._cache.table
        if table is None or now - began > self._settings.interval:
            return None
        # A worker that runs alone sends no heartbeats: the table says whether it runs.
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
        """Declare the workers dead (seal them) that sent no heartbeat for their lease, and return the view with their sealed records."""
        sealed: dict[str, WorkerRecord] = {}
        for worker in sorted(self._silent(view, 1)):
            try:
                sealed[worker] = await self._group.seal_record(self._records[worker])
            # The worker has sent a heartbeat, or another process has declared it dead (sealed it).
            except ConflictError:
                continue
            log.warning(
                "worker %s sent no heartbeat for %g s: it counts as ended (it was sealed), and other workers take its shards",
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
        """Return the lease duration of a worker in seconds: the longer one of its own and this worker's.

        They differ while the setting is changed worker by worker.
        """
        return max(self._settings.duration, (record.lease_ms or 0) / 1000)

    async def _read_records(self) -> tuple[float, dict[str, Stored[WorkerRecord]]]:
        """Read the records. None of them may be older than the table, whose owners count their shards in their earlier records (E8).

        So the first read after each new table is consistent. Later reads need not be, but a record is never replaced by an older one.
        """
        version, before = self._cache.version, self._records
        sent, is_consistent = self._clock.boottime(), version != self._consistent_since
        records = await self._group.read_records(consistent=is_consistent)
        if not is_consistent and before.keys() - records.keys():
            # a record was deleted, or this read returned older records than the last one
            sent, is_consistent = self._clock.boottime(), True
            records = await self._group.read_records(consistent=True)
        if not is_consistent:
            records = {name: _newer(record, before.get(name)) for name, record in records.items()}
        self._records, self._consistent_since = records, version
        return sent, records


class LiveWorkerError(Exception):
    """Raised if a worker is running in the group; `worker` is its name (E10)."""

    def __init__(self, worker: str) -> None:
        super().__init__(worker)
        self.worker = worker


async def seal_all_silent(group: GroupStore, settings: LeaseSettings, clock: Clock) -> GroupView:
    """Wait until no process is in the group: declare each worker dead (seal it) whose heartbeat is too old.

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
                log.info("waiting until the lease of worker %s is over: it may live", ", ".join(sorted(new)))
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
