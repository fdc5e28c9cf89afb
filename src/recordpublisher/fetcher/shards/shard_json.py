"""A shard, as listed, in readable JSON."""

from collections.abc import Mapping
from typing import Any

from recordpublisher.publishers.shards import HashRange, Shard

_ALL_HASH_KEYS = HashRange()


def shard_to_json(shard: Shard) -> dict[str, Any]:
    """A plain dict without empty entries. The hash range is hexadecimal text: many JSON readers lose digits of numbers above 2**53."""
    entries = {
        "stream": shard.stream,
        "id": shard.shard_id,
        "parents": list(shard.parents),
        "range": None if shard.hash_range == _ALL_HASH_KEYS else f"{shard.hash_range.start:x}-{shard.hash_range.end:x}",
        "arn": shard.stream_arn,
    }
    return {name: value for name, value in entries.items() if value}


def shard_from_json(entries: Mapping[str, Any]) -> Shard:
    """The inverse of `shard_to_json`. Raises: KeyError, ValueError."""
    return Shard(
        stream=entries["stream"],
        shard_id=entries["id"],
        parents=tuple(entries.get("parents", ())),
        hash_range=_range_from_text(entries.get("range")),
        stream_arn=entries.get("arn"),
    )


def _range_from_text(text: str | None) -> HashRange:
    if text is None:
        return _ALL_HASH_KEYS
    start, end = text.split("-")
    return HashRange(int(start, 16), int(end, 16))
