"""What a fetcher says of a run that ended: the outcome of each shard."""

from __future__ import annotations

from collections.abc import Mapping

from ..shards.shard_table import ShardEntry
from .bounds import ShardOutcome


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
        head_watermark=heads.get(entry.key),
        millis_behind_latest=None if entry.metrics.millis_behind_latest < 0 else entry.metrics.millis_behind_latest,
        silent_ms=entry.silence.observed_ms,
        tip_seen_ms=entry.tip_seen_ms,
        children=entry.children,
    )
