"""Lists the built-in publishers, sinks, stores, strategies, deserializers and exporters by their names.

They are registered through the same hooks as the classes of any plugin, and are imported at their first use.
"""

from collections.abc import Callable, Mapping
from typing import Any

from ..stores.back_ends import BACK_ENDS
from .hookspecs import PROJECT, REGISTER, hookimpl
from .registry import Registrar

BUILT_INS: Mapping[str, Mapping[str, str]] = {
    "publishers": {
        "POLLING": "publishers.polling:PollingRecordPublisherFactory",
        "EFO": "publishers.fanout:FanOutRecordPublisherFactory",
        "QUEUE": "publishers.kinesis_queue_source:KinesisQueue",
        "ARCHIVE": "plugins.archive.factory:ArchiveFactory",
        "DYNAMODB_STREAMS": "publishers.dynamodb_streams:DynamoDbStreamsFactory",
    },
    "sinks": {
        "memory": "plugins.sinks.callback:MemorySink",
        "kinesis": "plugins.sinks.kinesis:KinesisSink",
        "reactive": "plugins.sinks.reactive:ReactiveSink",
        "callback": "plugins.sinks.callback:CallbackSink",
        "map": "plugins.sinks.map.map_sink:MapSinkFromProperties",
        "jsonl": "plugins.sinks.files.jsonl_sink:JsonlSink",
        "parquet": "plugins.sinks.files.parquet_sink:ParquetSink",
        "delta": "plugins.sinks.tables.delta:DeltaSink",
        "iceberg": "plugins.sinks.tables.iceberg:IcebergSink",
        "sql": "plugins.sinks.sql:SqlSink",
    },
    "stores": {each.name: each.store for each in BACK_ENDS.values()},
    "watermark_strategies": {
        "BOUNDED": "consumer.watermark_strategies:BoundedOutOfOrderness",
        "MONOTONOUS": "consumer.watermark_strategies:Monotonous",
        "ARRIVAL": "consumer.watermark_strategies:ArrivalWatermarks",
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
