"""The shards of a stream as a tree: children below their parents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from recordpublisher.publishers.shards import MAX_HASH_KEY, Shard


def shard_tree(shards: Sequence[Shard]) -> list[str]:
    """One line for each shard. A merged shard stands below its second parent and names both; a shard without listed parents is a root."""
    return [
        f"{indent}{shard.shard_id}  {'closed' if shard.closed else 'open'}  {_hash_range(shard)}{_merged(shard)}"
        for indent, shard in _walk(shards)
    ]


def _walk(shards: Sequence[Shard]) -> Iterator[tuple[str, Shard]]:
    children: dict[str, list[Shard]] = {shard.shard_id: [] for shard in shards}
    roots: list[Shard] = []
    for shard in shards:
        listed = [parent for parent in shard.parents if parent in children]
        (children[max(listed)] if listed else roots).append(shard)
    waiting = [("", "", shard) for shard in reversed(roots)]
    while waiting:
        branch, below, shard = waiting.pop()
        yield branch, shard
        for place, child in enumerate(reversed(children[shard.shard_id])):
            shown, further = ("└─ ", "   ") if place == 0 else ("├─ ", "│  ")
            waiting.append((below + shown, below + further, child))


def _hash_range(shard: Shard) -> str:
    keys = shard.hash_range
    share = (keys.end - keys.start + 1) / (MAX_HASH_KEY + 1)
    return f"{keys.start} to {keys.end} ({share:.1%})"


def _merged(shard: Shard) -> str:
    return f"  merged from {' and '.join(shard.parents)}" if len(shard.parents) > 1 else ""
