"""Decides how the batches of each shard get values, event times and watermarks, from functions or properties."""

from collections.abc import Callable
from functools import partial
from typing import Any

from recordpublisher.consumer.deserialization import Deserializer, DeserializerArgument, deserializer_of
from recordpublisher.consumer.event_time import (
    AssignedWatermarks,
    ImplausibleTimes,
    WatermarkStrategy,
    timestamp_assigner_for,
)
from recordpublisher.consumer.shard_consumer import BatchDecorator, log
from recordpublisher.fetcher.settings import FetcherSettings
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.initial_position import passed_initial_position
from recordpublisher.publishers.properties.groups.job import FUTURE_LIMIT, ON_BAD_RECORD, OnBadRecord
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import Record
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import Shard
from recordpublisher.publishers.skipped_records import SkippedRecordsLog

from ..deserializers.decompression import decompressor_for
from ..host.build_from_properties import build_deserializer, watermark_strategy_factory
from ..host.registry import Registry

Assigner = Callable[[Record], int]
Decorators = Callable[[Shard, ShardMetrics], BatchDecorator]


def batch_decorator_factory(
    registry: Registry,
    properties: Properties,
    deserializer: DeserializerArgument[Any] | None = None,
    timestamp_assigner: Assigner | None = None,
    watermark_assigner: Assigner | None = None,
) -> Decorators:
    """Return a function that makes the `BatchDecorator` of each shard. Functions override properties.

    Raises: ConfigurationError if a setting is invalid, so that it is found here and not at the first record.
    """
    values = chosen_deserializer(registry, properties, deserializer)
    times = timestamp_assigner_for(properties, timestamp_assigner)
    strategy: Callable[[], WatermarkStrategy]
    if watermark_assigner is None:
        strategy = watermark_strategy_factory(registry, properties)
    else:
        strategy = partial(AssignedWatermarks, properties, watermark_assigner)
    on_poison, limit = OnBadRecord[properties.value(ON_BAD_RECORD)], properties.value(FUTURE_LIMIT)
    decompressor = decompressor_for(properties) or getattr(values, "decompressor", None)
    skipped_log, implausible_times = SkippedRecordsLog(log), ImplausibleTimes()

    def decorator_for(shard: Shard, metrics: ShardMetrics) -> BatchDecorator:
        return BatchDecorator(
            values,
            times,
            strategy(),
            metrics,
            on_poison=on_poison,
            future_limit_ms=limit,
            decompressor=decompressor,
            skipped_log=skipped_log,
            implausible_times=implausible_times,
        )

    return decorator_for


def decorators_and_type(
    registry: Registry,
    properties: Properties,
    deserializer: DeserializerArgument[Any] | None = None,
    *times: Assigner | None,
) -> tuple[Decorators, Any]:
    """Return the result of `batch_decorator_factory`, and the type of the values, which the sink receives in its context."""
    values = chosen_deserializer(registry, properties, deserializer)
    return batch_decorator_factory(registry, properties, values, *times), made_type(values)


def check_reading(registry: Registry, properties: Properties) -> None:
    """Check the start, the limits, and how values and times are made. A job refuses these settings when it is made (C2).

    Only checks that need no call to a service are made. Raises: ConfigurationError if a setting is invalid.
    """
    passed_initial_position(properties, SystemClock().now_ms())
    FetcherSettings.of(properties)
    batch_decorator_factory(registry, properties)


def chosen_deserializer(
    registry: Registry, properties: Properties, deserializer: DeserializerArgument[Any] | None
) -> Deserializer[Any]:
    """Return the deserialiser of the argument, else that of the property. Raises: ConfigurationError if it is invalid."""
    is_named = deserializer is None or isinstance(deserializer, str)  # a text is the value of the property
    return build_deserializer(registry, properties) if is_named else deserializer_of(deserializer)


def made_type(values: Deserializer[Any]) -> Any:
    """Return the type of the values that a deserialiser makes, or None if it is not known."""
    return getattr(values, "into", None) or getattr(values, "makes", None)
