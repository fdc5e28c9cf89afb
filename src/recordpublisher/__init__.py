"""Read Amazon Kinesis Data Streams: publishers chosen by one property, exact state, event-time alignment, Spark.

All public names are in this module, except those of `rp.spark` (extra `spark`), `rp.local` and `rp.testing`. Each name is imported when it
is first used, so a command, or a Python worker of Spark, loads only the modules that it needs. Type checkers find the names in
`__init__.pyi`, which `make docs` writes.
"""

import importlib
import importlib.util
from types import ModuleType
from typing import Any

_NAMES = {
    ".consumer.deserialization": "Deserializer",
    ".consumer.typed_values": "Json",
    ".fetcher.alarms": "Alarm AlarmKind",
    ".fetcher.metric_types": "MetricType SinkMetric",
    ".fetcher.sink": (
        "CommitNumber CommittingSink Leftover Staged Checkpoint Sink RevocationReason SinkContext State Unfinished "
        "UnfinishedShard"
    ),
    ".fetcher.conditional_store": "ConditionalStore ConflictError VersionedValue",
    ".fetcher.monitoring.metrics_exporter": "MetricsExporter MetricsSource WorkerHealth WorkerMetrics",
    ".fetcher.pipeline.bounded_runs": "BoundedResult EndReason",
    ".plugins.columns.typed_columns": "to_arrow",
    ".plugins.deserializers.avro": "Avro",
    ".plugins.deserializers.protobuf": "Protobuf",
    ".plugins.host.hookspecs": "hookimpl",
    ".plugins.host.plugin_loading": "publisher_class",
    ".plugins.host.registry": "Registrar Registry",
    ".plugins.metrics.export": "export_metrics",
    ".plugins.metrics.prometheus.exporter": "metrics_text",
    ".plugins.positions.reset": "reset_positions",
    ".plugins.runtime.data_fetcher": "DataFetcher",
    ".plugins.runtime.aws_lambda": "lambda_handler",
    ".plugins.runtime.data_frames": "read_arrow read_pandas read_polars",
    ".plugins.runtime.stream_and_consume": "Records consume stream",
    ".plugins.sinks.callback": "CallbackSink MemorySink",
    ".plugins.sinks.files.jsonl_sink": "JsonlSink",
    ".plugins.sinks.files.parquet_sink": "ParquetSink",
    ".plugins.sinks.tables.delta": "DeltaSink",
    ".plugins.sinks.tables.iceberg": "IcebergSink",
    ".plugins.sinks.kinesis": "FailedRecord KinesisSink Producer SinkStatistics",
    ".plugins.sinks.map": "MapSink",
    ".plugins.sinks.reactive": "ReactiveSink",
    ".plugins.sinks.sql": "SqlSink",
    ".plugins.stores.folder_store": "FolderStore",
    ".publishers.base": "BatchConsumer Checks QueueSource RecordPublisher RecordPublisherFactory RunResult",
    ".publishers.errors": (
        "RecordPublisherError ConfigurationError PluginError KinesisError TransientError ThrottledError "
        "ResourceInUseError ExpiredIteratorError ResourceNotFoundError FatalKinesisError StreamNotActiveError "
        "StreamNotFoundError ConsumerError RetriesExhaustedError OutageError DeserializationError StateError "
        "StoreUnavailableError DataLossError FencedError SinkError InvalidRecordError ImpossibleStateError"
    ),
    ".publishers.histogram": "Histogram HistogramValue",
    ".publishers.positions": "PositionType SequenceNumber StartingPosition",
    ".publishers.properties.declaration": "Property",
    ".publishers.properties.properties": "Properties UnknownPropertyWarning",
    ".publishers.properties.keyword_types": "JobSettings Settings",
    ".publishers.records": "Record RecordBatch UserRecord",
    ".publishers.shard_metrics": "ShardMetrics",
    ".publishers.shards": "HashRange OldestRecord Shard",
}
"""The public names of each module."""
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = [*_MODULE_OF]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    """Import a name when it is first used."""
    value = _found(name)
    globals()[name] = value
    return value


def _found(name: str) -> Any:
    if name == "spark":
        return _spark()
    if name in ("local", "testing"):
        return importlib.import_module(f".{name}", __name__)
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version(__name__)
    if name not in _MODULE_OF:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(_MODULE_OF[name], __name__), name)


def _spark() -> ModuleType:
    if importlib.util.find_spec("pyspark") is None:
        from .install_commands import install_command

        raise ImportError(f"rp.spark needs the extra 'spark': {install_command('spark')}")
    return importlib.import_module(".plugins.spark", __name__)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
