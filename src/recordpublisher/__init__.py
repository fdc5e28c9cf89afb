"""Read Amazon Kinesis Data Streams: publishers chosen by one property, exact state, event-time alignment, Spark.

Everything a user needs stands here; `rp.spark` is there on access (extra `spark`). What is heavy (the AWS SDK, reactivex, pyspark)
is imported when its name is first used, so that `import recordpublisher` stays fast.
"""

from __future__ import annotations

import importlib
import importlib.util
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .fetcher.alarms import Alarm, AlarmKind
from .fetcher.checkpoints.state_store import StateStore
from .fetcher.coordination.watermark_tracker import SubtaskReport, SubtaskStatus, WatermarkTracker
from .fetcher.metric_types import MetricType, SinkMetric
from .fetcher.monitoring.metrics_exporter import MetricsExporter, MetricsSource, SubtaskHealth, SubtaskMetrics
from .fetcher.sink import Checkpoint, Sink, SinkContext
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
    StreamNotFoundError,
    ThrottledError,
    TransientError,
)
from .publishers.positions import PositionType, SequenceNumber, StartingPosition
from .publishers.properties.properties import Properties, Property, UnknownPropertyWarning
from .publishers.records import Record, RecordBatch, UserRecord
from .publishers.shard_metrics import ShardMetrics
from .publishers.shards import HashRange, Shard

if TYPE_CHECKING:
    __version__: str
    from .plugins import spark as spark
    from .plugins.host.hookspecs import hookimpl
    from .plugins.metrics.export import export_metrics
    from .plugins.runtime.data_fetcher import DataFetcher
    from .plugins.runtime.streaming import consume, stream
    from .plugins.sinks.callback import CallbackSink
    from .plugins.sinks.files.jsonl import JsonlSink
    from .plugins.sinks.files.parquet import ParquetSink
    from .plugins.sinks.kinesis import FailedRecord, KinesisSink, SinkStatistics
    from .plugins.sinks.map import MapSink
    from .plugins.sinks.memory import MemorySink
    from .plugins.sinks.reactive import ReactiveSink
    from .plugins.sinks.sql import SqlSink
    from .plugins.stores.fenced_state_stores import DynamoDbStateStore, FileStateStore, S3StateStore, SqlStateStore
    from .publishers.properties.settings import JobSettings, Settings

_LAZY = {
    "DynamoDbStateStore": ".plugins.stores.fenced_state_stores",
    "FileStateStore": ".plugins.stores.fenced_state_stores",
    "S3StateStore": ".plugins.stores.fenced_state_stores",
    "SqlStateStore": ".plugins.stores.fenced_state_stores",
    "CallbackSink": ".plugins.sinks.callback",
    "JsonlSink": ".plugins.sinks.files.jsonl",
    "ParquetSink": ".plugins.sinks.files.parquet",
    "SqlSink": ".plugins.sinks.sql",
    "DataFetcher": ".plugins.runtime.data_fetcher",
    "consume": ".plugins.runtime.streaming",
    "stream": ".plugins.runtime.streaming",
    "KinesisSink": ".plugins.sinks.kinesis",
    "SinkStatistics": ".plugins.sinks.kinesis",
    "FailedRecord": ".plugins.sinks.kinesis",
    "MapSink": ".plugins.sinks.map",
    "MemorySink": ".plugins.sinks.memory",
    "ReactiveSink": ".plugins.sinks.reactive",
    "hookimpl": ".plugins.host.hookspecs",
    "export_metrics": ".plugins.metrics.export",
    "JobSettings": ".publishers.properties.settings",
    "Settings": ".publishers.properties.settings",
}

__all__ = [
    # reading
    "DataFetcher",
    "consume",
    "stream",
    "export_metrics",
    "Alarm",
    "AlarmKind",
    # records
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
    "SinkMetric",
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
    "StateStore",
    "FileStateStore",
    "S3StateStore",
    "DynamoDbStateStore",
    "SqlStateStore",
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
        """Import a heavy name when it is first used."""
        value = _found(name)
        globals()[name] = value
        return value


def _found(name: str) -> Any:
    if name == "spark":
        return _spark()
    if name == "__version__":
        return importlib.import_module("importlib.metadata").version(__name__)
    if name not in _LAZY:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    return getattr(importlib.import_module(_LAZY[name], __name__), name)


def _spark() -> ModuleType:
    if importlib.util.find_spec("pyspark") is None:
        raise ImportError("rp.spark needs the extra 'spark': pip install 'recordpublisher[spark]'")
    return importlib.import_module(".plugins.spark", __name__)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
