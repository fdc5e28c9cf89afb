"""Bounded runs: what may end one, and what it tells when it ended."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.shards import Shard

from ..shards.shard_state import ShardState
from ..shards.shard_table import ShardEntry


class EndReason(Enum):
    """Why a run ended."""

    STOPPED = "stop() was called"
    MAX_TIME = "the time was up"
    MAX_RECORDS = "the number of records was reached"
    MAX_BYTES = "the number of bytes was reached"
    EVENT_TIME = "every shard reached the event time or its tip"
    TIP = "every shard reached its tip"
    SHARD_LIMITS = "every shard gave its number of records"
    ALL_ENDED = "every shard was read to its end"
    STREAMS_DELETED = "every stream was deleted"


def _check(name: str, given: Any, types: tuple[type, ...], valid: str) -> None:
    if given is None:
        return
    if isinstance(given, bool) or not isinstance(given, types) or not 0 <= given < math.inf:  # type: ignore[operator]
        raise ConfigurationError(name, given, valid)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What ends a bounded run; every bound is optional and the first one met ends it.

    `max_time` in seconds. `max_records` over all shards, exact. `max_bytes` of payload over all shards; the batch that crosses it is
    the last. `until_event_time` in epoch ms: a record is emitted iff its watermark is not above it, and a shard whose next record is
    above it is done.
    `stop_at_tip`: a shard is read until an answer stands at its tip, and done once everything read so far was emitted; what comes later
    is left to the next run. `shard_limits`: exactly so many records of each shard (by `Shard.key`), then the shard is done; a shard that
    is not named is not limited.
    """

    max_time: float | None = None
    max_records: int | None = None
    max_bytes: int | None = None
    until_event_time: int | None = None
    stop_at_tip: bool = False
    shard_limits: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises: ConfigurationError for a bound that cannot be met."""
        _check("max_time", self.max_time, (int, float), "a number of seconds, not negative")
        _check("max_records", self.max_records, (int,), "a number of records, not negative")
        _check("max_bytes", self.max_bytes, (int,), "a number of bytes, not negative")
        for key, limit in self.shard_limits.items():
            _check(f"shard_limits[{key}]", limit, (int,), "a number of records, not negative")
        if self.until_event_time is not None and type(self.until_event_time) is not int:
            raise ConfigurationError("until_event_time", self.until_event_time, "epoch milliseconds, a whole number")


@dataclass(frozen=True, slots=True)
class ShardOutcome:
    """Where a shard stands after a run.

    `state` is its emitted state; `records` and `payload_bytes` were emitted in this run. `at_tip`: the last answered read stood at the
    tip and nothing was left behind. `past_event_time`: its next record lies above the bound, with `next_watermark` (epoch ms) as its
    watermark (W1).
    `silent_ms`: evidence of silence (W3) gathered in this run; `tip_seen_ms`: when its first and last read at the tip were answered.
    `children`: known when it ended.
    """

    shard: Shard
    state: ShardState
    records: int = 0
    payload_bytes: int = 0
    at_tip: bool = False
    past_event_time: bool = False
    next_watermark: int | None = None
    millis_behind_latest: int | None = None
    silent_ms: int = 0
    children: tuple[Shard, ...] = ()
    tip_seen_ms: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class BoundedResult:
    """Why a run ended, and where: one outcome for each shard, by `Shard.key`."""

    reason: EndReason
    shards: Mapping[str, ShardOutcome]
    records: int = 0


def outcome_of(entry: ShardEntry, before: tuple[int, int], heads: Mapping[str, int | None]) -> ShardOutcome:
    """Where one shard stands after a run that began with `before` records and bytes emitted."""
    is_past = entry.key in heads
    return ShardOutcome(
        shard=entry.shard,
        state=entry.state,
        records=entry.records - before[0],
        payload_bytes=entry.payload_bytes - before[1],
        at_tip=entry.at_tip and not is_past,
        past_event_time=is_past,
        next_watermark=heads.get(entry.key),
        millis_behind_latest=None if entry.metrics.millis_behind_latest < 0 else entry.metrics.millis_behind_latest,
        silent_ms=entry.silence.observed_ms,
        tip_seen_ms=entry.tip_seen_ms,
        children=entry.children,
    )
