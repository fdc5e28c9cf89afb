"""The rules of watermarks as plain functions, without state, clock or asyncio.

The running fetcher applies them shard by shard as batches arrive. The Spark source applies them to a whole offset when it plans a batch.
All times and watermarks are milliseconds.
"""

import math
from collections.abc import Iterable


def shard_watermark(next_watermark: int | None, emitted: int | None) -> int | None:
    """The watermark with which a shard enters the global minimum: that of its next queued record, or else of its last one (W1)."""
    return emitted if next_watermark is None else next_watermark


def is_idle(silent_ms: int, interval_ms: int) -> bool:
    """Whether a shard was seen silent for the whole idle interval (W3). An interval of -1 waits for every shard (W2)."""
    return 0 < interval_ms <= silent_ms


def is_active(is_open: bool, is_idle: bool, has_next_record: bool) -> bool:
    """Whether others wait for a shard: it can still give records, and is not idle or has a record waiting (W4)."""
    return is_open and (has_next_record or not is_idle)


def holds_after_end(has_children: bool, has_unread_child: bool, waited_ms: float, timeout_ms: float) -> bool:
    """Whether others wait for a shard that was read to its end (W5).

    It holds the watermark for its children: as long as no child is known, or one could be read and is not. A child that still waits for
    its other parent does not count, since that parent holds the watermark for it. After `timeout_ms` nobody waits any more.
    """
    return waited_ms < timeout_ms and (has_unread_child or not has_children)


def inherited_watermark(parents: Iterable[int | None]) -> int | None:
    """The watermark at which a child begins to count: the lowest known one of its parents (W5)."""
    return min((watermark for watermark in parents if watermark is not None), default=None)


def raised(current: int | None, candidate: int | None) -> int | None:
    """The global watermark after a new minimum: it never falls, and an unknown minimum leaves it as it is (W6)."""
    if candidate is None:
        return current
    return candidate if current is None else max(current, candidate)


def emit_limit(global_watermark: int | None, lookahead_ms: int | None) -> float:
    """The highest watermark that may be emitted (W8).

    Infinite without alignment (`lookahead_ms` None). Minus infinity while the global watermark is not known: nothing is emitted.
    """
    if lookahead_ms is None:
        return math.inf
    return -math.inf if global_watermark is None else global_watermark + lookahead_ms
