"""TakeoverChecker: what must hold while a job goes over from subtasks to a group and back, computed from what was stored and written."""

from __future__ import annotations

from collections import Counter

from recordpublisher.fetcher.checkpoints.snapshot import merge_snapshots
from recordpublisher.fetcher.checkpoints.state_entries import StateEntry
from recordpublisher.fetcher.checkpoints.state_store import SUBTASK_PREFIX
from recordpublisher.fetcher.leases.documents.group_store import LEASE_TABLE, PARTS, WORKERS
from recordpublisher.fetcher.leases.documents.lease_table import LeaseTable
from recordpublisher.fetcher.leases.documents.lease_table_json import table_from_bytes
from recordpublisher.fetcher.leases.documents.position_part import PositionPart, Positions
from recordpublisher.fetcher.leases.documents.shard_states import states_of
from recordpublisher.fetcher.leases.documents.worker_record import WorkerRecord

from ..elastic.rule_violation import expect
from ..elastic.shared_store import SharedStore


class TakeoverChecker:
    """Owns how much of each shard is committed by the kind that the store belongs to, and how much was written."""

    def __init__(self, store: SharedStore, *, allows_repeats: bool) -> None:
        self._store = store
        self._allows_repeats = allows_repeats
        self.committed: Counter[str] = Counter()
        self.written: Counter[str] = Counter()
        self.counts: Counter[str] = Counter()
        store.on_write = self._on_write

    def epoch_of(self, worker: str, shard: str) -> int:
        """The epoch of the shard's lease; a worker that wakes when subtasks have its shards asks, too."""
        table = self._table()
        return 0 if table is None or shard not in table.leases else table.leases[shard].epoch

    def on_write(self, worker: str, shard: str, position: int, count: int, epoch: int, was_suspended: bool) -> None:
        """Records reach the sink."""
        written = self.written[shard]
        expect(position <= written, "S1", f"{worker} writes {shard} from {position} after {written}")
        if position < written:
            expect(self._allows_repeats, "E10", f"{worker} repeats {shard} from {position}, written to {written}")
            self.counts["repeats"] += 1
        self.written[shard] = max(written, position + count)

    def _on_write(self, name: str, before: bytes | None, after: bytes | None) -> None:
        table = self._table()
        is_group = table is not None and (not table.is_closed or bool(table.leases))
        if name == LEASE_TABLE and after is not None:
            old = None if before is None else table_from_bytes(before, name)
            expect(old is None or table.version > old.version, "E10", "the version of the table went back")
            self.counts["to subtasks" if table.is_closed else "to group"] += (
                old is None or old.is_closed != table.is_closed
            )
        if name.startswith(SUBTASK_PREFIX) and after is not None:
            entry = StateEntry.from_bytes(after, name)
            if entry.taken_at is None and entry.checkpoint > 0 and is_group:
                expect(self._is_given_back(before), "E10", f"{name} stores a checkpoint while a group has the shards")
        self._count_committed(table if is_group else None)

    @staticmethod
    def _is_given_back(before: bytes | None) -> bool:
        """The write gives an entry back: it is no checkpoint."""
        return before is not None and StateEntry.from_bytes(before, "").taken_at is not None

    def _count_committed(self, group: LeaseTable | None) -> None:
        """The position of each shard never goes back, whoever has it."""
        if group is None:
            states = merge_snapshots(self._snapshots()).shards
        else:
            states, missing = states_of(group, {owner: self._positions(owner) for owner in group.owners})
            expect(not missing, "E5", f"the position of {missing} is nowhere")
        for shard in self.committed.keys() | states.keys():
            state = states.get(shard)
            position = 0 if state is None or state.position is None else int(state.position.sequence)
            expect(position >= self.committed[shard], "E10", f"{shard} is at {position} after {self.committed[shard]}")
            self.committed[shard] = position

    def _snapshots(self) -> list[dict]:
        entries = (
            StateEntry.from_bytes(value.value, name)
            for name, value in self._store.values.items()
            if name.startswith(SUBTASK_PREFIX)
        )
        return [entry.snapshot for entry in entries if entry.snapshot is not None]

    def _positions(self, worker: str) -> Positions:
        value = self._store.values.get(f"{WORKERS}{worker}")
        parts = 0 if value is None else WorkerRecord.from_bytes(value.value, worker).parts
        found: dict = {}
        for number in range(parts):
            part = self._store.values.get(f"{PARTS}{worker}/{number}")
            found |= {} if part is None else PositionPart.from_bytes(part.value, worker).positions
        return found

    def _table(self) -> LeaseTable | None:
        value = self._store.values.get(LEASE_TABLE)
        return None if value is None else table_from_bytes(value.value, LEASE_TABLE)
