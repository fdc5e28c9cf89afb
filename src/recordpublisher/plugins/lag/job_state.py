"""Reads the state of each shard that a job has stored, and which worker stored it."""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

import msgspec

from recordpublisher.fetcher.checkpoints.snapshot import merge_snapshots, snapshot_to_json
from recordpublisher.fetcher.checkpoints.starts import Starts, initial_states, shards_no_longer_listed
from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.fetcher.leases.group_store import GroupStore, Positions, WorkerRecord, alone_states, states_of
from recordpublisher.fetcher.leases.lease_table import LeaseTable
from recordpublisher.fetcher.leases.position_store import read_alone_part, read_positions
from recordpublisher.fetcher.shards.shard_reading import ShardState
from recordpublisher.fetcher.sink import Sink, State, entry_store_of, stores_positions
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.declaration import parse_with_unit
from recordpublisher.publishers.properties.job_properties import STATE_URI
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import INITIAL_POSITION
from recordpublisher.publishers.shards import Shard

from ..host.build_from_properties import reads_a_queue

PositionsLoader = Callable[[WorkerRecord], Awaitable[Positions]]
ATTEMPTS = 5
"""How often positions are read again because shards moved between workers during a read."""


@dataclass(frozen=True, slots=True)
class JobState:
    """The state of each listed shard by `Shard.key`, with the worker that stored it and the time. Without a store there are no states.

    - `workers`: the worker that stored the state.
    - `taken_ms`: when the state was stored (epoch ms).
    - `lost`: shards that were not read to their end and that the stream no longer lists (S5).
    """

    states: Mapping[str, ShardState] = field(default_factory=dict)
    lost: Mapping[str, ShardState] = field(default_factory=dict)
    workers: Mapping[str, str] = field(default_factory=dict)
    taken_ms: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, snapshots: Iterable[State], listed: Iterable[Shard], start: StartingPosition) -> JobState:
        """Return the states in snapshots. A shard without a stored state begins where the job would begin it.

        Raises: StateError if a snapshot cannot be read.
        """
        snapshots = list(snapshots)
        restored = merge_snapshots(snapshots)
        starts = Starts(start).begun_at(restored.pinned_ms)
        stored_by = {key: snapshot for snapshot in snapshots for key in snapshot["shards"]}
        workers = {key: str(each["worker"]) for key, each in stored_by.items() if each.get("worker") is not None}
        taken = {key: int(each["takenMs"]) for key, each in stored_by.items() if each.get("takenMs") is not None}
        shards = list(listed)
        lost = shards_no_longer_listed(shards, restored, {shard.stream for shard in shards})
        lost_states = {key: restored.shards[key] for key in lost}
        return cls(initial_states(shards, restored, starts), lost_states, workers, taken)

    def lowest_shard(self) -> str | None:
        """Return the shard with the lowest watermark that was not read to its end. If alignment waits, it waits for this shard."""
        known = [(state.watermark, key) for key, state in self.states.items() if not state.ended]
        lowest = min(((watermark, key) for watermark, key in known if watermark is not None), default=None)
        return None if lowest is None else lowest[1]


class JobStateReader:
    """Reads the positions that a job has stored, while the job may run. It writes nothing, and never opens the sink.

    The lease table is in the state store or, without one, in the store that the sink keeps next to its rows. The positions are in the same
    place. A sink of another package may store positions by itself; they take precedence.

    - `store`: the state store, or None.
    - `sink`: the job's sink if it keeps positions, else None.
    """

    def __init__(self, store: ConditionalStore | None, sink: Sink | None = None) -> None:
        self._store = store
        self._sink = sink
        self._entries = entry_store_of(sink)

    @property
    def place(self) -> str:
        """Where positions are stored: in the sink if it keeps them, else in the state store."""
        if self._entries is not None:
            return self._entries.place
        if self._sink is not None:
            return self._sink.destination()
        return "" if self._store is None else self._store.place

    @property
    def documents(self) -> GroupStore | None:
        """The documents of the job: the lease table, and the records of its workers. None if only the sink has positions."""
        place = self._store or self._entries
        return None if place is None else GroupStore(place)

    async def load(self) -> Sequence[State]:
        """Return a snapshot for each worker that has shards, and the one that a sink of another package has stored.

        Raises: StoreUnavailableError if the store does not answer; StateError if the positions cannot be read.
        """
        own = [] if self._sink is None or self._entries is not None else await self._sink.stored_positions() or []
        return own or await self.load_in_store()

    async def load_in_store(self) -> Sequence[State]:
        """Return a snapshot for each worker that has shards. Raises: the errors of `load`."""
        if (documents := self.documents) is None:
            return []
        entries = None if self._entries is None else GroupStore(self._entries)
        return await snapshots_of_workers(documents, partial(read_positions, documents, entries), entries) or []

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


