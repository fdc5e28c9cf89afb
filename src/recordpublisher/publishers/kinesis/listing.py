"""Pages of streams and shards, as AWS hands them out, and what a listed shard says."""

from __future__ import annotations

from email.utils import parsedate_to_datetime
from typing import Any

from ..errors import FatalKinesisError, TransientError
from ..shards import HashRange, Shard
from .error_mapping import reject_malformed
from .ports import Transport


async def list_all_shards(connections: Transport, stream: dict[str, str], after: str | None) -> list[dict[str, Any]]:
    """Every shard as the service describes it, or those after a shard id.

    A NextToken lives 300 s and never goes together with a stream (API reference); when one has expired, the listing goes on after the
    last shard seen.
    """
    shards: list[dict[str, Any]] = []
    page = await _first_page(connections, stream, after)
    while True:
        with reject_malformed("ListShards"):
            shards += page["Shards"]
        token = page.get("NextToken")
        if not token:
            return shards
        try:
            page = await connections.call("ListShards", NextToken=token)
        except TransientError as error:
            if error.code != "ExpiredNextTokenException":
                raise
            page = await _first_page(connections, stream, shards[-1]["ShardId"])


async def _first_page(connections: Transport, stream: dict[str, str], after: str | None) -> dict[str, Any]:
    start = {"ExclusiveStartShardId": after} if after else {}
    return await connections.call("ListShards", **stream, **start)


async def list_all_streams(connections: Transport) -> list[str]:
    """The names of all streams."""
    names: list[str] = []
    page = await connections.call("ListStreams")
    while True:
        with reject_malformed("ListStreams"):
            found = page["StreamNames"]
            names += found
        if not found or not page.get("HasMoreStreams"):
            return names
        page = await connections.call("ListStreams", ExclusiveStartStreamName=names[-1])


def parse_shard(described: dict[str, Any], stream: str, stream_arn: str | None) -> Shard:
    """A Shard of a described one; it is closed when it has an ending sequence number."""
    keys = described["HashKeyRange"]
    parents = (described.get("ParentShardId"), described.get("AdjacentParentShardId"))
    return Shard(
        stream=stream,
        shard_id=described["ShardId"],
        parents=tuple(parent for parent in parents if parent),
        hash_range=HashRange(int(keys["StartingHashKey"]), int(keys["EndingHashKey"])),
        closed="EndingSequenceNumber" in described.get("SequenceNumberRange", {}),
        stream_arn=stream_arn,
    )


def parse_server_time_ms(answer: dict[str, Any]) -> int:
    """The service's wall clock when it answered, epoch ms, cut to whole seconds: never later than the answer (P3)."""
    said = answer["ResponseMetadata"]["HTTPHeaders"].get("date", "")
    try:
        return int(parsedate_to_datetime(said).timestamp()) * 1000
    except ValueError as error:
        raise FatalKinesisError(
            "ListShards", "NoDate", f"the answer's Date header is {said!r}; give a start timestamp"
        ) from error
