"""The global watermark over tasks that never talk to each other: folded from the claims, carried by the offset (W1-W8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from recordpublisher.publishers.properties import table
from recordpublisher.publishers.properties.properties import Properties

from .batch_offset import EMIT_NOTHING, ShardOffset
from .lineage import children_of, is_startable
from .read_claim import ShardReadRange


@dataclass(frozen=True, slots=True)
class AlignmentSettings:
    """`lookahead` ms or None (off); `idle_interval` ms of silence or -1 (wait for every shard, W2); `timeout` ms that an ended
    shard without known children holds the minimum (W5)."""

    lookahead: int | None = None
    idle_interval: int = -1
    timeout: int = 30_000

    @classmethod
    def of(cls, properties: Properties) -> AlignmentSettings:
        """From the job's properties."""
        return cls(
            properties.value(table.LOOKAHEAD),
            properties.value(table.IDLE_INTERVAL),
            properties.value(table.TRACKER_TIMEOUT),
        )

    def emit_limit(self, global_watermark: int | None) -> int | None:
        """Up to which watermark the next batch emits: the lookahead above the global one.

        While that is unknown a batch emits nothing and only learns what each shard begins with; so the first batches keep the spread too.
        """
        if self.lookahead is None:
            return None
        return EMIT_NOTHING if global_watermark is None else global_watermark + self.lookahead

    def is_idle(self, entry: ShardOffset) -> bool:
        """Whether there is evidence of silence for long enough (W3); a shard that holds a record is not silent."""
        return self.idle_interval >= 0 and entry.next_watermark is None and entry.silent_ms >= self.idle_interval


def silence_ms_after(entry: ShardOffset, claim: ShardReadRange) -> int:
    """Evidence of silence after a read, ms (W3).

    Two answered reads from one position that both found the tip prove that nothing arrived between them, however long the job
    slept; within a window the reader's own evidence counts. A window without any answer (a fan-out event comes about every 5 s only)
    says nothing: it neither adds nor takes. Anything else starts over.
    """
    if not claim.was_answered:
        return entry.silent_ms
    if claim.records or claim.past_event_time or not claim.at_tip:
        return 0
    first, _ = claim.tip_seen_ms or (0, 0)
    between = 0 if entry.tip_ms is None else max(0, first - entry.tip_ms)
    return entry.silent_ms + between + claim.silent_ms


def advanced(
    value: int | None, shards: Mapping[str, ShardOffset], alignment: AlignmentSettings, now_ms: int
) -> int | None:
    """The new global watermark: the lowest level of the active shards, never below `value` (W6).

    One that counts without a level keeps the global one where it is (W2); with nobody active the last value stands.
    """
    levels = [entry.alignment_watermark for entry in shards.values() if counts(entry, shards, alignment, now_ms)]
    known = [level for level in levels if level is not None]
    if not known or len(known) < len(levels):
        return value
    return min(known) if value is None else max(value, min(known))


def counts(entry: ShardOffset, shards: Mapping[str, ShardOffset], alignment: AlignmentSettings, now_ms: int) -> bool:
    """Whether a shard is active in the minimum.

    A child counts from the moment it may start; an ended parent only while no child of it is known, and not for long (W5).
    """
    if entry.state.ended:
        return not children_of(entry, shards) and now_ms - (entry.ended_ms or now_ms) < alignment.timeout
    return is_startable(entry, shards) and not entry.idle and not entry.done
