"""Reads the group, and measures how long each heartbeat has not changed, so that silent workers are found (E3).

`worker_sealing.py` seals them.
"""

import logging
from collections.abc import Set

from recordpublisher.publishers.clock import Clock

from ..conditional_store import StoredDocument
from .group_store import GroupStore, TableCache
from .heartbeat import SilenceObserver
from .lease_settings import LeaseSettings
from .lease_table import LeaseTable
from .planning import GroupView
from .worker_record import WorkerRecord

log = logging.getLogger("recordpublisher.group")

RECENT_INTERVALS = 1.2
"""How old the last heartbeat of a running worker may be, in heartbeat intervals. This includes the time that its call takes."""


class GroupObserver:
    """Keeps what one worker has observed of its group: how long each other worker has been silent, and since when the members are the same.

    Times are measured by a clock that also runs while the machine sleeps. If the machine sleeps during a read of the group's documents, the
    read takes too long, and is not used.
    """

    def __init__(
        self,
        group: GroupStore,
        cache: TableCache,
        clock: Clock,
        worker: str,
        settings: LeaseSettings,
        handler: str = "",
    ) -> None:
        self._group = group
        self._cache = cache
        self._clock = clock
        self._worker = worker
        self._settings = settings
        self._handler = handler
        self._silence = SilenceObserver(2 * settings.interval)
        self._records: dict[str, StoredDocument[WorkerRecord]] = {}
        self._consistent_since = 0
        self._members: tuple[str, ...] = ()
        self._members_since = 0.0
        self._sealed_since: dict[str, float] = {}
        self._missing_since: dict[str, float] = {}
        self._lost: Set[str] = frozenset()
        self._late: set[str] = set()
        self._recent: frozenset[str] = frozenset()

    @property
    def members(self) -> frozenset[str]:
        """The workers that were in the group at the last read, without those that were sealed (declared dead) or are leaving."""
        return frozenset(self._members)

    @property
    def has_read_group(self) -> bool:
        """Whether the group was read at least once. Before that `members` is empty, even if the group has members."""
        return bool(self._records)

    @property
    def maybe_killed(self) -> frozenset[str]:
        """The members that may have been killed before this worker joined.

        This worker has seen no new heartbeat of these members. When it last read the group, their last heartbeat was older than the
        interval between two heartbeats, by their own clocks.
        """
        return (self.members & self._silence.never_moved) - self._recent

    @property
    def is_settled(self) -> bool:
        """Whether the members have been the same for two heartbeat intervals. Only then do running workers transfer shards."""
        return self._clock.boottime() - self._members_since > 2 * self._settings.interval

    @property
    def sealed_for_long(self) -> frozenset[str]:
        """The workers that have been dead (sealed) for longer than the tracker timeout. They no longer hold back the group's watermark."""
        latest = self._clock.boottime() - self._settings.tracker_timeout
        return frozenset(worker for worker, since in self._sealed_since.items() if since < latest)

    @property
    def late(self) -> Set[str]:
        """The workers that had sent no heartbeat for half of their lease duration when the group was last read."""
        return self._late

    async def read_group(self) -> GroupView | None:
        """Read the group's documents.

        Return None if there is no lease table, or if the read took longer than a heartbeat interval: its result is then too old.
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
        lost = await self._lost_records(table, records.keys(), now)
        view = GroupView(table, {name: each.document for name, each in records.items()} | lost)
        self._observe_late(view)
        # Clocks may differ, so only the readiness of this worker depends on that (E3).
        since_ms = self._clock.now_ms() - RECENT_INTERVALS * self._settings.interval * 1000
        self._recent = frozenset(name for name, each in view.records.items() if (each.sent_ms or 0) > since_ms)
        if view.members != self._members:
            self._log_joined(view, set(view.members) - {*self._members, self._worker})
            self._members, self._members_since = view.members, now
        return view

    async def _lost_records(self, table: LeaseTable, found: Set[str], now: float) -> dict[str, WorkerRecord]:
        """Return a sealed record for each owner whose record has been missing for the duration of a lease.

        No worker deletes the record of an owner. A process whose record was deleted cannot write it again, so its worker ends.
        """
        missing = set() if table.alone is not None else table.owners - found
        before = self._missing_since
        self._missing_since = {worker: before.get(worker, now) for worker in sorted(missing)}
        lost: dict[str, WorkerRecord] = {}
        for worker in [each for each, since in self._missing_since.items() if now - since >= self._settings.duration]:
            parts = await self._group.part_count(worker)
            # Its watermark is not known, so it holds back the watermark of the group until its shards are taken.
            lost[worker] = WorkerRecord(worker, 0, is_sealed=True, is_active=True, parts=parts)
            if worker not in self._lost:
                text = "the record of worker %s, which owns shards, was deleted: it counts as ended, and other workers take its shards"
                log.warning(text, worker)
        self._lost = lost.keys()
        return lost

    def silent_workers(self, view: GroupView) -> dict[str, float]:
        """Return the other workers that have sent no heartbeat for their lease duration, with that duration (seconds)."""
        return {worker: self._lease_of(view.records[worker]) for worker in sorted(self._silent(view, 1))}

    async def seal(self, worker: str) -> WorkerRecord:
        """Declare a worker dead: mark its record as sealed, if the record has not changed since the last read.

        Raises: ConflictError if the worker has sent a heartbeat since then, or if another process has sealed the record.
        """
        return await self._group.seal_record(self._records[worker])

    def _observe_late(self, view: GroupView) -> None:
        late = self._silent(view, 0.5)
        for worker in late - self._late:
            lease = self._lease_of(view.records[worker])
            text = "worker %s has sent no heartbeat for %g s: after %g s it counts as ended, and other workers take its shards"
            log.warning(text, worker, lease / 2, lease)
        self._late = late

    def _log_joined(self, view: GroupView, workers: Set[str]) -> None:
        """Log which workers are new in the group, and warn if the handler of one is another: it may be a program that should only look on.

        At the first read all workers are new, so only other handlers are logged.
        """
        for worker in sorted(workers):
            record = view.records[worker]
            place = f"host {record.host or 'unknown'}, process {record.pid}"
            if record.handler and self._handler and record.handler != self._handler:
                text = (
                    "worker %s (%s) of this group has the handler '%s', and this worker has '%s': each record is handled by one of them. "
                    "Use rp.consume to read without taking part, or another flink.job.name. After a deployment that renames the handler "
                    "this is expected"
                )
                log.warning(text, worker, place, record.handler, self._handler)
            elif self._members:
                log.info("worker %s (%s) has joined this group", worker, place)

    def _silent(self, view: GroupView, share: float) -> set[str]:
        leases = {name: self._lease_of(view.records[name]) * share for name in view.unsealed}
        return self._silence.silent_for(leases) - {self._worker}

    def _lease_of(self, record: WorkerRecord) -> float:
        """Return the lease duration of a worker in seconds: its own or this worker's, whichever is longer.

        The durations differ while people change the setting worker by worker.
        """
        return max(self._settings.duration, (record.lease_ms or 0) / 1000)

    async def _read_records(self) -> tuple[float, dict[str, StoredDocument[WorkerRecord]]]:
        """Read the worker records. Return the time when the read was sent, and the records.

        The records must not be older than the lease table, because the record of a shard's owner must already count the shard in its
        watermark. Therefore the first read after a new table is consistent, and later reads never replace a record by an older one.
        """
        version, before = self._cache.version, self._records
        sent, is_consistent = self._clock.boottime(), version != self._consistent_since
        records = await self._group.read_records(consistent=is_consistent)
        if not is_consistent and before.keys() - records.keys():
            # Either a worker has left, or this read returned older records than the last one: a consistent read shows which.
            sent, is_consistent = self._clock.boottime(), True
            records = await self._group.read_records(consistent=True)
        if not is_consistent:
            records = {name: _newer(record, before.get(name)) for name, record in records.items()}
        self._records, self._consistent_since = records, version
        return sent, records


def _newer(
    record: StoredDocument[WorkerRecord], known: StoredDocument[WorkerRecord] | None
) -> StoredDocument[WorkerRecord]:
    if known is None or _order(record.document) >= _order(known.document):
        return record
    return known


def _order(record: WorkerRecord) -> tuple[int, bool]:
    return record.beat, record.is_sealed
