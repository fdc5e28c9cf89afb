"""GroupChecker: what must hold in every schedule, computed from what was stored and written, and not from the workers."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from functools import lru_cache

from recordpublisher.fetcher.leases.documents.group_store import LEASE_TABLE, PARTS, WORKERS
from recordpublisher.fetcher.leases.documents.json_documents import by_key
from recordpublisher.fetcher.leases.documents.lease_table import LeaseTable
from recordpublisher.fetcher.leases.documents.lease_table_json import table_from_bytes
from recordpublisher.fetcher.leases.documents.position_part import PositionKey, PositionPart, Positions, StoredPosition
from recordpublisher.fetcher.leases.documents.worker_record import WorkerRecord
from recordpublisher.fetcher.leases.lease_settings import LeaseSettings
from recordpublisher.fetcher.leases.planning.shard_loads import FLOOR_BYTES_PER_SECOND, LEVEL_RATIO

from ..simulator import Simulator
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
    ) -> None:
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
        self._beat_at: dict[str, float] = {}
        self._sealed_at: dict[str, float] = {}
        self._left_behind: set[str] = set()
        """Shards that the watermark could not wait for. They are late until they have caught up, whoever reads them."""
        self._database = database
        store.on_write = self._on_write
        if database is not None:
            database.on_commit = self._on_commit

    def epoch_of(self, worker: str, shard: str) -> int:
        """The epoch of the worker's last take of the shard."""
        return max(epoch for _, owner, epoch in self.takes[shard] if owner == worker)

    # --- the store ---------------------------------------------------------------------------------------------------------------

    def _on_write(self, name: str, before: bytes | None, after: bytes | None) -> None:
        if name == LEASE_TABLE:
            assert after is not None
            self._on_table(table_from_bytes(after, name))
        elif name.startswith(WORKERS):
            self._on_record(name, before, after)
        elif name.startswith(PARTS):
            self._on_part(name, before, after)

    def _on_table(self, table: LeaseTable) -> None:
        before, self.table = self.table, table
        expect(table.version == before.version + 1, "E1", f"version {table.version} follows {before.version}")
        for shard, lease in table.leases.items():
            old = before.leases.get(shard)
            if lease != old and (lease.owner is not None or lease.ended) and self._did_not_count(shard):
                self._left_behind.add(shard)
            if lease.owner is not None and (old is None or old != lease):
                expect(old is None or before.can_be_read(shard), "S2", f"{shard} is taken before its parents ended")
                self.takes[shard].append((self._simulator.now, lease.owner, lease.epoch))
                self.counts["takes"] += 1
            if lease.ended and (old is None or not old.ended):
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
            self._check_seal(_record(before), record)
            known, now = (
                -1 if each.group_watermark is None else each.group_watermark for each in (_record(before), record)
            )
            expect(known <= now, "E8", f"the watermark of {record.worker} falls from {known} to {now}")
        self._beat_at[record.worker] = self._simulator.now
        self.counts["sealed"] += record.is_sealed
        self.group_watermark = max(self.group_watermark, record.group_watermark or -1)
        self._check_positions({record.worker})

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
            part = self._store.values.get(f"{PARTS}{worker}/{number}")
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
            if stored is not None:
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

    def _did_not_count(self, shard: str) -> bool:
        """Whether the owner before was sealed longer ago than it holds the watermark (E8), or has left the shard as idle, or either was so
        for a parent."""
        former = self.takes[shard][-1][1] if self.takes[shard] else ""
        was_unread_for_long = self._simulator.now - self._sealed_at.get(former, math.inf) > TRACKER_TIMEOUT
        of_parents = any(parent in self._left_behind for parent in self._shards.by_key[shard].parents)
        return was_unread_for_long or of_parents or self._was_idle_when_sealed(shard, former)

    def _was_idle_when_sealed(self, shard: str, former: str) -> bool:
        """Whether its stored position says so, or the last heartbeat. Nobody learns from them that it was resharded since."""
        described, sealed = self._shards.by_key[shard], self._store.values.get(f"{WORKERS}{former}")
        if sealed is None or former not in self._sealed_at:
            return False
        stored = self._positions(former).get(PositionKey(shard, self.epoch_of(former, shard)))
        if stored is not None and stored.is_idle:
            return True
        if self._read[shard] < described.records:
            return False
        record = _record(sealed.value)
        if record.watermark is None:
            return not record.is_active
        return record.watermark > described.watermark(described.records)

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