def without_positions(sink: type[Sink] | None, properties: Properties) -> str:
    """Return what a restart of a job without stored positions does, and what helps; an empty text if the job stores positions.

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


async def snapshots_of_workers(
    group: GroupStore, read: PositionsLoader, entries: GroupStore | None = None
) -> list[State] | None:
    """Return a snapshot for each worker that has shards, and one for the shards without an owner. None without a lease table.

    The field `worker` of a snapshot is the name of its worker, or None. Raises: StateError if the position of an owned shard is not stored
    where it must be.
    """
    missing: list[str] = []
    for _ in range(ATTEMPTS):
        table = await group.read_table()
        if table is None:
            return None
        if (alone := table.document.alone) is not None:
            part = await read_alone_part(group, entries, alone.worker)
            if part is None:
                continue  # A later start has replaced this worker since.
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
    raise StateError(
        f"the worker that holds the leases of {', '.join(missing)} has stored no positions of these shards"
    )


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
        {**snapshot_to_json(shards, pinned_ms, table.version, taken_ms=taken.get(owner or "")), "worker": owner}
        for owner, shards in by_owner.items()
    ]


# The state of a job at one moment, as `lag`, the dashboard and their JSON show it. Unknown values are None.


class ShardSnapshot(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """One shard. Times are in ms.

    - `process`: the number of the worker that reads the shard. `worker`: its name in a group, if it is known.
    - `checkpoint_age_ms`: time since the last checkpoint of the shard's reader.
    - `stage`: WAITING for its parents, READING, DRAINING or ENDED. `parents`: the ids of the shards that were split or merged
      into it.
    - `lag_ms`: age of the oldest record that is not finished. From stored positions: age of the oldest record that no checkpoint
      covers. `unread`: whether there is such a record. `position`: the stored position.
    - `loss_ms`: time until a record that is not finished may be past retention.
    - `watermark`: watermark after the last record written (epoch ms). `is_held`, `is_excluded`: whether alignment holds or
      excludes the shard.
    - `is_idle`: whether no record arrived for `IdleIntervals.shown_ms`. `idle_ms`: time since the last record.
    - `records_per_second`, `bytes_per_second`: records finished and bytes written lately; without stored positions, those that
      arrive.
    - `tip`, `tip_age_ms`: without stored positions the sequence number of the newest record, and its age.
    - `skipped_records`, `dead_letters`: counts since the worker began to read the shard. `in_flight`: records of a queue that are not
      acknowledged.
    - `has_alarm`: whether the shard needs attention; None if this was not checked. `alarm`: why it does.
    """

    stream: str
    shard: str
    process: int | None = None
    worker: str | None = None
    stage: str | None = None
    position: str | None = None
    unread: bool | None = None
    lag_ms: int | None = None
    records_per_second: float | None = None
    bytes_per_second: float | None = None
    watermark: int | None = None
    is_idle: bool | None = None
    idle_ms: int | None = None
    is_held: bool | None = None
    is_excluded: bool | None = None
    loss_ms: int | None = None
    skipped_records: int | None = None
    dead_letters: int | None = None
    in_flight: int | None = None
    has_alarm: bool | None = None
    alarm: str | None = None
    parents: list[str] | None = None
    tip: str | None = None
    tip_age_ms: int | None = None
    checkpoint_age_ms: int | None = None


class CommitSnapshot(msgspec.Struct, frozen=True, rename="camel"):
    """The last commit of a sink.

    - `files`, `bytes`: how many were committed; 0 for rows of a database.
    - `age_ms`: how long ago the commit was (ms), or None before the first commit.
    - `waiting_records`: records that wait for the next commit.
    """

    files: int
    bytes: int
    age_ms: int | None
    waiting_records: int


class WorkerSnapshot(msgspec.Struct, frozen=True, rename="camel"):
    """One worker: its number `process`, or in a group its name `worker`.

    - `responds`: whether its event loop responds. `not_ready`: why it is not ready; empty if it is ready.
    - `checkpoint_age_ms`: how long ago its last checkpoint was (ms).
    - `commit`: the last commit, if the worker is running and its sink commits.
    - `alarms`: number of active alarms.
    - `skipped_records`, `dead_letters`: counts since the worker started, over all shards that it has read.
    """

    process: int | None = None
    responds: bool | None = None
    not_ready: list[str] | None = None
    checkpoint_age_ms: int | None = None
    worker: str | None = None
    commit: CommitSnapshot | None = None
    alarms: int | None = None
    skipped_records: int | None = None
    dead_letters: int | None = None


class JobSnapshot(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """The job `job` at `time_ms` (epoch ms).

    - `alignment`: which shard alignment waits for and why, in one sentence.
    """

    job: str | None = None
    time_ms: int
    shards: list[ShardSnapshot]
    workers: list[WorkerSnapshot] | None = None
    global_watermark: int | None = None
    alignment: str | None = None

    @property
    def records_per_second(self) -> float | None:
        """Records per second, summed over the shards whose rate is known."""
        rates = [shard.records_per_second for shard in self.shards if shard.records_per_second is not None]
        return sum(rates) if rates else None

    @property
    def lag_ms(self) -> int | None:
        """Largest known lag of a shard (ms)."""
        return max((shard.lag_ms for shard in self.shards if shard.lag_ms is not None), default=None)


class SnapshotSource(Protocol):
    """An object that returns snapshots of a job."""

    async def snapshot(self) -> JobSnapshot:
        """Return the current state of the job. Raises: RecordPublisherError if it cannot be read."""


class HistoryPoint(msgspec.Struct, frozen=True, rename="camel"):
    """The totals at one moment (epoch ms): records written per second, and the largest lag (ms). Unknown values are None."""

    time_ms: int
    records_per_second: float | None = None
    lag_ms: int | None = None


def point_of(snapshot: JobSnapshot) -> HistoryPoint:
    """Return the totals of a snapshot."""
    return HistoryPoint(snapshot.time_ms, snapshot.records_per_second, snapshot.lag_ms)


# Computes rates per second from counters at two moments.

WINDOW_SECONDS = 10.0
Counters = Mapping[str, tuple[int, int]]
"""Records and bytes written so far, by shard."""


class Rates:
    """Owns the counters of the last seconds: the newest ones, and older ones back to the beginning of the window."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, Counters]] = deque()

    def add(self, now: float, counters: Counters) -> None:
        """Keep the counters at `now` (seconds of a monotonic clock). Called about once a second."""
        self._samples.append((now, counters))
        while len(self._samples) > 2 and now - self._samples[1][0] >= WINDOW_SECONDS:
            self._samples.popleft()

    def per_second(self, shard: str) -> tuple[float, float] | None:
        """Return records and bytes per second, or None if they are not known.

        They are not known if, for example, another process has taken over the shard, so that its counters begin again at 0.
        """
        if len(self._samples) < 2:
            return None
        (then, before), (now, after) = self._samples[0], self._samples[-1]
        if shard not in before or now <= then:
            return None
        (records, size), (records_now, size_now) = before[shard], after[shard]
        if records_now < records:
            return None
        return (records_now - records) / (now - then), (size_now - size) / (now - then)
