"""DynamoDbStreamsFactory: polling publishers over DynamoDB Streams."""

from __future__ import annotations

from collections.abc import Mapping

from ..checks import Checks
from ..clock import Clock
from ..kinesis import LIST_SHARDS_RETRIES, call_with_retries
from ..polling import PollingRecordPublisherFactory
from ..properties.properties import Properties
from ..shards import Shard
from .checks import table_checks
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
