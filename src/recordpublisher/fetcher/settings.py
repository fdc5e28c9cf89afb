"""The settings of one fetcher, read from the properties once."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.retry_properties import MAX_OUTAGE, outage_policy
from recordpublisher.publishers.retry import RetryPolicy

from ..publishers.properties.config_fields import of_property, values_of
from ..publishers.properties.declaration import find_property
from ..publishers.properties.job_properties import (
    ACCEPTS_LOSS,
    ALARM_INTERVAL,
    CHECKPOINT_INTERVAL,
    DISCOVERY_INTERVAL,
    DRAIN_TIMEOUT,
    EMIT_INTERVAL,
    IDLE_INTERVAL,
    LOOKAHEAD,
    MAX_LAG,
    ON_BAD_RECORD,
    ON_DATA_LOSS,
    SHARD_BYTES,
    SHARD_RECORDS,
    SINK,
    SYNC_INTERVAL,
    TRACKER_TIMEOUT,
    WORKER_BYTES,
    OnBadRecord,
)
from ..publishers.properties.sink_properties import TABLE_SINKS


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherSettings:
    """The settings of the fetcher, with their types. Times are in ms. -1 turns a feature off where its property allows it.

    - `store_outages`: how calls to the store of positions are retried.
    - `max_outage_ms`: how long that store may be unavailable.
    """

    budget: BudgetLimits
    alignment: AlignmentTimes
    idle_intervals: IdleIntervals
    sync_interval_ms: int = of_property(SYNC_INTERVAL)
    emit_interval_ms: int = of_property(EMIT_INTERVAL)
    tracker_timeout_ms: int = of_property(TRACKER_TIMEOUT)
    max_lag_ms: int | None = of_property(MAX_LAG)
    discovery_interval_ms: int = of_property(DISCOVERY_INTERVAL)
    checkpoint_interval_ms: int
    accepts_loss: bool = of_property(ON_DATA_LOSS, kind=ACCEPTS_LOSS)
    on_poison: OnBadRecord = of_property(ON_BAD_RECORD, kind=OnBadRecord)
    alarm_interval_ms: int = of_property(ALARM_INTERVAL)
    drain_ms: int = of_property(DRAIN_TIMEOUT)
    store_outages: RetryPolicy
    max_outage_ms: int = of_property(MAX_OUTAGE)

    @classmethod
    def of(cls, properties: Properties) -> FetcherSettings:
        """Read the settings from the job's properties. Raises: ConfigurationError if a value is invalid or contradicts another one."""
        _check_max_lag(properties.value(MAX_LAG), properties.value(LOOKAHEAD))
        return cls(
            budget=BudgetLimits(**values_of(BudgetLimits, properties)),
            alignment=AlignmentTimes(**values_of(AlignmentTimes, properties)),
            checkpoint_interval_ms=checkpoint_interval_ms(properties),
            idle_intervals=IdleIntervals.of(properties),
            store_outages=outage_policy(properties),
            **values_of(cls, properties),
        )


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """The memory limits of queued records: bytes for all shards of a worker, and bytes and number of records for one shard."""

    worker_bytes: int = of_property(WORKER_BYTES)
    shard_bytes: int = of_property(SHARD_BYTES)
    shard_records: int = of_property(SHARD_RECORDS)


@dataclass(frozen=True, slots=True)
class AlignmentTimes:
    """The times of the watermark alignment.

    - `lookahead_ms`: how far a shard may be ahead of the global watermark; None turns alignment off.
    """

    lookahead_ms: int | None = of_property(LOOKAHEAD)


class IdleIntervals(msgspec.Struct, frozen=True):
    """How long a shard must have no records to be idle (ms), in the fetcher, the `lag` command and the Spark source.

    - `watermarks_ms`: the interval for watermarks, which do not wait for an idle shard. With -1 they wait for every shard.
    - `shown_ms`: the interval for output to people. It is `watermarks_ms`. If that is -1, it is the alarm interval, or the default of the
      alarm interval if alarms are off.
    """

    watermarks_ms: int = IDLE_INTERVAL.default
    shown_ms: int = ALARM_INTERVAL.default

    @classmethod
    def of(cls, properties: Properties) -> IdleIntervals:
        """Return the intervals that the job's properties set."""
        watermarks_ms, alarm_ms = properties.value(IDLE_INTERVAL), properties.value(ALARM_INTERVAL)
        shown_ms = next((interval for interval in (watermarks_ms, alarm_ms) if interval > 0), ALARM_INTERVAL.default)
        return cls(watermarks_ms, shown_ms)

    @property
    def waits_for_every_shard(self) -> bool:
        """Whether watermarks wait for every shard, however long it is silent."""
        return self.watermarks_ms < 0


WAITS_FOR_EVERY_SHARD = IdleIntervals()


FILES_INTERVAL_MS = 60_000
"""Default time between two files in an object store or a table (ms). Each file costs requests, and readers of the files prefer few."""


def checkpoint_interval_ms(properties: Properties) -> int:
    """Return `flink.state.checkpoint.interval` (ms) if it is set, else the default of the job's sink, else the default of the property."""
    of_sink = None if properties.is_set(CHECKPOINT_INTERVAL) else sink_interval_ms(properties)
    return properties.value(CHECKPOINT_INTERVAL) if of_sink is None else of_sink


def sink_interval_ms(properties: Properties) -> int | None:
    """Return the default checkpoint interval (ms) of a sink that writes to an object store or a table; None for other sinks."""
    name = properties.value(SINK)
    if name in TABLE_SINKS:
        return FILES_INTERVAL_MS
    path = find_property(f"flink.sink.{name}.path")  # The path property of the sinks jsonl and parquet.
    if path is None:
        return None
    scheme, separator, _ = str(properties.value(path)).partition("://")
    return FILES_INTERVAL_MS if separator and scheme.lower() != "file" else None


def _check_max_lag(max_lag_ms: int | None, lookahead_ms: int | None) -> None:
    """Check that the maximum lag exceeds the lookahead.

    Shards of an aligned job are up to the lookahead apart. With a smaller maximum lag, one shard after another would be excluded.
    """
    if max_lag_ms is not None and lookahead_ms is not None and max_lag_ms <= lookahead_ms:
        raise ConfigurationError(MAX_LAG.key, max_lag_ms, f"more than {LOOKAHEAD.key}, which is {lookahead_ms} ms")
