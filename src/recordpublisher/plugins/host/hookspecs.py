"""The hooks that a plugin implements to register its classes under names.

A plugin is a module or an object that an entry point of the group `recordpublisher` names:

    from recordpublisher import hookimpl

    @hookimpl
    def recordpublisher_register_publishers(registry):
        registry.add("LINES", LinesFactory)

A job builds the class with its properties: `LinesFactory(properties)`.
"""

import pluggy

from recordpublisher.consumer.deserialization import Deserializer
from recordpublisher.consumer.watermark_strategies import WatermarkStrategy
from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.fetcher.monitoring.metrics_exporter import MetricsExporter
from recordpublisher.fetcher.sink import Sink
from recordpublisher.publishers.base import RecordSource

from .registry import Registrar

PROJECT = "recordpublisher"
"""The entry-point group, and the project name of the pluggy markers."""
REGISTER = f"{PROJECT}_register_"
"""The prefix of each hook's name. The kind of class follows it."""

hookspec = pluggy.HookspecMarker(PROJECT)
hookimpl = pluggy.HookimplMarker(PROJECT)


@hookspec
def recordpublisher_register_publishers(registry: Registrar[RecordSource]) -> None:
    """Add publisher factories and queue sources; selected by `flink.stream.recordpublisher`."""


@hookspec
def recordpublisher_register_sinks(registry: Registrar[Sink]) -> None:
    """Add sinks; selected by `flink.sink` and `flink.deadletter.sink`. `DataFetcher` also accepts an instance (`sink=`)."""


@hookspec
def recordpublisher_register_stores(registry: Registrar[ConditionalStore]) -> None:
    """Add conditional stores; selected by the scheme of `flink.state.uri`, and of Spark's `metadataLocation`.

    A store keeps snapshots, the documents of groups, and what Spark's tasks have read. `DataFetcher` also accepts an instance
    (`state_store=`).
    """


@hookspec
def recordpublisher_register_watermark_strategies(registry: Registrar[WatermarkStrategy]) -> None:
    """Add watermark strategies; selected by `flink.watermark.strategy`."""


@hookspec
def recordpublisher_register_deserializers(registry: Registrar[Deserializer]) -> None:
    """Add deserializers; selected by `flink.deserializer`.

    A job builds one as `Name(properties)`. `DataFetcher` also accepts an instance (`deserializer=`).
    """


@hookspec
def recordpublisher_register_metrics_exporters(registry: Registrar[MetricsExporter]) -> None:
    """Add metrics exporters; selected by `flink.metrics.exporters`."""
