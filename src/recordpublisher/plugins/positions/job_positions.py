"""Reads and writes the stored positions of the job that a properties file describes, in its sink and its state store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from recordpublisher.fetcher.checkpoints.snapshot_format import (
    RestoredState,
    merge_snapshots,
    overlay,
    refuse_other_job,
    snapshot_to_json,
)
from recordpublisher.fetcher.conditional_store import ConditionalStore, StoredDocument
from recordpublisher.fetcher.leases.group_store import GroupStore, store_as_group
from recordpublisher.fetcher.leases.lease_settings import LeaseSettings
from recordpublisher.fetcher.leases.lease_table import LeaseTable
from recordpublisher.fetcher.leases.worker_sealing import (
    LiveWorkerError,
    seal_all_silent,
    seal_part,
    seal_parts,
    seal_worker,
)
from recordpublisher.fetcher.pipeline.checked_sink_calls import destination_of, naming_sink, states_of_sink
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.sink import Checkpoint, Sink, SinkContext, entry_store_of, stores_positions
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import ConfigurationError, StateError
from recordpublisher.publishers.properties.config_fields import values_of
from recordpublisher.publishers.properties.job_properties import JOB_NAME, SINK, STATE_URI
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.safe_text import mask_passwords

from ..host.build_from_properties import (
    build_sink,
    build_source,
    build_store,
    check_properties,
    checked_publisher_class,
)
from ..host.plugin_loading import load_registry
from ..lag.job_state import JobStateReader, snapshots_in_sink
from ..runtime.shard_lister import ShardLister
from ..runtime.stream_names import GivenStreams, stream_names, streams_of
from ..stores.by_location import missing_folder


class JobPositions:
    """Reads a job's positions, even while the job runs. Writes or replaces the positions of a stopped job.

    Owns the job's sink and its state store. Only `store_over` opens the sink. The store is opened when a call first needs it.

    Raises: ConfigurationError if a property is invalid, or if the job stores its positions nowhere.
    """

    def __init__(self, properties: Properties) -> None:
        self._registry = load_registry()
        check_properties(self._registry, properties)
        checked_publisher_class(self._registry, properties, "this command")
        self._properties = properties
        sink = properties.value(SINK)
        keeps = sink is not None and stores_positions(self._registry.sinks.get(sink, SINK.key))
        if not keeps and properties.value(STATE_URI) is None:
            raise ConfigurationError(STATE_URI.key, None, STATE_URI.valid, reason="the sink keeps no positions")
        self._sink = build_sink(self._registry, properties) if keeps else None
        self._store: ConditionalStore | None = None
        self._job_name = properties.value(JOB_NAME)

    @property
    def are_stored_by_the_sink(self) -> bool:
        """Whether a sink of another package stores the job's snapshots itself (`stored_positions`)."""
        return self._sink is not None and entry_store_of(self._sink) is None

    @property
    def place(self) -> str:
        """Where positions are written."""
        if self._entries is not None:
            return self._entries.place
        if self._sink is not None and self.are_stored_by_the_sink:
            return destination_of(self._sink)
        return mask_passwords(str(self._properties.value(STATE_URI)))

    async def load(self) -> StoredPositions:
        """Return the positions that are stored now. Nothing is created. Raises: StateError if they cannot be read."""
        reader = JobStateReader(self._existing_store(), self._sink, self._job_name)
        in_store = merge_snapshots(await reader.load_in_store())
        return StoredPositions(merge_snapshots(await snapshots_in_sink(self._sink)), in_store)

    async def load_beside_rows(self) -> Mapping[str, ShardState]:
        """Return the newest state of each shard that the sink has stored with its rows (`JobStateReader.load_beside_rows`)."""
        return await JobStateReader(None, self._sink).load_beside_rows()

    async def heartbeats(self) -> Mapping[str, int]:
        """Return the number of the last heartbeat of each worker of the job's group. Workers that were declared dead are left out.

        Raises: StateError if the group cannot be read.
        """
        documents = JobStateReader(self._existing_store(), self._sink).documents
        if documents is None:
            return {}
        records = await documents.read_records()
        return {worker: each.document.beat for worker, each in records.items() if not each.document.is_sealed}

    async def group_workers(self) -> Sequence[str]:
        """Return the workers of the job's group that were not declared dead. A job that runs alone has none."""
        documents = JobStateReader(self._existing_store(), self._sink).documents
        records = {} if documents is None else await documents.read_records()
        return [name for name, each in records.items() if not each.document.is_sealed and not each.document.is_alone]

    @property
    def heartbeat_seconds(self) -> float:
        """Longest time between two heartbeats of a worker (seconds)."""
        return self._lease_settings.interval

    def check_writable(self) -> None:
        """Check that positions can be written. Raises: ConfigurationError if there is no state store to write to."""
        if self._entries is None and self._properties.value(STATE_URI) is None:
            reason = "the sink stores positions only together with its rows, so the imported ones must be written to a state store"
            raise ConfigurationError(STATE_URI.key, None, STATE_URI.valid, reason=reason)

    async def store(self, states: Mapping[str, ShardState]) -> None:
        """Store the first positions of the job. If the job runs alone, they replace its positions, and later writes of its process fail.

        Raises: ConfigurationError if there is no state store; StateError if a group has positions, or if the states cannot be written.
        """
        self.check_writable()
        store = self._written_store()
        found = await GroupStore(store).read_table()
        self._refuse_other_job(found)
        if found is not None and found.document.alone is not None:
            await self._store_over(store, found, states)
        else:
            await store_as_group(store, states, job_name=self._job_name)

    async def store_over(self, states: Mapping[str, ShardState]) -> None:
        """Replace the positions of the job. For a group, first wait until no worker is left; silent workers are declared dead.

        A sink that stores snapshots itself receives the new positions in `flush`. Opening the sink fences the job's other processes.

        Raises: StateError if a worker of a group is running, or if the states cannot be written; the errors of the sink.
        """
        if self._sink is not None and self.are_stored_by_the_sink:
            await self._store_in_sink(self._sink, states)
            if self._properties.value(STATE_URI) is None:
                return
        store = self._written_store()
        group = GroupStore(store, self.heartbeat_seconds)
        found = await group.read_table()
        if found is None:
            await self.store(states)
            return
        self._refuse_other_job(found)
        if found.document.alone is None:
            await end_group(group, self._lease_settings)
            await self._seal_positions(group)
            found = await group.read_table()
            assert found is not None  # The lease table is never deleted.
        await self._store_over(store, found, states)

    def _refuse_other_job(self, found: StoredDocument[LeaseTable] | None) -> None:
        """Refuse to replace positions that are another job's. Raises: StateError if they are."""
        if found is not None and found.document.job is not None:
            refuse_other_job(self.place, found.document.job.name, self._job_name)

    async def _seal_positions(self, group: GroupStore) -> None:
        """Make later commits of former workers fail. A worker may only be suspended. What it has committed before is published later."""
        entries = entry_store_of(self._sink)
        for worker, record in (await group.read_records(consistent=True)).items():
            await seal_parts(group, record.document)
            if entries is not None:
                await seal_part(GroupStore(entries), worker, 0)

    async def _store_in_sink(self, sink: Sink, states: Mapping[str, ShardState]) -> None:
        with naming_sink(sink, "open"):
            found = await sink.open(SinkContext(tuple(stream_names(streams_of(self._properties)))))
        before = merge_snapshots(states_of_sink(sink, "open", found))
        snapshot = snapshot_to_json(states, before.pinned_ms, before.generation + 1, SystemClock().now_ms())
        with naming_sink(sink, "flush"):
            await sink.flush(Checkpoint(snapshot, is_last=True))
        after = merge_snapshots(await snapshots_in_sink(sink))
        if {key: state.to_json() for key, state in after.shards.items()} != snapshot["shards"]:
            name = type(sink).__name__
            raise StateError(
                f"`{name}.stored_positions` does not return the positions that `{name}.flush` was given, so nothing is known to be reset: "
                "`flush` must store `checkpoint.state` even if nothing was written since"
            )

    async def _store_over(
        self, store: ConditionalStore, found: StoredDocument[LeaseTable], states: Mapping[str, ShardState]
    ) -> None:
        """Store the states over those in `found`.

        If the job runs alone, first make later writes of its process fail: seal its worker's record, then the documents with its positions.
        """
        if (alone := found.document.alone) is not None:
            group, entries = GroupStore(store), entry_store_of(self._sink)
            await seal_parts(group, await seal_worker(group, alone.worker))
            if entries is not None:
                await seal_part(GroupStore(entries), alone.worker, 0)
        await store_as_group(store, states, found)

    async def close(self) -> None:
        """Close the sink and the store, if they were opened."""
        await JobStateReader(self._store, self._sink).close()

    @property
    def _entries(self) -> ConditionalStore | None:
        """The store of positions in the sink's database or folder; None if the job has a state store. It also has the lease table."""
        return entry_store_of(self._sink) if self._properties.value(STATE_URI) is None else None

    def _written_store(self) -> ConditionalStore:
        store = self._entries or self._opened_store()
        assert store is not None  # `check_writable` has found the URI of a store.
        return store

    @property
    def _lease_settings(self) -> LeaseSettings:
        return LeaseSettings(**values_of(LeaseSettings, self._properties))

    def _opened_store(self) -> ConditionalStore | None:
        if self._store is None:
            self._store = build_store(self._registry, self._properties)
        return self._store

    def _existing_store(self) -> ConditionalStore | None:
        """Return the state store, or None if it is in a folder that does not exist.

        Opening the store would create the folder, even if its path is mistyped.
        """
        uri = self._properties.value(STATE_URI)
        return None if uri is not None and missing_folder(uri) is not None else self._opened_store()


