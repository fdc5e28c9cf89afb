"""Reads the state of each shard that a job has stored, and which worker stored it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from recordpublisher.fetcher.checkpoints.shard_starts import (
    Starts,
    initial_states,
    refuse_later_shards,
    shards_after_their_end,
    shards_newer_than_listing,
    shards_no_longer_listed,
)
from recordpublisher.fetcher.checkpoints.snapshot_format import merge_snapshots, refuse_other_job, snapshot_to_json
from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.fetcher.leases.group_store import (
    GroupStore,
    MissingPositionsError,
    alone_part_of,
    alone_states,
    read_positions,
    states_of,
)
from recordpublisher.fetcher.leases.lease_table import LeaseTable
from recordpublisher.fetcher.leases.position_documents import Positions
from recordpublisher.fetcher.leases.worker_record import WorkerRecord
from recordpublisher.fetcher.pipeline.checked_sink_calls import destination_of, naming_sink, states_of_sink
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.sink import Sink, State, entry_store_of, stores_positions
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.job_properties import STATE_URI
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import INITIAL_POSITION
from recordpublisher.publishers.properties.times_and_sizes import parse_with_unit
from recordpublisher.publishers.shards import Shard

from ..host.build_from_properties import reads_a_queue

PositionsLoader = Callable[[WorkerRecord], Awaitable[Positions]]
ATTEMPTS = 5
"""How often positions are read again because shards moved between workers during a read."""


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of each listed shard, which worker stored it, and when. Each mapping is by `Shard.key`.

    - `states`: the stored states; empty without a store.
    - `workers`: the worker that stored the state.
    - `taken_ms`: when the state was stored (epoch ms).
    - `lost`: the states of shards that were not read to their end, and that the stream no longer lists.
    """

    states: Mapping[str, ShardState] = field(default_factory=dict)
    lost: Mapping[str, ShardState] = field(default_factory=dict)
    workers: Mapping[str, str] = field(default_factory=dict)
    taken_ms: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshots: Iterable[State], listed: Iterable[Shard], start: StartingPosition) -> JobState:
        """Return the states in `snapshots`. A shard without a stored state gets the position at which the job would begin it.

        Raises: StateError if a snapshot cannot be read, or if it is of an earlier stream with the same name.
        """
        snapshots, shards = list(snapshots), list(listed)
        restored = merge_snapshots(snapshots)
        refuse_later_shards(shards_after_their_end(shards, restored))
        starts = Starts(start).with_stored_start(restored.pinned_ms)
        stored_by = {key: snapshot for snapshot in snapshots for key in snapshot["shards"]}
        workers = {key: str(each["worker"]) for key, each in stored_by.items() if each.get("worker") is not None}
        taken = {key: int(each["takenMs"]) for key, each in stored_by.items() if each.get("takenMs") is not None}
        streams = {shard.stream for shard in shards}
        lost = {*shards_no_longer_listed(shards, restored, streams)}
        # Retention drops the oldest shards first. So the listing is older than these shards, or their stream was created again.
        lost -= {*shards_newer_than_listing(shards, restored, streams)}
        lost_states = {key: restored.shards[key] for key in sorted(lost)}
        return cls(initial_states(shards, restored, starts), lost_states, workers, taken)

    def lowest_shard(self) -> str | None:
        """Return, of the shards that were not read to their end, the one with the lowest watermark. None if no watermark is known.

        If alignment waits, it waits for this shard.
        """
        known = [(state.watermark, key) for key, state in self.states.items() if not state.ended]
        lowest = min(((watermark, key) for watermark, key in known if watermark is not None), default=None)
        return None if lowest is None else lowest[1]


