"""Reads what `recordpublisher lag` shows: a job's stored positions, and the lag of each shard behind its tip."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from recordpublisher.plugins.dashboard.stored_snapshot import StoredSnapshots
from recordpublisher.plugins.lag.probe import LagProbe
from recordpublisher.plugins.lag.shard_lag import ShardLag
from recordpublisher.plugins.lag.stored_positions import PositionsReader, SinkPositions, stores_positions
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.table import ALARM_INTERVAL, SINK, STATE_URI

from .watch import watch


def positions_of(properties: Properties, use_sink: bool) -> PositionsReader | None:
    """Where the job's positions are: in its sink, if that stores them, else in its state store; None without both.

    The store of a group says which worker has a shard, and the sink how far.

    Raises: ConfigurationError.
    """
    from recordpublisher.plugins.host.build_from_properties import build_sink, build_state_store
    from recordpublisher.plugins.host.manager import load_registry
    from recordpublisher.plugins.lag.group_positions import StoreOrGroupPositions
    from recordpublisher.plugins.stores.fenced_state_stores import ConditionalStateStore

    registry = load_registry()
    properties.check()
    sink = properties.value(SINK) if use_sink else None
    if sink is not None and stores_positions(registry.sinks.get(sink, SINK.key)):
        keeping = build_sink(registry, properties)
        store = None if _is_missing_folder(properties) else build_state_store(registry, properties)
        if isinstance(store, ConditionalStateStore):
            return StoreOrGroupPositions(store, keeping)
        return SinkPositions(keeping)
    check_folder(properties)
    store = build_state_store(registry, properties)
    return StoreOrGroupPositions(store) if isinstance(store, ConditionalStateStore) else store


async def read_lags(
    stream: str, properties: Properties, positions: PositionsReader | None, grace_seconds: float | None
) -> list[ShardLag]:
    """The lag of each shard; with a grace period (seconds) with alarms too. Closes `positions`. Raises: KinesisError, StateError."""
    async with probe_opened(stream, properties, positions) as probe:
        return await (probe.read_lags() if grace_seconds is None else probe.read_lags_and_alarms(grace_seconds))


async def watch_lags(
    stream: str, properties: Properties, positions: PositionsReader | None, interval_seconds: float
) -> None:
    """Show the lag of each shard again and again, until it is cancelled. Closes `positions`.

    Raises: KinesisError and StateError of the first reading.
    """
    clock = SystemClock()
    async with probe_opened(stream, properties, positions) as probe:
        await watch(StoredSnapshots(stream, probe.read_lags, clock), clock, interval_seconds)


async def watch_live(url: str, stream: str, interval_seconds: float) -> None:
    """Show the shards of a stream as a running job serves them, until it is cancelled.

    Raises: the RecordPublisherError of the first reading.
    """
    from recordpublisher.plugins.dashboard.http_snapshots import HttpSnapshots

    await watch(HttpSnapshots(url, stream), SystemClock(), interval_seconds)


@asynccontextmanager
async def probe_opened(
    stream: str, properties: Properties, positions: PositionsReader | None
) -> AsyncIterator[LagProbe]:
    """What reads the lags while the block runs. Closes `positions`."""
    from recordpublisher.publishers.initial_position import initial_position  # with what follows: brings the AWS SDK
    from recordpublisher.publishers.kinesis import KinesisClient
    from recordpublisher.publishers.properties.table import GETRECORDS_RETRIES

    async with KinesisClient(properties, [stream]) as service:
        try:
            yield LagProbe(
                service=service,
                stream=stream,
                store=positions,
                start=initial_position(properties),
                interval_ms=properties.value(ALARM_INTERVAL),
                policy=GETRECORDS_RETRIES.policy(properties),
            )
        finally:
            if positions is not None:
                await positions.close()


def check_folder(properties: Properties) -> None:
    """Refuse a folder that does not exist."""
    if _is_missing_folder(properties):
        uri = properties.value(STATE_URI)
        raise ConfigurationError(
            STATE_URI.key, uri, "an existing folder with a job's state", reason="it does not exist"
        )


def _is_missing_folder(properties: Properties) -> bool:
    """Opening a store in a folder creates it, also for a mistyped path."""
    uri = properties.value(STATE_URI) or ""
    path = uri.removeprefix("file://")
    return bool(uri) and "://" not in path and not Path(path).is_dir()
