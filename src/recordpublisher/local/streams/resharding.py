"""Splits, merges and changes of the shard count.

Parents close, children open, and each hash key always belongs to one open shard.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..api_errors import invalid_argument
from .shard import HashRange, Shard, uniform_ranges

if TYPE_CHECKING:
    from .stream import Stream


def split(stream: Stream, shard: Shard, new_start: int) -> list[Shard]:
    """Split a shard before `new_start`.

    Raises: InvalidArgumentException if `new_start` is outside its range, or if the shard is closed.
    """
    _require_open(stream, shard)
    span = shard.hash_range
    if not span.start + 1 < new_start < span.end:
        raise invalid_argument(
            f"NewStartingHashKey {new_start} used in SplitShard() on shard {shard.id} in stream {stream.name} under "
            f"account {stream.account_id} is not both greater than one plus the shard's StartingHashKey {span.start} "
            f"and less than the shard's EndingHashKey {span.end}."
        )
    return _split_at(stream, shard, new_start)


def merge(stream: Stream, shard: Shard, adjacent: Shard) -> Shard:
    """Merge a shard and the next one. Raises: InvalidArgumentException if they are not adjacent in this order, or if one is closed."""
    _require_open(stream, shard)
    _require_open(stream, adjacent)
    if shard.hash_range.end + 1 != adjacent.hash_range.start:
        raise invalid_argument(
            f"Shards {shard.id} and {adjacent.id} in stream {stream.name} under account {stream.account_id} are not "
            "an adjacent pair of shards eligible for merging"
        )
    return _merge(stream, shard, adjacent)


def update_shard_count(stream: Stream, target: int) -> None:
    """Change the shard count to uniform ranges: split at every new boundary, then merge the shards between two boundaries.

    As in the service, a shard between two boundaries may be split or merged again at once.

    Raises: InvalidArgumentException if `target` is more than double or less than half of the open shards.
    """
    current = len(stream.open_shards)
    if target > current * 2 or target * 2 < current:
        raise invalid_argument(
            f"UpdateShardCount cannot go past double or half of the open shards. Current: {current}, target: {target}"
        )
    ranges = uniform_ranges(target)
    for start in (span.start for span in ranges[1:]):
        shard = stream.shard_for(start)
        if shard.hash_range.start != start:
            _split_at(stream, shard, start)
    for span in ranges:
        _merge_all(stream, span)


def _merge_all(stream: Stream, span: HashRange) -> None:
    low = stream.shard_for(span.start)
    while low.hash_range.end != span.end:
        low = _merge(stream, low, stream.shard_for(low.hash_range.end + 1))


def _split_at(stream: Stream, shard: Shard, new_start: int) -> list[Shard]:
    span = shard.hash_range
    halves = HashRange(span.start, new_start - 1), HashRange(new_start, span.end)
    return stream.add_shards([(half, (shard,)) for half in halves])


def _merge(stream: Stream, shard: Shard, adjacent: Shard) -> Shard:
    spans = shard.hash_range, adjacent.hash_range
    whole = HashRange(min(s.start for s in spans), max(s.end for s in spans))
    return stream.add_shards([(whole, (shard, adjacent))])[0]


def _require_open(stream: Stream, shard: Shard) -> None:
    if not shard.is_open:
        raise invalid_argument(
            f"Shard {shard.id} in stream {stream.name} under account {stream.account_id} has already been merged or "
            "split, and thus is not eligible for merging or splitting."
        )
