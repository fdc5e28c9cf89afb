"""Selects the shards that a ShardFilter of ListShards shows."""

from typing import TypeVar

from ..api_errors import invalid_argument
from .shard import Shard
from .stream import Stream

T = TypeVar("T")


def filter_shards(
    stream: Stream, kind: str | None, shard_id: str | None = None, timestamp_ms: int | None = None
) -> list[Shard]:
    """Return the shards within retention that the filter keeps, in the order of their ids."""
    stream.apply_retention()
    shards = list(stream.shards.values())
    oldest = max(stream.horizon_ms, stream.created_ms)
    if kind in (None, "FROM_TRIM_HORIZON"):
        return shards
    if kind == "AT_LATEST":
        return [shard for shard in shards if shard.is_open]
    if kind == "AT_TRIM_HORIZON":
        return [shard for shard in shards if shard.was_open_at(oldest)]
    if kind == "AFTER_SHARD_ID":
        return [shard for shard in shards if shard.id > _required(shard_id, "ShardId", kind)]
    moment = max(oldest, _past(_required(timestamp_ms, "Timestamp", kind), stream.clock.now_ms()))
    if kind == "AT_TIMESTAMP":
        return [shard for shard in shards if shard.was_open_at(moment)]
    return [shard for shard in shards if shard.is_open_after(moment)]


def _required(value: T | None, field: str, kind: str) -> T:
    if value is None:
        raise invalid_argument(f"{field} must be given with a ShardFilter of type {kind}.")
    return value


def _past(timestamp_ms: int, now_ms: int) -> int:
    if timestamp_ms > now_ms:
        raise invalid_argument(f"The timestamp {timestamp_ms} of the ShardFilter is in the future; now: {now_ms}")
    return timestamp_ms
