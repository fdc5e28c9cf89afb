"""JobPositions: the stored positions of the job that a properties file describes, in its sink and its state store, and imported ones."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from recordpublisher.fetcher.checkpoints.snapshot import RestoredState, merge_snapshots, overlay, snapshot_to_json
from recordpublisher.fetcher.checkpoints.snapshot_store import SnapshotStore
from recordpublisher.fetcher.committing_sink import entries_of, stores_positions
from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.fetcher.leases.documents.first_group import store_as_group
from recordpublisher.fetcher.leases.documents.group_store import GroupStore
from recordpublisher.fetcher.leases.group_observer import LiveWorkerError, seal_all_silent
from recordpublisher.fetcher.leases.lease_settings import LeaseSettings
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.sink import Sink, State
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import ConfigurationError, StateError
from recordpublisher.publishers.password_masking import mask_passwords
from recordpublisher.publishers.properties.config_fields import values_of
from recordpublisher.publishers.properties.groups.discovery_and_state import SHARD_ASSIGNMENT, STATE_URI
from recordpublisher.publishers.properties.groups.job import JOB_NAME, SINK
from recordpublisher.publishers.properties.properties import Properties

from ..host.build_from_properties import build_sink, build_store, publisher_class
from ..host.manager import load_registry
from ..lag.stored_positions import SinkPositions, StoreOrGroupPositions
from ..runtime.stream_names import streams_of
from ..stores.by_location import missing_folder

if TYPE_CHECKING:
    from recordpublisher.publishers.kinesis import KinesisClient


@dataclass(frozen=True, slots=True)
class StoredPositions:
    """What the sink and the state store have. Where both have a shard, the job goes on from the sink's."""

    in_sink: RestoredState
    in_store: RestoredState

    @property
    def merged(self) -> RestoredState:
        """What the job would be restored from."""
        return overlay(self.in_store, self.in_sink)

    def check_unused(self, is_forced: bool) -> None:
        """Raises: StateError when there are positions that imported ones would replace, or that come before them."""
        if self.in_sink.shards:
            raise StateError(
                f"the sink has positions of {_streams(self.in_sink)} with its rows, and the job goes on from these: "
                "give the job a new name or place"
            )
        if self.in_store.shards and not is_forced:
            raise StateError(
                f"the job has positions of {_streams(self.in_store)}. --force puts the imported ones in their place"
            )