@dataclass(frozen=True, slots=True)
class StoredPositions:
    """The positions in the sink and in the state store. If both have a shard, the job resumes at the sink's position."""

    in_sink: RestoredState
    in_store: RestoredState

    @property
    def merged(self) -> RestoredState:
        """The state from which the job would be restored."""
        return overlay(self.in_store, self.in_sink)

    def check_unused(self, is_forced: bool) -> None:
        """Check that an import would not replace positions of the job, and that the job would not prefer its own to the imported ones.

        Raises: StateError if the sink has positions, or if the state store has some and `is_forced` is False.
        """
        if self.in_sink.shards:
            raise StateError(
                f"the sink has positions of {_streams(self.in_sink)} with its rows, and the job continues from these: "
                "give the job a new name, or its sink a new place"
            )
        if self.in_store.shards and not is_forced:
            raise StateError(f"the job has positions of {_streams(self.in_store)}. Add --force to replace them")


async def end_group(group: GroupStore, settings: LeaseSettings) -> None:
    """Wait until no worker is in the group. Workers without heartbeats are declared dead.

    Raises: StateError, naming the worker, if one is running; StoreUnavailableError if the store does not answer.
    """
    try:
        await seal_all_silent(group, settings, SystemClock())
    except LiveWorkerError as error:
        raise StateError(
            f"worker {error.worker} of the group sends heartbeats: stop all processes of the job first"
        ) from error


