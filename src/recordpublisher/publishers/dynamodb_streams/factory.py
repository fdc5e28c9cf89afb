"""DynamoDbStreamsFactory: polling publishers over DynamoDB Streams."""

from __future__ import annotations

from collections.abc import Mapping

from ..base import Checks, check_clock
from ..clock import Clock
from ..kinesis import LIST_SHARDS_RETRIES, call_with_retries
from ..polling import PollingRecordPublisherFactory
from ..positions import StartingPosition
from ..properties.properties import Properties
from ..shards import Shard
from .service import DynamoDbStreams


class DynamoDbStreamsFactory(PollingRecordPublisherFactory):
    """Makes polling publishers that read DynamoDB Streams, and lists the shards of a table's stream. Owns the client of all of them."""

    def __init__(self, properties: Mapping[str, object], *, clock: Clock | None = None) -> None:
        properties = properties if isinstance(properties, Properties) else Properties(properties)
        self._streams = DynamoDbStreams(properties, clock)
        self._listing = LIST_SHARDS_RETRIES.policy(properties)
        super().__init__(properties, service=self._streams, clock=clock)

    async def discover(self, stream: str, after: str | None) -> list[Shard]:
        """List the shards of the table's newest stream. Raises: StreamNotFoundError without one."""
        return await call_with_retries(lambda: self._streams.list_shards(stream, after), self._listing)

    async def endpoint_url(self) -> str:
        """That of DynamoDB Streams, which is not that of DynamoDB."""
        return await self._streams.endpoint_url()

    def checks(self, stream: str) -> Checks:
        """The table's newest stream, its shards, and a read of one of them."""
        return table_checks(self._streams, stream, self._clock)

    async def close(self) -> None:
        """Close the client."""
        await self._streams.close()


def table_checks(streams: DynamoDbStreams, table: str, clocks: Clock) -> Checks:
    """What `doctor` asks about a table, by IAM action: each of the four is called; a read takes nothing away.

    A later check uses what the earlier ones have found, and asks nothing without it.
    """
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
