"""Reads the positions that a job has stored, in a state store, a sink or a group of workers, and the state of each shard in them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from recordpublisher.fetcher.checkpoints.initial_states import initial_states, shards_no_longer_listed
from recordpublisher.fetcher.checkpoints.snapshot import merge_snapshots, snapshot_to_json
from recordpublisher.fetcher.checkpoints.snapshot_store import SnapshotStore
from recordpublisher.fetcher.checkpoints.starts import Starts
from recordpublisher.fetcher.committing_sink import entries_of, stores_positions
from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.fetcher.leases.documents.group_store import GroupStore
from recordpublisher.fetcher.leases.documents.lease_table import LeaseTable
from recordpublisher.fetcher.leases.documents.position_part import Positions
from recordpublisher.fetcher.leases.documents.stored_states import alone_states, states_of
from recordpublisher.fetcher.leases.documents.worker_record import WorkerRecord
from recordpublisher.fetcher.leases.position_store import read_alone_part, read_positions
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.sink import Sink, State
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.declaration import parse_with_unit
from recordpublisher.publishers.properties.groups.job import STATE_URI
from recordpublisher.publishers.properties.groups.reading import INITIAL_POSITION
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import Shard

from ..host.source_kind import reads_a_queue

PositionsLoader = Callable[[WorkerRecord], Awaitable[Positions]]
ATTEMPTS = 5
"""How often positions are read again because shards have moved between workers while they were read."""


class PositionsReader(Protocol):
    """Reads a job's stored positions."""

    @property
    def place(self) -> str:
        """Where the positions are, for messages."""

    async def load(self) -> Sequence[State]:
        """Return the snapshots of all subtasks."""

    async def close(self) -> None:
        """Close what was opened to read."""


class SinkPositions:
    """Reads the positions that a sink stores with its output. It never opens the sink, because that would fence off the running job."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    @property
    def place(self) -> str:
        """The place of the sink's entries, or of its rows."""
        return self._sink.destination() if (entries := entries_of(self._sink)) is None else entries.place

    async def load(self) -> Sequence[State]:
        """Return the snapshots of all subtasks."""
        if (entries := entries_of(self._sink)) is not None:
            return await SnapshotStore(entries).load()
        return await self._sink.stored_positions() or []

    async def close(self) -> None:
        """Close the sink's connections."""
        await self._sink.close()
        if (entries := entries_of(self._sink)) is not None:
            await entries.close()


def without_positions(sink: type[Sink] | None, properties: Properties) -> str:
    """Return what a restart does to a job that stores no positions, and what helps. Empty if the job stores positions.

    - `sink`: the class of the job's sink, or None if it is not known.
    """
    if properties.value(STATE_URI) is not None or (sink is not None and stores_positions(sink)):
        return ""
    if reads_a_queue(properties):
        return ""
    start = properties.value(INITIAL_POSITION)
    loss = {"LATEST": "misses what came since the last one", "TRIM_HORIZON": "reads all records again"}
    other = f"begins at {start} again" if parse_with_unit(start, "ms") is None else f"begins {start} before it"
    return f"no positions are stored: each start {loss.get(start, other)}; set {STATE_URI.key}"


@dataclass(frozen=True, slots=True)
class JobPositions:
    """The state of each listed shard by `Shard.key`, and who stored it when. Without a store there are no states.

    - `subtasks`, `workers`: the subtask, or with ELASTIC assignment the worker, that stored the state.
    - `taken_ms`: when the state was stored (epoch ms).
    - `lost`: shards that were not read to their end and that the stream no longer lists (S5).
    """

    states: Mapping[str, ShardState]
    subtasks: Mapping[str, int]
    lost: Mapping[str, ShardState]
    workers: Mapping[str, str] = field(default_factory=dict)
    taken_ms: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshots: Iterable[State], listed: Iterable[Shard], start: StartingPosition) -> JobPositions:
        """Read snapshots. A shard without a stored state begins where the job would begin it.

        Raises: StateError if a snapshot cannot be read.
        """
        snapshots = list(snapshots)
        restored = merge_snapshots(snapshots)
        starts = Starts(start).begun_at(restored.pinned_ms)
        newest = sorted(snapshots, key=lambda snapshot: int(snapshot["generation"]))
        stored_by = {key: snapshot for snapshot in newest for key in snapshot["shards"]}
        subtasks = {key: int(each.get("subtask", 0)) for key, each in stored_by.items() if "worker" not in each}
        workers = {key: str(each["worker"]) for key, each in stored_by.items() if each.get("worker") is not None}
        taken = {key: int(each["takenMs"]) for key, each in stored_by.items() if each.get("takenMs") is not None}
        shards = list(listed)
        lost = shards_no_longer_listed(shards, restored, {shard.stream for shard in shards})
        lost_states = {key: restored.shards[key] for key in lost}
        return cls(initial_states(shards, restored, starts), subtasks, lost_states, workers, taken)

    def lowest_shard(self) -> str | None:
        """Return the shard with the lowest watermark that was not read to its end. A stalled alignment waits for it."""
        known = [(state.watermark, key) for key, state in self.states.items() if not state.ended]
        lowest = min(((watermark, key) for watermark, key in known if watermark is not None), default=None)
        return None if lowest is None else lowest[1]


