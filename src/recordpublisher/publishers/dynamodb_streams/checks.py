"""What `recordpublisher doctor` asks about a table: each of the four actions is called; a read takes nothing away."""

from __future__ import annotations

from ..checks import Checks, check_clock
from ..clock import Clock
from ..positions import StartingPosition
from ..shards import Shard
from .service import DynamoDbStreams


def table_checks(streams: DynamoDbStreams, table: str, clocks: Clock) -> Checks:
    """The checks by their IAM actions. A later one uses what the earlier ones have found, and asks nothing without it."""
    shards: list[Shard] = []
    iterators: list[str] = []

    async def newest_stream() -> str:
        return f"the newest stream is {await streams.stream_arn(table)}"

    async def describe() -> str:
        shards.extend(await streams.list_shards(table))
        return f"{len(shards)} shards"

    async def iterator() -> str | None:
        if not shards:
            return None
        iterators.append(await streams.get_shard_iterator(shards[-1], StartingPosition.latest()))
        return "allowed"

    async def read() -> str | None:
        if not iterators:
            return None
        await streams.get_records(shards[-1], iterators[0], 1)
        return "allowed"

    async def clock() -> str | None:
        return None if streams.last_response_ms is None else check_clock(clocks.now_ms(), streams.last_response_ms)

    return {
        "dynamodb:ListStreams": newest_stream,
        "clock": clock,
        "dynamodb:DescribeStream": describe,
        "dynamodb:GetShardIterator": iterator,
        "dynamodb:GetRecords": read,
    }
