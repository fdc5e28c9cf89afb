"""The hooks: what a plugin implements to give names to its classes.

A plugin is a module or object behind an entry point of the group `recordpublisher`:

    from recordpublisher import hookimpl

    @hookimpl
    def recordpublisher_register_publishers(registry):
        registry.add("LINES", LinesFactory)

Each class is later built with the job's properties: `LinesFactory(properties)`.
"""

from __future__ import annotations

from typing import Any

import pluggy

from recordpublisher.consumer.deserialization import Deserializer
from recordpublisher.consumer.watermark_strategies import WatermarkStrategy
from recordpublisher.fetcher.checkpoints.store import StateStore
from recordpublisher.fetcher.coordination.watermark_tracker import WatermarkTracker
from recordpublisher.fetcher.sink import Sink
from recordpublisher.publishers.base import RecordPublisherFactory

from .registry import Registrar

PROJECT = "recordpublisher"
"""The entry-point group and the name that the markers belong to."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def recordpublisher_register_publishers(registry: Registrar[RecordPublisherFactory]) -> None:
    """Add publisher factories; chosen by `flink.stream.recordpublisher` (P5)."""


@hookspec
def recordpublisher_register_sinks(registry: Registrar[Sink]) -> None:
    """Add sinks; chosen by `flink.sink` and `flink.deadletter.sink`. `DataFetcher` also takes one ready-made (`sink=`)."""


@hookspec
def recordpublisher_register_trackers(registry: Registrar[WatermarkTracker]) -> None:
    """Add what carries the global watermark; chosen by `flink.watermark.tracker` (W10)."""


@hookspec
def recordpublisher_register_state_stores(registry: Registrar[StateStore]) -> None:
    """Add state stores; chosen by the scheme of `flink.state.uri`. `DataFetcher` also takes one ready-made (`state_store=`)."""


@hookspec
def recordpublisher_register_watermark_strategies(registry: Registrar[WatermarkStrategy]) -> None:
    """Add watermark strategies of a shard; chosen by `flink.watermark.strategy`."""


@hookspec
def recordpublisher_register_shard_assigners(registry: Registrar[Any]) -> None:
    """Add shard assigners: from a shard and the parallelism to its subtask, counted round (S9); chosen by `flink.shard.assigner`."""


@hookspec
def recordpublisher_register_deserializers(registry: Registrar[Deserializer]) -> None:
    """Add deserialisers; chosen by `flink.deserializer`."""
