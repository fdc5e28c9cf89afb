"""Aligns a planned batch in event time: computes its global watermark and its emit limit from the shards of its offset."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from recordpublisher.fetcher import global_watermark_rules
from recordpublisher.fetcher.pipeline.retention_gaps import ShardObservation, Silence
from recordpublisher.fetcher.settings import WAITS_FOR_EVERY_SHARD, IdleIntervals
from recordpublisher.fetcher.watermarks import lowest_active
from recordpublisher.publishers.properties.config_fields import of_property, values_of
from recordpublisher.publishers.properties.job_properties import LOOKAHEAD, TRACKER_TIMEOUT
from recordpublisher.publishers.properties.properties import Properties

from .offset import EMIT_NOTHING, ShardOffset
from .offset_lineage import has_children, is_startable


def next_global_watermark(
    current: int | None, shards: Mapping[str, ShardOffset], alignment: AlignmentSettings, now_ms: int
) -> int | None:
    """Return the lowest watermark of the active shards, or `current` if that is higher.

    It stays at `current` while an active shard has no watermark yet, and while no shard is active.
    """
    active = (entry for entry in shards.values() if is_active(entry, shards, alignment, now_ms))
    return global_watermark_rules.raised_watermark(
        current, lowest_active(entry.alignment_watermark for entry in active)[1]
    )


def is_active(entry: ShardOffset, shards: Mapping[str, ShardOffset], alignment: AlignmentSettings, now_ms: int) -> bool:
    """Return whether the shard is active. The global watermark is the lowest watermark of the active shards.

    Unlike in the fetcher, an ended parent stops being active at once, because the same plan adds its children.
    """
    if entry.state.ended:
        waited_ms = now_ms - (entry.ended_ms or now_ms)
        return global_watermark_rules.holds_after_end(has_children(entry, shards), False, waited_ms, alignment.timeout)
    is_open = not entry.done and is_startable(entry, shards)
    return global_watermark_rules.is_active(is_open, entry.idle, entry.seen.next_watermark is not None)


@dataclass(frozen=True, slots=True)
class AlignmentSettings:
    """Settings of alignment (ms).

    - `lookahead`: how far above the global watermark a batch emits, or None if alignment is off.
    - `idle_intervals`: after how much observed silence a shard is idle, if at all.
    - `timeout`: how long an ended shard holds back the global watermark while its children are not known.
    """

    lookahead: int | None = of_property(LOOKAHEAD)
    idle_intervals: IdleIntervals = WAITS_FOR_EVERY_SHARD
    timeout: int = of_property(TRACKER_TIMEOUT)

    @classmethod
    def of(cls, properties: Properties) -> AlignmentSettings:
        """Return the alignment settings that a job's properties give."""
        return cls(idle_intervals=IdleIntervals.of(properties), **values_of(cls, properties))

    def emit_limit(self, global_watermark: int | None) -> int | None:
        """Return the highest event time that the next batch emits (epoch ms), or None if alignment is off.

        While the global watermark is unknown, a batch emits nothing, and only reads the first watermark of each shard. The event times of
        the first batch that emits are therefore also within the lookahead.
        """
        limit = global_watermark_rules.emit_limit(global_watermark, self.lookahead)
        if limit == math.inf:
            return None
        return EMIT_NOTHING if limit == -math.inf else int(limit)

    def is_idle(self, silence: Silence, seen: ShardObservation) -> bool:
        """Return whether a shard has been silent for long enough. A shard with a record above the emit limit is not silent."""
        return seen.next_watermark is None and global_watermark_rules.is_idle(
            silence.ms, self.idle_intervals.watermarks_ms
        )


def is_held(entry: ShardOffset, emit_limit: int | None) -> bool:
    """Return whether alignment keeps the shard from being read, because its next record is known to be above `emit_limit`."""
    watermark = entry.alignment_watermark
    return emit_limit is not None and watermark is not None and watermark > emit_limit
