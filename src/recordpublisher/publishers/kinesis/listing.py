"""Lists streams and shards page by page, and parses the listed shards."""

from collections.abc import AsyncIterator, Iterable
from graphlib import TopologicalSorter
from typing import Any

from ..errors import FatalKinesisError, TransientError
from ..shards import HashRange, Shard
from .codec.response_decoders import check_shard_ids
from .error_mapping import reject_malformed
from .ports import Transport

MAX_PAGES_WITHOUT_NEWS, MAX_LISTED = 10, 1_000_000
"""Limits of a listing, far above what the service returns."""
MOST_DIGITS = 256
"""The most digits of a sequence number. Kinesis uses 56, and Python cannot parse numbers of more than 4,300."""


class ListingProgress:
    """Owns the names that a listing has shown. A listing whose pages never end is malformed."""

    def __init__(self, api: str) -> None:
        self._api = api
        self._listed: set[str] = set()
        self._pages_without_news = 0

    def check(self, page: Iterable[str]) -> None:
        """Add the names of a page. Raises: TransientError if the pages bring no new names, or too many."""
        known = len(self._listed)
        self._listed.update(page)
        self._pages_without_news = 0 if len(self._listed) > known else self._pages_without_news + 1
        if self._pages_without_news >= MAX_PAGES_WITHOUT_NEWS or known > MAX_LISTED:
            raise TransientError(self._api, "MalformedResponse", f"the listing never ends, after {known} names")


async def list_all_shards(transport: Transport, stream: dict[str, str], after: str | None) -> list[dict[str, Any]]:
    """Return every shard as the service describes it, or the shards after the shard id `after`.

    A NextToken is valid for 300 s and excludes a stream name (API reference). If it has expired, the listing continues
    after the last shard seen.
    """
    shards: list[dict[str, Any]] = []
    progress = ListingProgress("ListShards")
    page = await _first_page(transport, stream, after)
    while True:
        with reject_malformed("ListShards"):
            progress.check(shard["ShardId"] for shard in page["Shards"])
            shards += page["Shards"]
        token = page.get("NextToken")
        if not token:
            with reject_malformed("ListShards"):  # shards that wait for each other would never be read
                TopologicalSorter({shard["ShardId"]: _parents(shard) for shard in shards}).prepare()
            return shards
        try:
            page = await transport.call("ListShards", NextToken=token)
        except TransientError as error:
            if error.code != "ExpiredNextTokenException":
                raise
            page = await _first_page(transport, stream, shards[-1]["ShardId"] if shards else after)


def _parents(shard: dict[str, Any]) -> list[str]:
    return [shard[name] for name in ("ParentShardId", "AdjacentParentShardId") if shard.get(name)]


async def _first_page(transport: Transport, stream: dict[str, str], after: str | None) -> dict[str, Any]:
    start = {"ExclusiveStartShardId": after} if after else {}
    return await transport.call("ListShards", **stream, **start)


async def list_all_streams(transport: Transport) -> list[str]:
    """List the names of all streams."""
    with reject_malformed("ListStreams"):
        return [name async for page in list_stream_pages(transport) for name in page["StreamNames"]]


async def list_stream_pages(transport: Transport) -> AsyncIterator[dict[str, Any]]:
    """Yield every page of ListStreams."""
    progress = ListingProgress("ListStreams")
    page = await transport.call("ListStreams")
    while True:
        yield page
        found = page["StreamNames"]
        progress.check(found)
        if not found or not page.get("HasMoreStreams"):
            return
        page = await transport.call("ListStreams", ExclusiveStartStreamName=found[-1])


def parse_shard(described: dict[str, Any], stream: str, stream_arn: str | None) -> Shard:
    """Return the Shard of a description. It is closed if it has an ending sequence number.

    Raises: KeyError, TypeError or ValueError if the description is not as documented.
    """
    keys = described["HashKeyRange"]
    named = (described.get("ParentShardId"), described.get("AdjacentParentShardId"))
    parents = tuple(parent for parent in named if parent)
    check_shard_ids(described["ShardId"], *parents)
    if described["ShardId"] in parents:  # the shard would wait for itself
        raise ValueError(f"{described['ShardId']} is its own parent")
    numbers = described.get("SequenceNumberRange", {})
    first = str(numbers.get("StartingSequenceNumber", ""))
    return Shard(
        stream=stream,
        shard_id=described["ShardId"],
        parents=parents,
        hash_range=HashRange.parse(keys["StartingHashKey"], keys["EndingHashKey"]),
        closed="EndingSequenceNumber" in numbers,
        stream_arn=stream_arn,
        starting_sequence_number=first if first.isdecimal() and len(first) <= MOST_DIGITS else None,
    )


def parse_server_time_ms(response: dict[str, Any]) -> int:
    """Return the service's wall clock at the response, epoch ms, cut to whole seconds: never later than the response (P3).

    Raises: FatalKinesisError if the response has no valid Date header.
    """
    from email.utils import parsedate_to_datetime  # Imported here because it is slow, and not needed by tasks of Spark.

    date = response["ResponseMetadata"]["HTTPHeaders"].get("date", "")
    try:
        return int(parsedate_to_datetime(date).timestamp()) * 1000
    except ValueError as error:
        raise FatalKinesisError(
            "ListShards", "NoDate", f"the response's Date header is {date!r}; set a start timestamp"
        ) from error


def server_time_ms_or_none(response: dict[str, Any]) -> int | None:
    """Return the service's wall clock at the response, epoch ms, or None without a valid Date header."""
    try:
        return parse_server_time_ms(response)
    except (FatalKinesisError, KeyError):
        return None
