"""The rules of the global watermark as plain functions, without state, clock or asyncio: which shards count for it, and what it allows.

The running fetcher applies them shard by shard as batches arrive. The Spark source applies them to a whole offset when it plans a batch.
All times and watermarks are in ms. How the watermark of one shard follows from its records is in `consumer/watermark_strategies.py`.
"""

import math
from collections.abc import Iterable


def is_active(is_open: bool, is_idle: bool, has_next_record: bool) -> bool:
    """Return whether watermarks wait for a shard.

    They wait if the shard is open, and also has a queued record (`has_next_record`) or is not idle.
    """
    return is_open and (has_next_record or not is_idle)


def is_idle(silent_ms: int, interval_ms: int) -> bool:
    """Return whether a shard had no records for the whole idle interval. With an interval of -1 no shard is idle.

    - `silent_ms`: how long the shard had no records.
    """
    return 0 < interval_ms <= silent_ms


def holds_after_end(has_children: bool, has_unread_child: bool, waited_ms: float, timeout_ms: float) -> bool:
    """Return whether watermarks wait for a shard that was read to its end.

    They wait while no child of the shard is known, or while a child could be read and is not. Otherwise the child's records would be late.
    A child that still waits for its other parent does not count, because watermarks wait for that parent. When they have waited for
    `timeout_ms`, they no longer wait. `waited_ms`: how long they have waited for the shard.
    """
    return waited_ms < timeout_ms and (has_unread_child or not has_children)


def shard_watermark(next_watermark: int | None, emitted: int | None) -> int | None:
    """Return the watermark with which a shard counts for the global minimum.

    It is the watermark of the next queued record, or else of the last emitted one.
    """
    return emitted if next_watermark is None else next_watermark


def inherited_watermark(parents: Iterable[int | None]) -> int | None:
    """Return the watermark at which a child begins to count: the lowest known watermark of its parents."""
    return min((watermark for watermark in parents if watermark is not None), default=None)


def raised_watermark(current: int | None, candidate: int | None) -> int | None:
    """Return the next value of the global watermark: the higher one of `current` and `candidate`.

    `candidate`: the lowest watermark of the shards that count, or None if it is unknown. Then the result is `current`.
    """
    if candidate is None:
        return current
    return candidate if current is None else max(current, candidate)


def emit_limit(global_watermark: int | None, lookahead_ms: int | None) -> float:
    """Return the highest watermark that may be emitted.

    It is infinite without alignment (`lookahead_ms` is None). It is minus infinity while the global watermark is not known, so that nothing
    is emitted.
    """
    if lookahead_ms is None:
        return math.inf
    return -math.inf if global_watermark is None else global_watermark + lookahead_ms
