"""Shards as small JSON, for offsets and claims."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from recordpublisher.publishers.shards import HashRange, Shard

_EVERYTHING = HashRange()


def shard_to_json(shard: Shard) -> dict[str, Any]:
    """Without empty entries; the hash range in hexadecimal, since JSON numbers end at 2**53 for many readers."""
    entries = {
        "stream": shard.stream,
        "id": shard.shard_id,
        "parents": list(shard.parents),
        "range": None if shard.hash_range == _EVERYTHING else f"{shard.hash_range.start:x}-{shard.hash_range.end:x}",
        "arn": shard.stream_arn,
    }
    return {name: value for name, value in entries.items() if value}


def shard_from_json(entries: Mapping[str, Any]) -> Shard:
    """The inverse of `shard_to_json`."""
    return Shard(
        stream=entries["stream"],
        shard_id=entries["id"],
        parents=tuple(entries.get("parents", ())),
        hash_range=_range(entries.get("range")),
        stream_arn=entries.get("arn"),
    )


def _range(text: str | None) -> HashRange:
    if text is None:
        return _EVERYTHING
    start, end = text.split("-")
    return HashRange(int(start, 16), int(end, 16))
