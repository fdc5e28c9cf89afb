"""Splits and merges in an offset: the shards that may be read, the new shards, and the shards that leave the offset."""

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
    """Return the shards with ended parents replaced by their children.

    A child that may start inherits the watermark of its parents, and the time until which they are known to have been open, because no
    record of the child is older. An ended shard leaves the offset once all its children may start, so that an offset does not grow
    with the history of the stream.
    """
    started = {key: _with_inherited(entry, shards) for key, entry in shards.items()}
    children = _children_by_parent(started)
    return {key: entry for key, entry in started.items() if not _is_replaced(entry, children.get(key, ()), shards)}


def with_new_shards(shards: Shards, listed: Iterable[Shard], named: Iterable[Shard]) -> dict[str, ShardOffset]:
    """Return the offset's shards and the shards found while the job runs.

    New shards are read from TRIM_HORIZON, once their parents have ended. `listed` come from a listing, `named` from the ChildShards of
    ended shards. One parent may name a merged shard before the other parent is known. Then the shard is omitted: the next listing, or the
    other parent's end, shows it again.
    """
    known = dict(shards)
    for shard in listed:
        known.setdefault(shard.key, unread_shard(shard, StartingPosition.trim_horizon()))
    children = [child for child in named if all(parent in known for parent in parent_keys(child))]
    for child in children:
        known.setdefault(child.key, unread_shard(child, StartingPosition.trim_horizon()))
    return known


def new_shards(listed: Collection[Shard], shards: Shards, finished: Collection[str]) -> list[Shard]:
    """Return the listed shards that are new to the job.

    Shards of the offset, their ancestors (read to their end before), and shards that this process has `finished` are not new. They may
    be listed, because a listing may be older than the offset.
    """
    ancestors = finished_ancestors((entry.shard for entry in shards.values()), {shard.key: shard for shard in listed})
    known = {*shards, *ancestors, *finished}
    return [shard for shard in listed if shard.key not in known]


def unread_shard(shard: Shard, start: StartingPosition) -> ShardOffset:
    """Return the offset's entry for a shard that was not read yet."""
    return ShardOffset(shard, ShardState(start=start, parents=shard.parents))


def is_startable(entry: ShardOffset, shards: Shards) -> bool:
    """Return whether the shard may be read, because each of its parents was read to its end.

    A child is added to an offset only with its parents (`with_new_shards`), and a parent is dropped only once all its children may start.
    So a parent that is not in the offset was read, or is past retention.
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