class JobPositions:
    """Reads a job's positions beside it, without taking anything over, and writes the first ones of a job that is not running.

    Owns the connections of its sink, which is never opened, and of its state store, which is opened by the first call that needs it.
    """

    def __init__(self, properties: Properties) -> None:
        """Raises: ConfigurationError when the job stores its positions nowhere."""
        self._registry = load_registry()
        properties.check()
        publisher_class(self._registry, properties, "this command")
        self._properties = properties
        sink = properties.value(SINK)
        keeps = sink is not None and stores_positions(self._registry.sinks.get(sink, SINK.key))
        if not keeps and properties.value(STATE_URI) is None:
            raise ConfigurationError(STATE_URI.key, None, STATE_URI.valid, reason="the sink keeps no positions")
        self._sink = build_sink(self._registry, properties) if keeps else None
        self._in_sink = None if self._sink is None else SinkPositions(self._sink)
        self._store: ConditionalStore | None = None

    @property
    def are_in_the_sink(self) -> bool:
        """Whether the sink keeps them, with its rows."""
        return self._sink is not None

    @property
    def place(self) -> str:
        """Where positions are written."""
        if self._entries is not None:
            return self._entries.place
        return mask_passwords(str(self._properties.value(STATE_URI)))

    async def load(self) -> StoredPositions:
        """What is stored now. Nothing is created. Raises: StateError."""
        with_rows = merge_snapshots([] if self._in_sink is None else await self._in_sink.load())
        store = self._existing_store()
        in_store = [] if store is None else await _stored(store, self._sink)
        stored = merge_snapshots(in_store)
        if self._entries is None:
            return StoredPositions(with_rows, stored)
        return StoredPositions(RestoredState(), overlay(stored, with_rows))

    async def heartbeats(self) -> Mapping[str, int]:
        """The number of the last heartbeat of each worker of the job's group that nobody has sealed. Raises: StateError."""
        store = self._existing_store()
        if store is None:
            return {}
        records = await GroupStore(store).read_records()
        return {worker: each.document.beat for worker, each in records.items() if not each.document.is_sealed}

    @property
    def heartbeat_seconds(self) -> float:
        """Between two heartbeats of a worker, at most."""
        return self._lease_settings.interval

    def check_writable(self) -> None:
        """Raises: ConfigurationError when there is no state store to write to."""
        if self._entries is None and self._properties.value(STATE_URI) is None:
            reason = "the sink stores positions only together with its rows, so the first ones must be in a state store"
            raise ConfigurationError(STATE_URI.key, None, STATE_URI.valid, reason=reason)

    async def store(self, states: Mapping[str, ShardState]) -> None:
        """Store states as a new generation: subtasks that are running are fenced off. With ELASTIC as those of a new group.

        Raises: ConfigurationError, StateError.
        """
        self.check_writable()
        store = self._entries or self._opened_store()
        assert store is not None  # there is a URI
        if self._properties.value(SHARD_ASSIGNMENT) == "ELASTIC":
            await store_as_group(store, states)
            return
        snapshots = SnapshotStore(store, self._properties.value(JOB_NAME))
        generation = await snapshots.open_generation(0)
        await snapshots.store(0, generation, snapshot_to_json(states, None, generation, 0, 1))
        await snapshots.fence_subtasks_from(1, is_replaced=True)

    async def store_over(self, states: Mapping[str, ShardState]) -> None:
        """Store states over those of the job; a group's when nobody is in it. Silent workers are waited for. Raises: StateError."""
        group = await self._group()
        if group is None:
            await self.store(states)
            return
        await end_group(group, self._lease_settings)
        store = self._opened_store()
        assert store is not None  # the group is in it
        await store_as_group(store, states, await group.read_table())

    async def is_of_a_group(self) -> bool:
        """Whether the job is ELASTIC, by its properties or by the positions that it has. Raises: StateError."""
        return self._properties.value(SHARD_ASSIGNMENT) == "ELASTIC" or await self._group() is not None

    async def close(self) -> None:
        """Close what was opened."""
        if self._in_sink is not None:
            await self._in_sink.close()
        if self._store is not None:
            await self._store.close()

    @property
    def _entries(self) -> ConditionalStore | None:
        """Where a fixed number of subtasks has its positions with the rows. A group begins in its store."""
        is_elastic = self._properties.value(SHARD_ASSIGNMENT) == "ELASTIC"
        return None if is_elastic else entries_of(self._sink)

    @property
    def _lease_settings(self) -> LeaseSettings:
        return LeaseSettings(**values_of(LeaseSettings, self._properties))

    async def _group(self) -> GroupStore | None:
        store = self._existing_store()
        group = None if store is None else GroupStore(store, self.heartbeat_seconds)
        return None if group is None or await group.read_table() is None else group

    def _opened_store(self) -> ConditionalStore | None:
        if self._store is None:
            self._store = build_store(self._registry, self._properties)
        return self._store

    def _existing_store(self) -> ConditionalStore | None:
        """Opening a store in a folder creates it, also for a mistyped path: None while there is no such folder."""
        uri = self._properties.value(STATE_URI)
        return None if uri is not None and missing_folder(uri) is not None else self._opened_store()


async def end_group(group: GroupStore, settings: LeaseSettings) -> None:
    """Wait until no worker is in the group: silent ones are sealed. Raises: StateError naming one that lives, StoreUnavailableError."""
    try:
        await seal_all_silent(group, settings, SystemClock())
    except LiveWorkerError as error:
        raise StateError(
            f"worker {error.worker} of the group sends heartbeats: stop all its processes first"
        ) from error


async def _stored(store: ConditionalStore, sink: Sink | None) -> Sequence[State]:
    """The positions of a group of workers, or the snapshots of subtasks."""
    group = await StoreOrGroupPositions(store, sink).load_group()
    return await SnapshotStore(store).load() if group is None else group


def _streams(restored: RestoredState) -> str:
    return ", ".join(sorted(restored.streams))


@dataclass(frozen=True, slots=True)
class ImportedPosition:
    """What the job starts from for one shard.

    `found`: what the other side has stored. `is_stored`: False if that is nothing: then the job decides by its own rules.
    """

    shard: str
    found: str
    state: ShardState
    note: str = ""
    is_stored: bool = True


def imported_states(positions: Iterable[ImportedPosition]) -> Mapping[str, ShardState]:
    """The states to store. Nothing, where nothing was found: the job knows what to do with a new shard or an ended one."""
    return {position.shard: position.state for position in positions if position.is_stored}


@asynccontextmanager
async def job_and_service(properties: Properties) -> AsyncIterator[tuple[JobPositions, KinesisClient, Sequence[str]]]:
    """The job's positions, the service and the job's streams."""
    from recordpublisher.publishers.kinesis import KinesisClient  # brings the AWS SDK

    streams, job = streams_of(properties), JobPositions(properties)
    try:
        async with KinesisClient(properties, streams) as service:
            yield job, service, streams
    finally:
        await job.close()
