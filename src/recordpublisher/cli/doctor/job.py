"""What a job needs beside its streams: its store, its sink, and positions that are not about to be lost."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

from recordpublisher.plugins.host.build_from_properties import build_sink, build_state_store
from recordpublisher.plugins.host.registry import Registry
from recordpublisher.plugins.lag.probe import LagProbe
from recordpublisher.plugins.lag.stored_positions import PositionsReader, SinkPositions, stores_positions
from recordpublisher.publishers.errors import ConfigurationError, RecordPublisherError
from recordpublisher.publishers.initial_position import initial_position
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.retries import SQL_RETRIES
from recordpublisher.publishers.properties.table import ALARM_INTERVAL, GETRECORDS_RETRIES, SINK, STATE_URI

from .findings import Finding, NotCheckedError, examine

MIN_LOSS_MS = 4 * 3_600_000
"""Less time than this before unread records are lost leaves a person too little of it."""


async def job_findings(
    registry: Registry, properties: Properties, streams: list[str], client: KinesisClient
) -> list[Finding]:
    """Store, sink, and for each stream the time until unread records are lost. The sink is not opened, and nothing is stored or retried."""
    properties = properties.merged({SQL_RETRIES.max_retries.key: 0})
    return [
        await examine("store", lambda: _store(registry, properties)),
        await examine("sink", lambda: _sink(registry, properties)),
        *[await examine(f"{stream}: lag", partial(_lag, registry, properties, stream, client)) for stream in streams],
    ]


async def _store(registry: Registry, properties: Properties) -> str:
    store = build_state_store(registry, properties) if _has_usable_folder(properties) else None
    if store is None:
        raise NotCheckedError(f"{STATE_URI.key} is not set, or its folder does not exist yet")
    try:
        return f"{len(await store.load())} stored snapshots"
    finally:
        await store.close()


def _has_usable_folder(properties: Properties) -> bool:
    """Whether the store is no folder, or one that exists. Raises: ConfigurationError for one that cannot be written."""
    uri = properties.value(STATE_URI) or ""
    path = uri.removeprefix("file://")
    if "://" in path or not path:
        return bool(path)
    folder = Path(path).absolute()
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise ConfigurationError(STATE_URI.key, uri, "a folder that this user can write", reason=f"see {existing}")
    return folder.exists()


async def _sink(registry: Registry, properties: Properties) -> str:
    sink = build_sink(registry, properties)
    try:
        stored = await sink.stored_positions()
    finally:
        await sink.close()
    return f"{properties.value(SINK)}, configured" if stored is None else f"{properties.value(SINK)}, reachable"


async def _lag(registry: Registry, properties: Properties, stream: str, client: KinesisClient) -> str:
    positions = _positions(registry, properties)
    if positions is None:
        raise NotCheckedError("the job stores no positions, or not yet")
    try:
        if not await positions.load():
            raise NotCheckedError("the job has not stored any positions yet")
        probe = LagProbe(
            service=client,
            stream=stream,
            store=positions,
            start=initial_position(properties),
            interval_ms=properties.value(ALARM_INTERVAL),
            policy=GETRECORDS_RETRIES.policy(properties),
        )
        lags = await probe.read_lags()
    finally:
        await positions.close()
    losses = {each.shard: each.loss_ms for each in lags if each.loss_ms is not None}
    shard = min(losses, key=losses.__getitem__, default=None)
    if shard is not None and losses[shard] < MIN_LOSS_MS:
        raise RecordPublisherError(
            f"unread records of {shard} are lost in {losses[shard] / 3_600_000:.1f} h: start the job now, or increase the retention"
        )
    return "no unread records are about to be lost"


def _positions(registry: Registry, properties: Properties) -> PositionsReader | None:
    sink = properties.value(SINK)
    if sink is not None and stores_positions(registry.sinks.get(sink, SINK.key)):
        return SinkPositions(build_sink(registry, properties))
    return build_state_store(registry, properties) if _has_usable_folder(properties) else None