class JobStateReader:
    """Reads the positions that a job has stored, even while the job runs. It writes nothing, and never opens the sink.

    The lease table is in the state store or, without one, in the sink's database or folder. Positions are in the sink's database or folder
    if the sink keeps them there, else in the state store. A sink of another package may store whole snapshots; they take precedence.

    - `store`: the state store, or None.
    - `sink`: the job's sink if it keeps positions, else None.
    - `job_name`: `flink.job.name`. Reading the positions of a job with another name is refused.
    """

    def __init__(self, store: ConditionalStore | None, sink: Sink | None = None, job_name: str | None = None) -> None:
        self._store = store
        self._job_name = job_name
        self._sink = sink
        self._entries = entry_store_of(sink)
        self.is_from_rows = False
        """Whether the last call of `load_or_beside_rows` returned the states of `load_beside_rows`."""

    @property
    def place(self) -> str:
        """Where positions are stored: in the sink if it keeps them, else in the state store."""
        if self._entries is not None:
            return self._entries.place
        if self._sink is not None:
            return destination_of(self._sink)
        return "" if self._store is None else self._store.place

    @property
    def documents(self) -> GroupStore | None:
        """The documents of the job: the lease table, and the records of its workers. None if only the sink has positions."""
        place = self._store or self._entries
        return None if place is None else GroupStore(place)

    async def load(self) -> Sequence[State]:
        """Return a snapshot for each worker that has shards, and the snapshots that a sink of another package has stored.

        Raises: StoreUnavailableError if the store does not answer; StateError if the positions cannot be read.
        """
        return await snapshots_in_sink(self._sink) or await self.load_in_store()

    async def load_or_beside_rows(self) -> Sequence[State]:
        """Return the result of `load`. If it lacks positions, return the states of `load_beside_rows` and set `is_from_rows`.

        Raises: the errors of `load`.
        """
        try:
            found, missing = await self.load(), None
        except MissingPositionsError as error:
            found, missing = [], error
        states = {} if found else await self.load_beside_rows()
        if missing is not None and not states:
            raise missing
        self.is_from_rows = bool(states)
        return [snapshot_to_json(states, None, 1)] if states else found

    async def load_in_store(self) -> Sequence[State]:
        """Return a snapshot for each worker that has shards, without those of a sink of another package. Raises: the errors of `load`."""
        if (documents := self.documents) is None:
            return []
        table = await documents.read_table() if self._job_name else None
        if table is not None and table.document.job is not None:
            refuse_other_job(self.place, table.document.job.name, self._job_name)
        entries = None if self._entries is None else GroupStore(self._entries)
        return await snapshots_of_workers(documents, partial(read_positions, documents, entries), entries) or []

    async def load_beside_rows(self) -> Mapping[str, ShardState]:
        """Return the newest state of each shard that the sink has stored with its rows, whatever the lease table says.

        This helps if the lease table was lost, or restored from an older copy. If workers exchanged a shard at that time, the state may be
        older than the last row of the shard. The records in between are then written again.
        """
        if self._entries is None:
            return {}
        newest: dict[str, tuple[int, ShardState]] = {}
        for part in await GroupStore(self._entries).read_all_parts():
            for key, stored in part.positions.items():
                if key.shard not in newest or newest[key.shard][0] < key.epoch:
                    newest[key.shard] = key.epoch, stored.state
        return {shard: state for shard, (_, state) in newest.items()}

    async def close(self) -> None:
        """Close the store and the sink."""
        try:
            if self._store is not None:
                await self._store.close()
        finally:
            if self._sink is not None:
                await self._sink.close()
            if self._entries is not None:
                await self._entries.close()


def effect_of_no_positions(sink: type[Sink] | None, properties: Properties) -> str:
    """Return in words what a restart does if no positions are stored, and what helps. Return an empty text if the job stores them.

    - `sink`: the class of the job's sink, or None if it is not known.
    """
    if properties.value(STATE_URI) is not None or (sink is not None and stores_positions(sink)):
        return ""
    if reads_a_queue(properties):
        return ""
    start = properties.value(INITIAL_POSITION)
    loss = {"LATEST": "misses the records that arrived since the last run", "TRIM_HORIZON": "reads all records again"}
    other = (
        f"begins at {start} again"
        if parse_with_unit(start, "ms") is None
        else f"begins {start} before the time of the start"
    )
    return f"no positions are stored: each start {loss.get(start, other)}; set {STATE_URI.key}"


async def snapshots_of_workers(
    group: GroupStore, read: PositionsLoader, entries: GroupStore | None = None
) -> list[State] | None:
    """Return a snapshot for each worker that has shards, and one for the shards without an owner. None if the group has no lease table.

    The field `worker` of a snapshot is the name of its worker, or None.

    - `entries`: the sink's own store of positions, for a job that runs alone.

    Raises: MissingPositionsError if the position of a shard is not stored where it should be; StateError if the job starts again and again
    during the read.
    """
    missing: list[str] = []
    for _ in range(ATTEMPTS):
        table = await group.read_table()
        if table is None:
            return None
        if (alone := table.document.alone) is not None:
            part = await alone_part_of(group, entries, table.document)
            if part is None:
                continue
            states = alone_states(part.positions, alone)
            pinned, taken = part.pinned_ms, part.taken_ms
            return [{**snapshot_to_json(states, pinned, alone.epoch, taken_ms=taken), "worker": alone.worker}]
        records = {worker: record.document for worker, record in (await group.read_records()).items()}
        states, missing = states_of(table.document, await _positions(read, table.document, records))
        if not missing:
            return _snapshots(table.document, states, records)
    if not missing:
        raise StateError(
            f"the job that runs alone was started again {ATTEMPTS} times while its positions were read; try again"
        )
    assert table is not None  # Only a table names shards.
    raise MissingPositionsError.of(", ".join(missing), group.place, table.document.job)


async def _positions(
    read: PositionsLoader, table: LeaseTable, records: Mapping[str, WorkerRecord]
) -> dict[str, Positions]:
    return {worker: await read(records[worker]) for worker in table.owners & records.keys()}


def _snapshots(table: LeaseTable, states: Mapping[str, ShardState], records: Mapping[str, WorkerRecord]) -> list[State]:
    by_owner: dict[str | None, dict[str, ShardState]] = {}
    for shard, state in states.items():
        by_owner.setdefault(table.leases[shard].owner, {})[shard] = state
    pinned_ms = table.start.timestamp_ms
    taken = {name: record.checkpoint_ms for name, record in records.items()}
    return [
        {**snapshot_to_json(shards, pinned_ms, table.version, taken_ms=taken.get(owner or "")), "worker": owner}
        for owner, shards in by_owner.items()
    ]


async def snapshots_in_sink(sink: Sink | None) -> list[State]:
    """Return the snapshots that a sink of another package stores itself; empty for other sinks, or without a sink.

    Raises: PluginError if `stored_positions` returns something else; StateError if a snapshot cannot be read; the errors of the sink.
    """
    if sink is None or entry_store_of(sink) is not None:
        return []
    with naming_sink(sink, "stored_positions"):
        found = await sink.stored_positions()
    return states_of_sink(sink, "stored_positions", found)
