"""Draws the shards of a stream as a tree, children below their parents, and finds a shard that a command names."""

from collections.abc import Iterator, Mapping, Sequence

from ..publishers.errors import ConfigurationError
from ..publishers.shards import MAX_HASH_KEY, Shard


def shard_tree(shards: Sequence[Shard]) -> list[str]:
    """Return one line for each shard.

    The child of a merge is drawn below the later of its parents by name, and its line names both parents.
    A shard without listed parents is a root.
    """
    by_id = {shard.shard_id: shard for shard in shards}
    return [
        f"{indent}{shard}  {'closed' if by_id[shard].closed else 'open'}  {_hash_range(by_id[shard])}{_merged(by_id[shard].parents)}"
        for indent, shard in walk_tree({each: shard.parents for each, shard in by_id.items()})
    ]


def reshard_lines(parents: Mapping[str, Sequence[str]]) -> list[str]:
    """Return one line for each shard that was split or merged, or that is the child of a split or merge.

    - `parents`: the parents of each shard, by name.
    """
    related = {parent for of_one in parents.values() for parent in of_one if parent in parents}
    shown = {shard: of_one for shard, of_one in parents.items() if shard in related or related & {*of_one}}
    return [f"{indent}{shard}{_merged(shown[shard])}" for indent, shard in walk_tree(shown)]


def walk_tree(parents: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, str]]:
    """Yield each shard after its parent, with the lines that are drawn before its name."""
    children: dict[str, list[str]] = {shard: [] for shard in parents}
    roots: list[str] = []
    for shard, of_shard in parents.items():
        listed = [parent for parent in of_shard if parent in children]
        (children[max(listed)] if listed else roots).append(shard)
    waiting = [("", "", shard) for shard in reversed(roots)]
    while waiting:
        branch, below, shard = waiting.pop()
        yield branch, shard
        for place, child in enumerate(reversed(children[shard])):
            shown, further = ("└─ ", "   ") if place == 0 else ("├─ ", "│  ")
            waiting.append((below + shown, below + further, child))


def _hash_range(shard: Shard) -> str:
    keys = shard.hash_range
    share = (keys.end - keys.start + 1) / (MAX_HASH_KEY + 1)
    return f"{keys.start} to {keys.end} ({share:.1%})"


def _merged(parents: Sequence[str]) -> str:
    return f"  merged from {' and '.join(parents)}" if len(parents) > 1 else ""


SHOWN_SHARDS = 10


def known_shard(shard_id: str, shards: Sequence[Shard], key: str, valid: str) -> Shard:
    """Return the shard with this id, or with this `Shard.key`, as other commands show it.

    - `key`: the option or argument that names the shard.
    - `valid`: the valid values. Some of `shards` are added as examples.

    Raises: ConfigurationError if the shard is not one of `shards`.
    """
    found = {shard.shard_id: shard for shard in shards}
    shard_id = next((shard.shard_id for shard in shards if shard.key == shard_id), shard_id)
    if shard_id not in found:
        others = ", ".join([*found][:SHOWN_SHARDS]) + ", ..." * (len(found) > SHOWN_SHARDS)
        raise ConfigurationError(key, shard_id, f"{valid}: {others}")
    return found[shard_id]
