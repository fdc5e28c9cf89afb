"""Handles splits and merges in an offset: the shards that may be read, the new shards, and the shards that leave the offset."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from recordpublisher.fetcher.global_watermark_rules import inherited_watermark
from recordpublisher.fetcher.shards.lineage import finished_ancestors, parent_keys, parents_ended
from recordpublisher.fetcher.shards.read_state import latest
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shards import Shard

from .offset import ShardOffset

Shards = Mapping[str, ShardOffset]
"""The shards of an offset by `Shard.key`."""


def with_started_children(shards: Shards) -> dict[str, ShardOffset]:
    """Return the shards, with each ended parent replaced by its children once all of them may start.

    So an offset does not grow with the history of the stream. A child that may start inherits from its parents the watermark, and the time
    until which they are known to have been open, because no record of the child is older.
    """
    started = {key: _with_inherited(entry, shards) for key, entry in shards.items()}
    children = _children_by_parent(started)
    return {key: entry for key, entry in started.items() if not _is_replaced(entry, children.get(key, ()), shards)}


def with_new_shards(shards: Shards, listed: Iterable[Shard], named: Iterable[Shard]) -> dict[str, ShardOffset]:
    """Return the offset's shards and the shards found while the job runs.

    New shards are read from TRIM_HORIZON, once their parents have ended.

    - `listed`: shards that a listing showed.
    - `named`: shards that a read named as children of an ended shard (ChildShards). A merged shard is left out while one of its parents is
      not known. The next listing, or the end of that parent, shows it again.
    """
    known = dict(shards)
    for shard in listed:
        known.setdefault(shard.key, unread_shard(shard, StartingPosition.trim_horizon()))
    children = [child for child in named if all(parent in known for parent in parent_keys(child))]
    for child in children:
        known.setdefault(child.key, unread_shard(child, StartingPosition.trim_horizon()))
    return known


def new_shards(listed: Collection[Shard], shards: Shards, finished: Collection[str]) -> list[Shard]:
    """Return the listed shards that are new to the job. A listing may be older than the offset, so these shards are not new:

    - shards of the offset,
    - their ancestors, which were read to their ends before,
    - shards that this process has `finished`.
    """
    ancestors = finished_ancestors((entry.shard for entry in shards.values()), {shard.key: shard for shard in listed})
    known = {*shards, *ancestors, *finished}
    return [shard for shard in listed if shard.key not in known]


def unread_shard(shard: Shard, start: StartingPosition) -> ShardOffset:
    """Return the offset's entry for a shard that was not read yet."""
    return ShardOffset(shard, ShardState(start=start, parents=shard.parents))


def is_startable(entry: ShardOffset, shards: Shards) -> bool:
    """Return whether the shard may be read, because each of its parents was read to its end.

    A parent that is not in the offset was read, or is past retention. For a child is added to an offset only with its parents
    (`with_new_shards`), and a parent is dropped only once all its children may start.
    """
    return parents_ended(parent_keys(entry.shard), lambda parent: parent not in shards or shards[parent].state.ended)


def has_children(entry: ShardOffset, shards: Shards) -> bool:
    """Return whether a child of the shard is in the offset."""
    return any(entry.key in parent_keys(other.shard) for other in shards.values())


def _children_by_parent(shards: Shards) -> dict[str, list[ShardOffset]]:
    children: dict[str, list[ShardOffset]] = {}
    for entry in shards.values():
        for parent in parent_keys(entry.shard):
            children.setdefault(parent, []).append(entry)
    return children


def _is_replaced(entry: ShardOffset, children: Collection[ShardOffset], shards: Shards) -> bool:
    return entry.state.ended and bool(children) and all(is_startable(child, shards) for child in children)


def _with_inherited(entry: ShardOffset, shards: Shards) -> ShardOffset:
    parents = [shards[parent].state for parent in parent_keys(entry.shard) if parent in shards]
    if not parents or not is_startable(entry, shards):
        return entry
    watermark, seen_ms = entry.state.watermark, entry.state.seen_ms
    if watermark is None:
        watermark = inherited_watermark(parent.watermark for parent in parents)
    if entry.state.position is None:
        seen_ms = latest(seen_ms, *(latest(parent.arrival_ms, parent.seen_ms) for parent in parents))
    return replace(entry, state=replace(entry.state, watermark=watermark, seen_ms=seen_ms))
