"""GroupChecker: what must hold in every schedule, computed from what was stored and written, and not from the workers."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from functools import lru_cache

from recordpublisher.fetcher.leases.document_format import by_key
from recordpublisher.fetcher.leases.group_store import LEASE_TABLE, PARTS_PREFIX, WORKERS
from recordpublisher.fetcher.leases.lease_settings import LeaseSettings
from recordpublisher.fetcher.leases.lease_table import LeaseTable, table_from_bytes
from recordpublisher.fetcher.leases.planning import FLOOR_BYTES_PER_SECOND, LEVEL_RATIO
from recordpublisher.fetcher.leases.position_documents import PositionKey, PositionPart, Positions, StoredPosition
from recordpublisher.fetcher.leases.worker_record import WorkerRecord

from ..simulator import Clock, Simulator
from .rule_violation import RuleViolationError, expect
from .shared_store import SharedStore
from .simulated_shards import SimulatedShards
from .sink_database import SinkDatabase, position_of

DURATION, TRACKER_TIMEOUT = LeaseSettings().duration, LeaseSettings().tracker_timeout


@lru_cache(256)
def _record(value: bytes) -> WorkerRecord:
    """A record; each is looked at several times."""
    return WorkerRecord.from_bytes(value, "a record")


@lru_cache(256)
def _part(value: bytes) -> PositionPart:
    """A part of positions."""
    return PositionPart.from_bytes(value, "a part")


class GroupChecker:
    """Owns what is committed and written of each shard, who did it, and when shards moved."""

    def __init__(
        self,
        simulator: Simulator,
        store: SharedStore,
        shards: SimulatedShards,
        allows_repeats: bool,
        database: SinkDatabase | None,
        is_latest: bool = False,
    ) -> None:
        """`is_latest`: the group begins at LATEST."""
        self._simulator = simulator
        self._store = store
        self._shards = shards
        self._allows_repeats = allows_repeats
        self.table = LeaseTable(0)
        self.committed: Counter[str] = Counter()
        self.written: Counter[str] = Counter()
        self._read: Counter[str] = Counter()
        """How many records of each shard have reached the sink, also those that it has not committed."""
        self.counts: Counter[str] = Counter()
        self.group_watermark = -1
        """The highest that any worker knows."""
        self.takes: dict[str, list[tuple[float, str, int]]] = defaultdict(list)
        """When each shard was taken, by whom, in which epoch."""
        self._epoch_written: Counter[str] = Counter()
        self._idle_until: dict[str, float] = {}
        """Until when the stored heartbeat of a shard's owner called the shard idle."""
        self._beat_at: dict[str, float] = {}
        self._sealed_at: dict[str, float] = {}
        self._left_behind: set[str] = set()
        """Shards that the watermark could not wait for. They are late until they have caught up, whoever reads them."""
        self._ended_without_children: set[str] = set()
        """Shards of which not all children were known when they ended: the watermark could not wait for those."""
        self._of_former: set[str] = set()
        """The leases of a stream that was deleted: what they hold says nothing of the shards that have these keys now."""
        self._is_latest = is_latest
        self._expired_ms = 0
        """When records were past retention, last."""
        self._seen: set[str] = set()
        """The shards of which the group knew something then, so that it knows that records are lost."""
        self._database = database
        store.on_write = self._on_write
        if database is not None:
            database.on_commit = self._on_commit

    def epoch_of(self, worker: str, shard: str) -> int:
        """The epoch of the worker's last take of the shard."""
        return max(epoch for _, owner, epoch in self.takes[shard] if owner == worker)

    def on_stream_deleted(self) -> None:
        """The stream was deleted: its shards are nobody's, whatever was read of them."""
        self._of_former = set(self.table.leases)
        for counted in (self.committed, self.written, self._read):
            counted.clear()
        self._left_behind.clear()
        self._ended_without_children.clear()

    def on_expired(self) -> None:
        """Records are past retention."""
        self._expired_ms = Clock(self._simulator).now_ms()
        self._seen = set()
        ended = {key for key, lease in self.table.leases.items() if lease.ended}
        for key, shard in self._shards.by_key.items():  # parents before children
            is_first = self._is_latest and key in self._shards.roots
            # Without a lease of its own the gap is that of the ancestor which has one and had not ended: it has expired, too.
            known = set(shard.parents) if key in self.table.leases else ended.intersection(shard.parents)
            if is_first or self.committed[key] or known & self._seen:
                self._seen.add(key)

    def on_begin_past_retention(self, shard: str, oldest: int, seen_ms: int | None) -> None:
        """A reader begins at the oldest record that is left. It knows whether others are lost from when the shard was seen (S5)."""
        is_told = seen_ms is not None and seen_ms < self._expired_ms
        expect(
            is_told or shard not in self._seen, "S5", f"records of {shard} before {oldest} are lost silently: {seen_ms}"
        )
        self.counts["gaps"] += is_told
        self.written[shard] = max(self.written[shard], oldest)
        if self._database is not None:
            self._database.rows[shard] = max(self._database.rows[shard], oldest)

    # --- the store ---------------------------------------------------------------------------------------------------------------

    def _on_write(self, name: str, before: bytes | None, after: bytes | None) -> None:
        if name == LEASE_TABLE:
            assert after is not None
            self._on_table(table_from_bytes(after, name))
        elif name.startswith(WORKERS):
            self._on_record(name, before, after)
        elif name.startswith(PARTS_PREFIX):
            self._on_part(name, before, after)

    def _on_table(self, table: LeaseTable) -> None:
        before, self.table = self.table, table
        expect(table.version == before.version + 1, "E1", f"version {table.version} follows {before.version}")
        self._of_former &= table.leases.keys()
        for shard, lease in table.leases.items():
            if shard in self._of_former:
                if lease.owner is not None and lease != before.leases[shard]:
                    self.takes[shard].append((self._simulator.now, lease.owner, lease.epoch))
                continue
            old = before.leases.get(shard)
            if lease != old and (lease.owner is not None or lease.ended) and self._did_not_count(shard):
                self._left_behind.add(shard)
            if lease.owner is not None and (old is None or old != lease):
                expect(old is None or before.can_be_read(shard), "S2", f"{shard} is taken before its parents ended")
                self.takes[shard].append((self._simulator.now, lease.owner, lease.epoch))
                self.counts["takes"] += 1
            if lease.ended and (old is None or not old.ended):
                if set(lease.children) != self._shards.by_key[shard].children.keys():
                    self._ended_without_children.add(shard)
                expect(
                    self.committed[shard] == self._shards.by_key[shard].records,
                    "E7",
                    f"{shard} ended at {self.committed[shard]}",
                )
        self._check_positions(table.owners)
        for owner in table.owners:
            self._count_committed(owner)

    def _on_record(self, name: str, before: bytes | None, after: bytes | None) -> None:
        if after is None:
            worker = name.removeprefix(WORKERS)
            expect(worker not in self.table.owners, "E12", f"{worker} is deleted and owns shards")
            self.counts["deleted"] += 1
            return
        record = _record(after)
        if before is not None:
            self._idle_until |= dict.fromkeys(self._reported_idle(_record(before)), self._simulator.now)
            self._check_seal(_record(before), record)
            known, now = (
                -1 if each.group_watermark is None else each.group_watermark for each in (_record(before), record)
            )
            expect(known <= now, "E8", f"the watermark of {record.worker} falls from {known} to {now}")
        self._beat_at[record.worker] = self._simulator.now
        self.counts["sealed"] += record.is_sealed
        self._on_group_watermark(record.group_watermark or -1)
        self._check_positions({record.worker})

    def _on_group_watermark(self, value: int) -> None:
        """It does not wait for children of a shard whose owner's last heartbeat called it idle: no later one could say more (E8, W13)."""
        if value <= self.group_watermark:
            return
        self.group_watermark = value
        since = self._simulator.now - DURATION  # the look that raised it may be as old as that
        idle = {shard for shard, until in self._idle_until.items() if until > since}
        for owner in self.table.owners:
            stored = self._store.values.get(f"{WORKERS}{owner}")
            idle |= set() if stored is None else self._reported_idle(_record(stored.value))
        for shard in idle & self._shards.by_key.keys():
            children = self._shards.by_key[shard].children
            if behind := {child for child in children if self._shards.by_key[child].first_ms < value}:
                self._left_behind |= {shard, *behind}

    def _reported_idle(self, record: WorkerRecord) -> set[str]:
        """The worker's shards that were read as far as they go, and that its heartbeat does not count."""
        owned = {shard for shard, lease in self.table.leases.items() if lease.owner == record.worker} - self._of_former
        return {shard for shard in owned & self._shards.by_key.keys() if self._is_idle_in(record, shard)}

    def _is_idle_in(self, record: WorkerRecord, shard: str) -> bool:
        described = self._shards.by_key[shard]
        if self._read[shard] < described.records:
            return False
        if record.watermark is None:
            return not record.is_active
        return record.watermark > described.watermark(described.records)

    def _check_seal(self, before: WorkerRecord, record: WorkerRecord) -> None:
        """Nobody but the worker itself seals one whose heartbeat has not stood for the lease duration."""
        expect(not before.is_sealed, "E3", f"the sealed record of {record.worker} is written")
        if record.is_sealed:
            self._sealed_at[record.worker] = self._simulator.now
        if record.is_sealed and record.beat == before.beat:
            stood = self._simulator.now - self._beat_at[record.worker]
            expect(stood >= DURATION, "E3", f"{record.worker} is sealed {stood:.1f} s after its heartbeat")
            self._allows_repeats = True  # calls may fail for so long in a graceful schedule, too

    def _on_part(self, name: str, before: bytes | None, after: bytes | None) -> None:
        if after is None:
            return
        if before is not None:
            expect(not _part(before).is_sealed, "E3", f"the sealed {name} is written")
        worker = _part(after).worker
        self._on_commit(worker)

    def _on_commit(self, worker: str) -> None:
        self._check_positions({worker})
        self._count_committed(worker)

    def _positions(self, worker: str) -> Positions:
        """What somebody who takes over from the worker would find."""
        if self._database is not None:
            return self._database.positions(worker)
        value = self._store.values.get(f"{WORKERS}{worker}")
        if value is None:
            return {}
        found: dict[PositionKey, StoredPosition] = {}
        for number in range(_record(value.value).parts):
            part = self._store.values.get(f"{PARTS_PREFIX}{worker}/{number}")
            found |= {} if part is None else _part(part.value).positions
        return found

    def _check_positions(self, workers: set[str]) -> None:
        """The position of each lease is always with its owner (E5)."""
        for worker in workers & self.table.owners:
            positions = self._positions(worker)
            for shard, lease in self.table.leases.items():
                if lease.owner == worker:
                    expect(
                        PositionKey(shard, lease.epoch) in positions,
                        "E5",
                        f"{worker} owns {shard} since {lease.epoch}, and its position is nowhere",
                    )

    def _count_committed(self, worker: str) -> None:
        """One owner commits in an epoch, and never backwards."""
        positions = self._positions(worker)
        for shard, lease in self.table.leases.items():
            stored = positions.get(PositionKey(shard, lease.epoch)) if lease.owner == worker else None
            if stored is not None and shard not in self._of_former:
                position = position_of(stored)
                expect(
                    position >= self.committed[shard],
                    "E1",
                    f"{worker} commits {position} of {shard} after {self.committed[shard]}",
                )
                self.committed[shard] = position

    # --- the sink ------------------------------------------------------------------------------------------------------------

    def on_write(self, worker: str, shard: str, position: int, count: int, epoch: int, was_suspended: bool) -> None:
        """Records reach the sink. One that keeps positions shows them with its next commit: see SinkDatabase.

        None of them is late (E8), but for those that were read before, by an owner that was sealed.
        """
        new = max(position, self._read[shard])
        is_late = self._shards.by_key[shard].watermark(new) < self.group_watermark
        if not is_late and self._simulator.now - self.takes[shard][-1][0] > 2 * DURATION:
            self._left_behind.discard(shard)  # before, a worker that has not seen the take may raise the watermark
        elif is_late and new < position + count and shard not in self._left_behind:
            raise RuleViolationError(f"E8: {worker} writes {shard} from {new} below {self.group_watermark}")
        self._read[shard] = max(new, position + count)
        self.counts["late"] += self._shards.by_key[shard].watermark(position) < self.group_watermark
        if self._database is None:
            self._on_visible(worker, shard, position, count, epoch, was_suspended)

    def on_finished(self, worker: str, shard: str, position: int) -> None:
        """The worker is told that a shard which it has read up to a position was given or has ended, not that it was lost."""
        self.counts["finished"] += 1
        expect(
            position <= self.committed[shard],
            "E5",
            f"{worker} has given {shard}, and its records up to {position} are not stored",
        )

    def _did_not_count(self, shard: str) -> bool:
        """Whether the owner before was sealed longer ago than it holds the watermark (E8), or has left the shard as idle, or either was so
        for a parent."""
        former = self.takes[shard][-1][1] if self.takes[shard] else ""
        was_unread_for_long = self._simulator.now - self._sealed_at.get(former, math.inf) > TRACKER_TIMEOUT
        expired = {key for key, each in self._shards.by_key.items() if each.is_expired}  # nobody may have known of them
        left_behind = self._left_behind | self._ended_without_children | expired
        of_parents = any(parent in left_behind for parent in self._shards.by_key[shard].parents)
        return was_unread_for_long or of_parents or self._was_idle_when_sealed(shard, former)

    def _was_idle_when_sealed(self, shard: str, former: str) -> bool:
        """Whether its stored position says so, or the last heartbeat. Nobody learns from them that it was resharded since."""
        sealed = self._store.values.get(f"{WORKERS}{former}")
        if sealed is None or former not in self._sealed_at:
            return False
        stored = self._positions(former).get(PositionKey(shard, self.epoch_of(former, shard)))
        if stored is not None and stored.is_idle:
            return True
        return self._is_idle_in(_record(sealed.value), shard)

    def _on_visible(self, worker: str, shard: str, position: int, count: int, epoch: int, was_suspended: bool) -> None:
        for parent in self._shards.by_key[shard].parents:
            expect(
                self.committed[parent] == self._shards.by_key[parent].records,
                "S2",
                f"{shard} is written before {parent} ended",
            )
        written = self.written[shard]
        expect(position <= written, "S1", f"{worker} writes {shard} from {position} after {written}")
        if epoch < self._epoch_written[shard]:
            expect(was_suspended, "E4", f"{worker} writes {shard} of epoch {epoch} after its successor")
            self.counts["writes in flight of sealed workers"] += 1
        self._epoch_written[shard] = max(epoch, self._epoch_written[shard])
        if position < written:
            expect(self._allows_repeats, "E5", f"{worker} repeats {shard} from {position}, written to {written}")
            self.counts["repeats"] += min(count, written - position)
        self.written[shard] = max(written, position + count)

    # --- the end -------------------------------------------------------------------------------------------------------------

    def what_is_missing(self, live: set[str]) -> str:
        """Empty when everything was read, the shards are shared by load, and nothing is left of sealed workers."""
        if self._of_former:
            return f"the table has leases of the former stream: {self._of_former}"
        for key, shard in self._shards.by_key.items():
            if self.committed[key] != shard.records:
                return f"{key}: {self.committed[key]} of {shard.records} are committed; {self.table.leases.get(key)}; live {live}"
        owners = Counter(lease.owner for lease in self.table.leases.values() if not lease.ended)
        if not owners.keys() <= live:
            return f"not balanced: {owners} of {live}"
        if unbalanced := self._unbalanced(live) or self._handed_over(live):
            return unbalanced
        left = {name.removeprefix(WORKERS) for name in self._store.values if name.startswith(WORKERS)} - live
        if left:
            return f"not cleaned: {left}"
        unpublished = set() if self._database is None else self._database.unpublished
        return f"not published: {unpublished}" if unpublished else ""

    def _handed_over(self, live: set[str]) -> str:
        """The shards that have been released and that nobody has taken yet. A slow store takes long."""
        for worker in live & self.table.owners:
            for shard, epoch in by_key(_record(self._store.values[f"{WORKERS}{worker}"].value).released):
                lease = self.table.leases.get(shard)
                if lease is not None and (lease.owner, lease.epoch) == (worker, epoch):
                    return f"{worker} has released {shard}"
        return ""

    def _unbalanced(self, live: set[str]) -> str:
        """Empty when each worker states the loads that its shards have, and the shares of no two workers differ by too much.

        Not by more than a tenth of the larger one, or by at most one and a half times each shard of the worker that has it (E6).
        """
        loads: dict[str, dict[str, float]] = {worker: {} for worker in live}
        for shard, lease in self.table.leases.items():
            if lease.owner is not None:
                level = _record(self._store.values[f"{WORKERS}{lease.owner}"].value).load_level(shard)
                load = max(self._shards.by_key[shard].bytes_per_second, FLOOR_BYTES_PER_SECOND)
                loads[lease.owner][shard] = stated = FLOOR_BYTES_PER_SECOND * LEVEL_RATIO**level
                if not load / LEVEL_RATIO / 1.01 < stated < load * LEVEL_RATIO * 1.01:
                    return f"{lease.owner} states a load of {stated:.0f} for {shard}, which has {load:.0f}"
        shares = {worker: sum(theirs.values()) for worker, theirs in loads.items()}
        smallest = min(shares.values())
        for worker, share in shares.items():
            difference = share - smallest
            if difference > 0.1 * share and any(difference > 1.51 * load for load in loads[worker].values()):
                return f"not balanced: {loads}"
        return ""
