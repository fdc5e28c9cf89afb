"""Bounded runs: the bounds that may end a run, and its result."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.log_fields import counted
from recordpublisher.publishers.shards import Shard

from ..shards.shard_entry import ShardEntry
from ..shards.shard_state import ShardState
from .retention_gaps import ShardObservation


class EndReason(Enum):
    """The reason why a run ended."""

    STOPPED = "stop() was called"
    MAX_TIME = "max_time was reached"
    MAX_RECORDS = "max_records was reached"
    MAX_BYTES = "max_bytes was reached"
    EVENT_TIME = "every shard reached until_event_time or its tip"
    TIP = "every shard reached its tip"
    SHARD_LIMITS = "every shard reached its number of records"
    ALL_ENDED = "every shard was read to its end"
    STREAMS_DELETED = "every stream was deleted"


def _check(name: str, given: Any, types: tuple[type, ...], valid: str) -> None:
    if given is None:
        return
    if isinstance(given, bool) or not isinstance(given, types) or not 0 <= given < math.inf:  # type: ignore[operator]
        raise ConfigurationError(name, given, valid)


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds that end a run. Every bound is optional; the first one reached ends the run.

    - `max_time`: seconds.
    - `max_records`: the number of records over all shards, exact.
    - `max_bytes`: payload bytes over all shards. The batch that crosses the bound is the last.
    - `until_event_time`: epoch ms. Records with a watermark above it are not emitted. A shard whose next record is
      above it has finished.
    - `stop_at_tip`: whether a shard is read only until a read is at its tip. Later records are left to the next run.
    - `shard_limits`: exactly this many records of each shard (by `Shard.key`), then the shard has finished. Shards not
      named have no limit. The run asks the mapping after each write, so with `stop_at_tip` its sink may end a shard by
      adding it.
    """

    max_time: float | None = None
    max_records: int | None = None
    max_bytes: int | None = None
    until_event_time: int | None = None
    stop_at_tip: bool = False
    shard_limits: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the bounds. Raises: ConfigurationError if one is invalid."""
        _check("max_time", self.max_time, (int, float), "a number of seconds, not negative")
        _check("max_records", self.max_records, (int,), "a number of records, not negative")
        _check("max_bytes", self.max_bytes, (int,), "a number of bytes, not negative")
        if not isinstance(self.stop_at_tip, bool):
            raise ConfigurationError("stop_at_tip", self.stop_at_tip, "True or False")
        for key, limit in self.shard_limits.items():
            _check(f"shard_limits[{key}]", limit, (int,), "a number of records, not negative")
        if self.until_event_time is not None and type(self.until_event_time) is not int:
            raise ConfigurationError("until_event_time", self.until_event_time, "epoch milliseconds, a whole number")


@dataclass(frozen=True, slots=True)
class ShardOutcome:
    """How far a run emitted a shard.

    - `state`: the shard's emitted state.
    - `records`, `payload_bytes`: how much was emitted in this run.
    - `seen`: the run's other observations of the shard.
    """

    shard: Shard
    state: ShardState
    records: int = 0
    payload_bytes: int = 0
    seen: ShardObservation = ShardObservation()  # noqa: RUF009 - is frozen


@dataclass(frozen=True, slots=True)
class BoundedResult:
    """The reason why a run ended, and the outcome of each shard, by `Shard.key`.

    - `records`: how many records the sink got, including those that it has rejected.
    """

    reason: EndReason
    shards: Mapping[str, ShardOutcome]
    records: int = 0

    def __str__(self) -> str:
        return f"{self.reason.name}, {counted(self.records, 'record')} to the sink"


def shard_outcome(
    entry: ShardEntry, before: tuple[int, int], past_event_time: Mapping[str, int | None]
) -> ShardOutcome:
    """Return the outcome of one shard.

    - `before`: records and bytes that were emitted before the run.
    - `past_event_time`: the next watermark of each shard that is past the bound.
    """
    is_past, behind_ms = entry.key in past_event_time, entry.metrics.millis_behind_latest
    failure = entry.metrics.last_failure
    return ShardOutcome(
        shard=entry.shard,
        state=replace(entry.state, tip_ms=entry.snapshot_state.tip_ms),
        records=entry.emission.records - before[0],
        payload_bytes=entry.emission.payload_bytes - before[1],
        seen=ShardObservation(
            at_tip=entry.reading.at_tip and not is_past,
            tip_seen_ms=entry.reading.tip_seen_ms,
            past_event_time=is_past,
            next_watermark=past_event_time.get(entry.key),
            silent_ms=entry.reading.idleness.observed_ms,
            behind_ms=None if behind_ms < 0 else behind_ms,
            children=entry.reading.children,
            failure=None if failure is None else str(failure),
            taken_over=entry.metrics.subscriptions_taken_over,
            refused=entry.metrics.subscriptions_refused,
        ),
    )
