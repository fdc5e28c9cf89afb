"""The built-in classes, registered through the same hooks as those of any plugin, and imported at their first use."""

from typing import Any

from recordpublisher.consumer.deserialization import Deserializer
from recordpublisher.consumer.watermark_strategies import WatermarkStrategy
from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.fetcher.coordination.watermark_tracker import WatermarkTracker
from recordpublisher.fetcher.monitoring.metrics_exporter import MetricsExporter
from recordpublisher.fetcher.sink import Sink
from recordpublisher.publishers.base import RecordPublisherFactory

from .hookspecs import PROJECT, hookimpl
from .registry import Registrar


@hookimpl
def recordpublisher_register_publishers(registry: Registrar[RecordPublisherFactory]) -> None:
    """POLLING, EFO and QUEUE for Kinesis; DYNAMODB_STREAMS."""
    registry.add("POLLING", f"{PROJECT}.publishers.polling:PollingRecordPublisherFactory")
    registry.add("EFO", f"{PROJECT}.publishers.fanout:FanOutRecordPublisherFactory")
    registry.add("QUEUE", f"{PROJECT}.publishers.queue:QueueFactory")
    registry.add("DYNAMODB_STREAMS", f"{PROJECT}.publishers.dynamodb_streams:DynamoDbStreamsFactory")


@hookimpl
def recordpublisher_register_sinks(registry: Registrar[Sink]) -> None:
    """The bundled sinks."""
    registry.add("memory", f"{PROJECT}.plugins.sinks.memory:MemorySink")
    registry.add("kinesis", f"{PROJECT}.plugins.sinks.kinesis:KinesisSink")
    registry.add("reactive", f"{PROJECT}.plugins.sinks.reactive:ReactiveSink")
    registry.add("callback", f"{PROJECT}.plugins.sinks.callback:CallbackSink")
    registry.add("map", f"{PROJECT}.plugins.sinks.map.from_properties:MapSinkFromProperties")
    registry.add("jsonl", f"{PROJECT}.plugins.sinks.files.jsonl:JsonlSink")
    registry.add("parquet", f"{PROJECT}.plugins.sinks.files.parquet:ParquetSink")
    registry.add("delta", f"{PROJECT}.plugins.sinks.tables.delta:DeltaSink")
    registry.add("iceberg", f"{PROJECT}.plugins.sinks.tables.iceberg:IcebergSink")
    registry.add("sql", f"{PROJECT}.plugins.sinks.sql:SqlSink")


@hookimpl
def recordpublisher_register_trackers(registry: Registrar[WatermarkTracker]) -> None:
    """The global watermark within one process, or over TCP."""
    registry.add("IN_PROCESS", f"{PROJECT}.fetcher.coordination.in_process_tracker:InProcessTracker")
    registry.add("TCP", f"{PROJECT}.plugins.trackers.tcp.client:TcpTracker")


@hookimpl
def recordpublisher_register_stores(registry: Registrar[ConditionalStore]) -> None:
    """A folder, S3, DynamoDB, Google Cloud Storage, Azure Blob Storage, and a database."""
    registry.add("FILE", f"{PROJECT}.plugins.stores.folder:FolderStore")
    registry.add("S3", f"{PROJECT}.plugins.stores.s3:S3Store")
    registry.add("DYNAMODB", f"{PROJECT}.plugins.stores.dynamodb:DynamoDbStore")
    registry.add("GOOGLE", f"{PROJECT}.plugins.stores.object_storage:ObjectStorageStore")
    registry.add("AZURE", f"{PROJECT}.plugins.stores.object_storage:ObjectStorageStore")
    registry.add("SQL", f"{PROJECT}.plugins.stores.sql.sql_store:SqlStore")


@hookimpl
def recordpublisher_register_watermark_strategies(registry: Registrar[WatermarkStrategy]) -> None:
    """The largest event time, with or without a bound subtracted; the latest arrival time."""
    registry.add("BOUNDED", f"{PROJECT}.consumer.watermark_strategies:BoundedOutOfOrderness")
    registry.add("MONOTONOUS", f"{PROJECT}.consumer.watermark_strategies:Monotonous")
    registry.add("ARRIVAL", f"{PROJECT}.consumer.watermark_strategies:ArrivalTime")


@hookimpl
def recordpublisher_register_deserializers(registry: Registrar[Deserializer]) -> None:
    """Bytes, UTF-8 text, JSON, Avro, Protobuf, and records of the Glue Schema Registry."""
    registry.add("bytes", f"{PROJECT}.consumer.deserialization:BytesDeserializer")
    registry.add("text", f"{PROJECT}.consumer.deserialization:TextDeserializer")
    registry.add("json", f"{PROJECT}.consumer.deserialization:JsonDeserializer")
    registry.add("avro", f"{PROJECT}.plugins.deserializers.avro:AvroDeserializer")
    registry.add("glue", f"{PROJECT}.plugins.deserializers.glue:GlueDeserializer")
    registry.add("protobuf", f"{PROJECT}.plugins.deserializers.protobuf:ProtobufDeserializer")


@hookimpl
def recordpublisher_register_shard_assigners(registry: Registrar[Any]) -> None:
    """By the middle of a shard's hash range."""
    registry.add("UNIFORM", f"{PROJECT}.fetcher.shards.assignment:UniformAssigner")


@hookimpl
def recordpublisher_register_metrics_exporters(registry: Registrar[MetricsExporter]) -> None:
    """A page for Prometheus, log lines for CloudWatch, OTLP."""
    registry.add("prometheus", f"{PROJECT}.plugins.metrics.prometheus.exporter:PrometheusExporter")
    registry.add("cloudwatch", f"{PROJECT}.plugins.metrics.cloudwatch:CloudWatchExporter")
    registry.add("opentelemetry", f"{PROJECT}.plugins.metrics.opentelemetry:OpenTelemetryExporter")
