"""ManagementClient: a KinesisClient with the calls that list and describe streams."""

from __future__ import annotations

from ..client import KinesisClient, to_description
from ..error_mapping import reject_malformed
from ..listing import list_stream_pages
from ..ports import ConsumerDescription
from .descriptions import ListedStream, StreamDescription


class ManagementClient(KinesisClient):
    """What people and tools ask the service, beside the calls of jobs. As there, nothing is retried here."""

    async def listed_streams(self) -> list[ListedStream]:
        """All streams of the account in this region."""
        with reject_malformed("ListStreams"):
            return [
                ListedStream.parse(each)
                async for page in list_stream_pages(self._transport)
                for each in page["StreamSummaries"]
            ]

    async def describe(self, stream: str) -> StreamDescription:
        """A stream with its settings, consumers and listed shards. Raises: StreamNotFoundError."""
        summary = await self._describe_stream(stream)
        shards = await self.list_shards(stream)
        with reject_malformed("DescribeStreamSummary"):
            consumers = await self.list_consumers(summary["StreamARN"])
            return StreamDescription.parse(summary, consumers, shards)

    async def list_consumers(self, stream_arn: str) -> list[ConsumerDescription]:
        """The registered consumers of a stream."""
        consumers: list[ConsumerDescription] = []
        token: dict[str, str] = {}
        while True:
            page = await self._call("ListStreamConsumers", StreamARN=stream_arn, **token)
            with reject_malformed("ListStreamConsumers"):
                consumers += [to_description(each) for each in page["Consumers"]]
            if not page.get("NextToken"):
                return consumers
            token = {"NextToken": page["NextToken"]}
