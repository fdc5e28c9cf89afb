"""FetcherSettings: the settings of one fetcher, read from the properties once. IdleIntervals: also those of lag and of Spark."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.config_fields import of_property, values_of
from recordpublisher.publishers.properties.declaration import find_property
from recordpublisher.publishers.properties.groups.bad_records import ON_BAD_RECORD, OnBadRecord
from recordpublisher.publishers.properties.groups.discovery_and_state import (
    ACCEPTS_LOSS,
    CHECKPOINT_INTERVAL,
    DISCOVERY_INTERVAL,
    ON_DATA_LOSS,
    SHARD_BYTES,
    SHARD_RECORDS,
    SUBTASK_BYTES,
)
from recordpublisher.publishers.properties.groups.files_and_tables import FILE_INTERVAL
from recordpublisher.publishers.properties.groups.job import ALARM_INTERVAL, DRAIN_TIMEOUT, SINK
from recordpublisher.publishers.properties.groups.metrics import CATCH_UP
from recordpublisher.publishers.properties.groups.values_and_time import (
    EMIT_INTERVAL,
    IDLE_INTERVAL,
    LOOKAHEAD,
    MAX_LAG,
    STARTUP_TIMEOUT,
    SYNC_INTERVAL,
    TRACKER_TIMEOUT,
)
from recordpublisher.publishers.properties.max_outage import MAX_OUTAGE
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.retry_properties import outage_policy
from recordpublisher.publishers.retry import RetryPolicy

OBJECTS_INTERVAL_MS = 60_000
"""Between files in an object store: each costs requests, and readers want few."""


def checkpoint_interval_ms(properties: Properties) -> int:
    """`flink.state.checkpoint.interval`; where it is not set that of the sink, as `flink.sink.delta.interval`, if it has one."""
    of_sink = None if properties.is_set(CHECKPOINT_INTERVAL) else sink_interval_ms(properties)
    return properties.value(CHECKPOINT_INTERVAL) if of_sink is None else of_sink


def sink_interval_ms(properties: Properties) -> int | None:
    """The interval of the sink, as `flink.sink.delta.interval`; None: it has none."""
    name = properties.value(SINK)
    if (declared := find_property(f"flink.sink.{name}.interval")) is not None:
        interval: int = properties.value(declared)
        return interval
    path = find_property(f"flink.sink.{name}.path")  # of jsonl and parquet
    if path is None:
        return None
    scheme, separator, _ = str(properties.value(path)).partition("://")
    default = OBJECTS_INTERVAL_MS if separator and scheme.lower() != "file" else None
    given = properties.value(FILE_INTERVAL)
    return default if given is None else given


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """Memory limits: bytes, as held in memory, for a subtask and for a shard; records for a shard."""

    subtask_bytes: int = of_property(SUBTASK_BYTES)
    shard_bytes: int = of_property(SHARD_BYTES)
    shard_records: int = of_property(SHARD_RECORDS)


@dataclass(frozen=True, slots=True)
class AlignmentTimes:
    """`lookahead_ms` None: no alignment. `startup_timeout_ms`: for how long a tracker that never answered is waited for (W10)."""

    lookahead_ms: int | None = of_property(LOOKAHEAD)
    startup_timeout_ms: int = of_property(STARTUP_TIMEOUT)


class IdleIntervals(msgspec.Struct, frozen=True):
    """After how much silence a shard is idle, ms.

    - `watermarks_ms`: for watermarks, which do not wait for an idle shard (W3). -1: never; they wait for every shard (W2).
    - `shown_ms`: for people: the same; where watermarks wait for every shard, the alarm interval, or its default where alarms are off.
    """

    watermarks_ms: int = IDLE_INTERVAL.default
    shown_ms: int = ALARM_INTERVAL.default

    @classmethod
    def of(cls, properties: Properties) -> IdleIntervals:
        """From the job's properties."""
        watermarks_ms, alarm_ms = properties.value(IDLE_INTERVAL), properties.value(ALARM_INTERVAL)
        shown_ms = next((interval for interval in (watermarks_ms, alarm_ms) if interval > 0), ALARM_INTERVAL.default)
        return cls(watermarks_ms, shown_ms)

    @property
    def waits_for_every_shard(self) -> bool:
        """Whether watermarks wait for every shard, however long it is silent (W2)."""
        return self.watermarks_ms < 0


WAITS_FOR_EVERY_SHARD = IdleIntervals()


@dataclass(frozen=True, slots=True, kw_only=True)
class FetcherSettings:
    """Typed properties of the fetcher. Times in ms; -1 turns off what its property allows.

    `store_outages`: how calls to the store of positions are retried; `max_outage_ms`: for how long it may be away.
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
    catch_up_ms: int = of_property(CATCH_UP)

    @classmethod
    def of(cls, properties: Properties) -> FetcherSettings:
        """From the job's properties. Raises: ConfigurationError for a value that is invalid or contradicts another."""
        _check_max_lag(properties.value(MAX_LAG), properties.value(LOOKAHEAD))
        return cls(
            budget=BudgetLimits(**values_of(BudgetLimits, properties)),
            alignment=AlignmentTimes(**values_of(AlignmentTimes, properties)),
            checkpoint_interval_ms=checkpoint_interval_ms(properties),
            idle_intervals=IdleIntervals.of(properties),
            store_outages=outage_policy(properties),
            **values_of(cls, properties),
        )


def _check_max_lag(max_lag_ms: int | None, lookahead_ms: int | None) -> None:
    """Aligned shards are up to the lookahead apart: a smaller maximum lag would exclude them in turn (W12)."""
    if max_lag_ms is not None and lookahead_ms is not None and max_lag_ms <= lookahead_ms:
        raise ConfigurationError(MAX_LAG.key, max_lag_ms, f"more than {LOOKAHEAD.key}, which is {lookahead_ms}")