NOTHING_STORED = JobPositions({}, {}, {})


class StoreOrGroupPositions:
    """Reads the positions of a job that may be running, and writes nothing. If the sink keeps positions, it reads them there."""

    def __init__(self, store: ConditionalStore, sink: Sink | None = None) -> None:
        self._store = store
        self._in_sink = None if sink is None else SinkPositions(sink)
        self._entries = entries_of(sink)

    @property
    def place(self) -> str:
        """Where positions are stored: in the sink if it keeps them, else in the state store."""
        return self._store.place if self._in_sink is None else self._in_sink.place

    async def load(self) -> Sequence[State]:
        """Return the snapshots of all subtasks, or of a group of workers.

        Raises: StoreUnavailableError if the store does not answer; StateError if the positions cannot be read.
        """
        group = await self.load_group()
        if group is not None:
            return group
        return await (SnapshotStore(self._store) if self._in_sink is None else self._in_sink).load()

    async def load_group(self) -> Sequence[State] | None:
        """Return the snapshots of a group of workers, or None if there is no group.

        Raises: StoreUnavailableError if the store does not answer; StateError if the positions cannot be read.
        """
        group = GroupStore(self._store)
        entries = None if self._entries is None else GroupStore(self._entries)
        return await group_snapshots(group, partial(read_positions, group, entries), entries)

    async def close(self) -> None:
        """Close the store and the sink."""
        try:
            await self._store.close()
        finally:
            if self._in_sink is not None:
                await self._in_sink.close()


async def group_snapshots(
    group: GroupStore, read: PositionsLoader, entries: GroupStore | None = None
) -> list[State] | None:
    """Return a snapshot for each worker that has shards, and one for the shards without an owner. None without a group.

    Each snapshot has the name of its worker, or None, as `worker`. Raises: StateError if the position of an owned shard is not stored where
    it must be.
    """
    missing: list[str] = []
    for _ in range(ATTEMPTS):
        table = await group.read_table()
        if table is None:
            return None
        if (alone := table.document.alone) is not None:
            part = await read_alone_part(group, entries, alone.worker)
            if part is None:
                continue  # a later start has replaced it in the meantime
            states = alone_states(part.positions, alone)
            pinned, taken = part.pinned_ms, part.taken_ms
            return [{**snapshot_to_json(states, pinned, alone.epoch, 0, 1, taken_ms=taken), "worker": alone.worker}]
        records = {worker: record.document for worker, record in (await group.read_records()).items()}
        states, missing = states_of(table.document, await _positions(read, table.document, records))
        if not missing:
            return _snapshots(table.document, states, records)
    if not missing:
        raise StateError(f"the job that runs alone was started again {ATTEMPTS} times while its positions were read")
    raise StateError(f"the position of {', '.join(missing)} is not stored by the worker that has the lease")


async def _positions(
    read: PositionsLoader, table: LeaseTable, records: Mapping[str, WorkerRecord]
) -> dict[str, Positions]:
    """Return the positions that each owner has stored."""
    return {worker: await read(records[worker]) for worker in table.owners & records.keys()}


def _snapshots(table: LeaseTable, states: Mapping[str, ShardState], records: Mapping[str, WorkerRecord]) -> list[State]:
    by_owner: dict[str | None, dict[str, ShardState]] = {}
    for shard, state in states.items():
        by_owner.setdefault(table.leases[shard].owner, {})[shard] = state
    pinned_ms = table.start.timestamp_ms
    taken = {name: record.checkpoint_ms for name, record in records.items()}
    return [
        {**snapshot_to_json(shards, pinned_ms, table.version, 0, 1, taken_ms=taken.get(owner or "")), "worker": owner}
        for owner, shards in by_owner.items()
    ]
