"""The format of the documents of a group: JSON with a format number, in which shards have short names."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeVar

from ..conditional_store import Count

FORMAT = 1
_NUMBERED = re.compile(r"shardId-([0-9]{12})")
_NUMBER, _SHORT = re.compile(r"[0-9]+"), re.compile(r"[0-9]{1,12}")
T = TypeVar("T")
ByStream = dict[str, dict[str, Count]]
"""A number for each shard, by stream and short id."""


def to_bytes(content: Mapping[str, Any]) -> bytes:
    """Return compact JSON that `read_document` can read. It is compact because DynamoDB bills an item by its size.

    Raises: TypeError if `content` is not plain JSON, such as a datetime.
    """
    return json.dumps({"format": FORMAT, **content}, separators=(",", ":")).encode()


def short_id(shard_id: str) -> str:
    """Return `shardId-000000000012` as `12`, and other ids unchanged.

    An id that itself looks like a short id gets the prefix `=`.
    """
    match = _NUMBERED.fullmatch(shard_id)
    if match is None:
        return f"={shard_id}" if _NUMBER.fullmatch(shard_id) or shard_id.startswith("=") else shard_id
    return str(int(match[1]))


def long_id(short: str) -> str:
    """Return the shard id of a short id, as the inverse of `short_id`."""
    if short.startswith("="):
        return short[1:]
    return f"shardId-{int(short):012d}" if _SHORT.fullmatch(short) else short


def by_stream(values: Mapping[str, T]) -> dict[str, dict[str, T]]:
    """Return these values, whose keys are `Shard.key`s, grouped by stream. In each group the keys are short shard ids."""
    found: dict[str, dict[str, T]] = {}
    for key, value in values.items():
        stream, _, shard_id = key.rpartition("/")
        found.setdefault(stream, {})[short_id(shard_id)] = value
    return found


def by_key(values: Mapping[str, Mapping[str, T]]) -> Iterator[tuple[str, T]]:
    """Return each `Shard.key` with its value, from the result of `by_stream`."""
    for stream, shards in values.items():
        for short, value in shards.items():
            yield f"{stream}/{long_id(short)}", value


def number_of(key: str, numbers: ByStream) -> int | None:
    """Return the number that `numbers` has for one shard (`key`: its `Shard.key`), or None if it has none."""
    stream, _, shard_id = key.rpartition("/")
    of_stream = numbers.get(stream)
    return None if of_stream is None else of_stream.get(short_id(shard_id))


def short_keys(keys: Iterable[str], stream: str) -> tuple[str, ...]:
    """Return the short ids of `Shard.key`s that all belong to `stream`."""
    return tuple(short_id(key.removeprefix(f"{stream}/")) for key in keys)


def long_keys(shorts: Iterable[str], stream: str) -> tuple[str, ...]:
    """Return the `Shard.key` of each short id of one stream: the inverse of `short_keys`."""
    return tuple(f"{stream}/{long_id(short)}" for short in shorts)