def _streams(restored: RestoredState) -> str:
    return ", ".join(sorted(restored.streams))


@dataclass(frozen=True, slots=True)
class ImportedPosition:
    """The position from which the job starts to read one shard.

    - `found`: the position in the file or table that is imported, as a text.
    - `is_stored`: False if the file or table has no position of the shard. Then the job decides by its own rules.
    """

    shard: str
    found: str
    state: ShardState
    note: str = ""
    is_stored: bool = True


def imported_states(positions: Iterable[ImportedPosition]) -> Mapping[str, ShardState]:
    """Return the states to store.

    Shards for which no position was found are left out, because the job knows how to begin a new or an ended shard.
    """
    return {position.shard: position.state for position in positions if position.is_stored}


@asynccontextmanager
async def job_and_lister(properties: Properties) -> AsyncIterator[tuple[JobPositions, ShardLister, Sequence[str]]]:
    """Yield the job's positions, an object that lists the shards of its streams as `run` does, and the names of its streams.

    No consumer is registered.
    """
    async with AsyncExitStack() as opened:
        job = JobPositions(properties)
        opened.push_async_callback(job.close)
        lister, names = await opened.enter_async_context(lister_and_streams(properties, streams_of(properties)))
        yield job, lister, names


@asynccontextmanager
async def lister_and_streams(
    properties: Properties, streams: GivenStreams
) -> AsyncIterator[tuple[ShardLister, Sequence[str]]]:
    """Yield an object that lists the shards of these streams as `run` does, and the names of the streams."""
    registry, names = load_registry(), stream_names(streams)
    async with AsyncExitStack() as opened:
        made = checked_publisher_class(registry, properties, "this command")
        factory = build_source(registry, properties, made)
        factory.keep_shared()  # The job's processes may use what the factory shares with them.
        opened.push_async_callback(factory.close)
        lister = ShardLister(factory, properties, names, SystemClock())
        opened.push_async_callback(lister.close)
        yield lister, [*names]
