"""Read Amazon Kinesis Data Streams: publishers chosen by one property, exact state, event-time alignment, Spark.

Everything a user needs stands here; `rp.spark` is there on access (extra `spark`). Each name is imported when it is first used:
a command or a process of Spark waits only for what it needs.
"""

import importlib
import importlib.util
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    __version__: str
    from .consumer.typed_values import Json
    from .fetcher.alarms import Alarm, AlarmKind
    from .fetcher.conditional_store import ConditionalStore, ConflictError, VersionedValue
    from .fetcher.coordination.watermark_tracker import SubtaskReport, SubtaskStatus, WatermarkTracker
    from .fetcher.metric_types import MetricType, SinkMetric
    from .fetcher.monitoring.metrics_exporter import MetricsExporter, MetricsSource, SubtaskHealth, SubtaskMetrics
    from .fetcher.sink import Checkpoint, Sink, SinkContext, Unfinished, WorkerPositions
    from .plugins import spark as spark
    from .plugins.deserializers.avro import Avro
    from .plugins.deserializers.protobuf import Protobuf
    from .plugins.host.hookspecs import hookimpl
    from .plugins.metrics.export import export_metrics
    from .plugins.runtime.aws_lambda.handler import lambda_handler
    from .plugins.runtime.data_fetcher import DataFetcher
    from .plugins.runtime.frames.read import read_arrow, read_polars
    from .plugins.runtime.streaming import consume, stream
    from .plugins.sinks.callback import CallbackSink
    from .plugins.sinks.files.jsonl import JsonlSink
    from .plugins.sinks.files.parquet import ParquetSink
    from .plugins.sinks.kinesis import FailedRecord, KinesisSink, SinkStatistics
    from .plugins.sinks.map import MapSink
    from .plugins.sinks.memory import MemorySink
    from .plugins.sinks.reactive import ReactiveSink
    from .plugins.sinks.sql import SqlSink
    from .plugins.stores.folder import FolderStore
    from .publishers.base import BatchConsumer, RecordPublisher, RecordPublisherFactory, RunResult
    from .publishers.errors import (
        ConfigurationError,
        ConsumerError,
        DataLossError,
        DeserializationError,
        ExpiredIteratorError,
        FatalKinesisError,
        FencedError,
        ImpossibleStateError,
        KinesisError,
        OutageError,
        PluginError,
        RecordPublisherError,
        ResourceInUseError,
        ResourceNotFoundError,
        RetriesExhaustedError,
        SinkError,
        StateError,
        StoreUnavailableError,
        StreamNotActiveError,
        StreamNotFoundError,
        ThrottledError,
        TransientError,
    )
    from .publishers.positions import PositionType, SequenceNumber, StartingPosition
    from .publishers.properties.declaration import Property
    from .publishers.properties.generated.settings import JobSettings, Settings
    from .publishers.properties.properties import Properties
    from .publishers.properties.unknown_keys import UnknownPropertyWarning
    from .publishers.records import Record, RecordBatch
    from .publishers.shard_metrics import ShardMetrics
    from .publishers.shards import HashRange, Shard

