"""The hooks that a plugin implements to register its classes under names.

A plugin is a module or an object that an entry point of the group `recordpublisher` names:

    from recordpublisher import hookimpl

    @hookimpl
    def recordpublisher_register_publishers(registry):
        registry.add("LINES", LinesFactory)

A job builds the class with its properties: `LinesFactory(properties)`.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pluggy

from recordpublisher.consumer.deserialization import Deserializer
from recordpublisher.consumer.event_time import WatermarkStrategy
from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.fetcher.monitoring.metrics_exporter import MetricsExporter
from recordpublisher.fetcher.sink import Sink
from recordpublisher.publishers.base import RecordSource

from .registry import Registrar

PROJECT = "recordpublisher"
"""The entry-point group, and the project name of the pluggy markers."""
REGISTER = f"{PROJECT}_register_"
"""The prefix of each hook's name, after which the kind of class follows."""

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

    Each serves snapshots, groups of workers and claims. `DataFetcher` also accepts an instance (`state_store=`).
    """


@hookspec
def recordpublisher_register_watermark_strategies(registry: Registrar[WatermarkStrategy]) -> None:
    """Add watermark strategies; selected by `flink.watermark.strategy`."""


@hookspec
def recordpublisher_register_deserializers(registry: Registrar[Deserializer]) -> None:
    """Add deserialisers; selected by `flink.deserializer`.

    A job builds one as `Name(properties)`. `DataFetcher` also accepts an instance (`deserializer=`).
    """


@hookspec
def recordpublisher_register_metrics_exporters(registry: Registrar[MetricsExporter]) -> None:
    """Add metrics exporters; selected by `flink.metrics.exporters`."""


# Registers the built-in classes through the same hooks as any plugin. They are imported at their first use.

BUILT_INS: Mapping[str, Mapping[str, str]] = {
    "publishers": {
        "POLLING": "publishers.polling:PollingRecordPublisherFactory",
        "EFO": "publishers.fanout:FanOutRecordPublisherFactory",
        "QUEUE": "publishers.kinesis_queue:KinesisQueue",
        "ARCHIVE": "plugins.archive.factory:ArchiveFactory",
        "DYNAMODB_STREAMS": "publishers.dynamodb_streams:DynamoDbStreamsFactory",
    },
    "sinks": {
        "memory": "plugins.sinks.callback:MemorySink",
        "kinesis": "plugins.sinks.kinesis:KinesisSink",
        "reactive": "plugins.sinks.reactive:ReactiveSink",
        "callback": "plugins.sinks.callback:CallbackSink",
        "map": "plugins.sinks.map.map_sink:MapSinkFromProperties",
        "jsonl": "plugins.sinks.files.jsonl:JsonlSink",
        "parquet": "plugins.sinks.files.parquet:ParquetSink",
        "delta": "plugins.sinks.tables.delta:DeltaSink",
        "iceberg": "plugins.sinks.tables.iceberg:IcebergSink",
        "sql": "plugins.sinks.sql:SqlSink",
    },
    "stores": {
        "FILE": "plugins.stores.folder_store:FolderStore",
        "S3": "plugins.stores.aws_stores:S3Store",
        "DYNAMODB": "plugins.stores.aws_stores:DynamoDbStore",
        "GOOGLE": "plugins.stores.object_storage:GoogleAzureStore",
        "AZURE": "plugins.stores.object_storage:GoogleAzureStore",
        "SQL": "plugins.stores.sql_store:SqlStore",
    },
    "watermark_strategies": {
        "BOUNDED": "consumer.event_time:BoundedOutOfOrderness",
        "MONOTONOUS": "consumer.event_time:Monotonous",
        "ARRIVAL": "consumer.event_time:ArrivalTime",
    },
    "deserializers": {
        "bytes": "consumer.deserialization:BytesDeserializer",
        "text": "consumer.deserialization:TextDeserializer",
        "json": "consumer.deserialization:JsonDeserializer",
        "avro": "plugins.deserializers.avro:AvroDeserializer",
        "glue": "plugins.deserializers.glue:GlueDeserializer",
        "protobuf": "plugins.deserializers.protobuf:ProtobufDeserializer",
    },
    "metrics_exporters": {
        "prometheus": "plugins.metrics.prometheus.exporter:PrometheusExporter",
        "cloudwatch": "plugins.metrics.cloudwatch:CloudWatchExporter",
        "opentelemetry": "plugins.metrics.opentelemetry:OpenTelemetryExporter",
    },
}
"""The built-in names of each kind, with the place of each class in this package."""


def _registering(places: Mapping[str, str]) -> Callable[[Registrar[Any]], None]:
    @hookimpl
    def register(registry: Registrar[Any]) -> None:
        for name, place in places.items():
            registry.add(name, f"{PROJECT}.{place}")

    return register


plugin = type("BuiltIns", (), {REGISTER + kind: _registering(places) for kind, places in BUILT_INS.items()})
"""The plugin of the built-in classes: the object that an entry point would name."""
