"""The publisher DYNAMODB: polling, over another service."""

from recordpublisher import Properties, RecordPublisherFactory, Shard, hookimpl
from recordpublisher.publishers.kinesis import LIST_SHARDS_RETRIES, call_with_retries
from recordpublisher.publishers.polling import PollingRecordPublisherFactory

from .streams import DynamoDbStreams


class DynamoDbFactory(PollingRecordPublisherFactory):
    """Makes polling publishers that read DynamoDB Streams, and lists the shards of a table's stream."""

    def __init__(self, properties: Properties) -> None:
        self._streams = DynamoDbStreams(properties)
        self._listing = LIST_SHARDS_RETRIES.policy(properties)
        super().__init__(properties, service=self._streams)

    async def discover(self, stream: str, after: str | None) -> list[Shard]:
        return await call_with_retries(lambda: self._streams.list_shards(stream, after), self._listing)

    async def close(self) -> None:
        await self._streams.close()


@hookimpl
def recordpublisher_register_publishers(registry) -> None:
    factory: type[RecordPublisherFactory] = DynamoDbFactory
    registry.add("DYNAMODB", factory)