_NAMES = {
    ".consumer.typed_values": "Json",
    ".fetcher.alarms": "Alarm AlarmKind",
    ".fetcher.conditional_store": "ConditionalStore ConflictError VersionedValue",
    ".fetcher.coordination.watermark_tracker": "SubtaskReport SubtaskStatus WatermarkTracker",
    ".fetcher.metric_types": "MetricType SinkMetric",
    ".fetcher.monitoring.metrics_exporter": "MetricsExporter MetricsSource SubtaskHealth SubtaskMetrics",
    ".fetcher.sink": "Checkpoint Sink SinkContext Unfinished WorkerPositions",
    ".plugins.deserializers.avro": "Avro",
    ".plugins.deserializers.protobuf": "Protobuf",
    ".plugins.host.hookspecs": "hookimpl",
    ".plugins.metrics.export": "export_metrics",
    ".plugins.runtime.data_fetcher": "DataFetcher",
    ".plugins.runtime.aws_lambda.handler": "lambda_handler",
    ".plugins.runtime.frames.read": "read_arrow read_polars",
    ".plugins.runtime.streaming": "consume stream",
    ".plugins.sinks.callback": "CallbackSink",
    ".plugins.sinks.files.jsonl": "JsonlSink",
    ".plugins.sinks.files.parquet": "ParquetSink",
    ".plugins.sinks.kinesis": "FailedRecord KinesisSink SinkStatistics",
    ".plugins.sinks.map": "MapSink",
    ".plugins.sinks.memory": "MemorySink",
    ".plugins.sinks.reactive": "ReactiveSink",
    ".plugins.sinks.sql": "SqlSink",
    ".plugins.stores.folder": "FolderStore",
    ".publishers.base": "BatchConsumer RecordPublisher RecordPublisherFactory RunResult",
    ".publishers.errors": (
        "ConfigurationError ConsumerError DataLossError DeserializationError ExpiredIteratorError FatalKinesisError "
        "FencedError ImpossibleStateError KinesisError OutageError PluginError RecordPublisherError ResourceInUseError "
        "ResourceNotFoundError RetriesExhaustedError SinkError StateError StoreUnavailableError StreamNotActiveError "
        "StreamNotFoundError ThrottledError TransientError"
    ),
    ".publishers.positions": "PositionType SequenceNumber StartingPosition",
    ".publishers.properties.declaration": "Property",
    ".publishers.properties.properties": "Properties",
    ".publishers.properties.unknown_keys": "UnknownPropertyWarning",
    ".publishers.properties.generated.settings": "JobSettings Settings",
    ".publishers.records": "Record RecordBatch UserRecord",
    ".publishers.shard_metrics": "ShardMetrics",
    ".publishers.shards": "HashRange Shard",
}
"""The public names of each module."""
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}

__all__ = [
    # reading
    "DataFetcher",
    "consume",
    "stream",
    "read_arrow",
    "read_polars",
    "lambda_handler",
    "export_metrics",
    "Alarm",
    "AlarmKind",
    # records
    "Json",
    "Avro",
    "Protobuf",
    "Record",
    "RecordBatch",
    "UserRecord",
    "Shard",
    "HashRange",
    "SequenceNumber",
    "StartingPosition",
    "PositionType",
    # sinks
    "Sink",
    "SinkContext",
    "WorkerPositions",
    "SinkMetric",
    "Unfinished",
    "Checkpoint",
    "MapSink",
    "MemorySink",
    "ReactiveSink",
    "CallbackSink",
    "JsonlSink",
    "ParquetSink",
    "SqlSink",
    "KinesisSink",
    "SinkStatistics",
    "FailedRecord",
    # settings
    "Properties",
    "Property",
    "Settings",
    "JobSettings",
    "UnknownPropertyWarning",
    # what plugins implement
    "RecordPublisher",
    "RecordPublisherFactory",
    "RunResult",
    "BatchConsumer",
    "ShardMetrics",
    "WatermarkTracker",
    "SubtaskReport",
    "SubtaskStatus",
    "MetricType",
    "MetricsExporter",
    "MetricsSource",
    "SubtaskMetrics",
    "SubtaskHealth",
    "ConditionalStore",
    "ConflictError",
    "FolderStore",
    "VersionedValue",
    "hookimpl",
    # errors
    "RecordPublisherError",
    "ConfigurationError",
    "PluginError",
    "KinesisError",
    "TransientError",
    "ThrottledError",
    "ResourceInUseError",
    "ExpiredIteratorError",
    "ResourceNotFoundError",
    "FatalKinesisError",
    "StreamNotActiveError",
    "StreamNotFoundError",
    "ConsumerError",
    "RetriesExhaustedError",
    "OutageError",
    "DeserializationError",
    "StateError",
    "StoreUnavailableError",
    "DataLossError",
    "FencedError",
    "SinkError",
    "ImpossibleStateError",
]


if not TYPE_CHECKING:  # type checkers would accept any name

    def __getattr__(name: str) -> Any:
        """Import a name when it is first used."""
        value = _found(name)
        globals()[name] = value
        return value


def _found(name: str) -> Any:
    if name == "spark":
        return _spark()
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version(__name__)
    if name not in _MODULE_OF:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(_MODULE_OF[name], __name__), name)


def _spark() -> ModuleType:
    if importlib.util.find_spec("pyspark") is None:
        from .extras import install_command

        raise ImportError(f"rp.spark needs the extra 'spark': {install_command('spark')}")
    return importlib.import_module(".plugins.spark", __name__)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
