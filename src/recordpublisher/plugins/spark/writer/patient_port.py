"""PatientPort: the calls of a writer, which wait for a service that is away."""

from __future__ import annotations

from collections.abc import Sequence

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.kinesis.ports import PutEntry, PutRecordsResponse, StreamSummary, WritingPort
from recordpublisher.publishers.shards import Shard

from ..outages import OutageWatch


class PatientPort:
    """A WritingPort around another one. It owns the outages of that one's calls.

    A call that fails as a whole is made again until `max_outage_ms` are over. Then it raises OutageError, which ends the task. A response
    with records that were refused is no outage: the sink puts those records again.
    """

    def __init__(self, port: WritingPort, max_outage_ms: int, clock: Clock | None = None) -> None:
        self._port = port
        self._outages = OutageWatch(max_outage_ms, clock)

    async def put_records(self, stream: str, entries: Sequence[PutEntry]) -> PutRecordsResponse:
        """Put records. When a response was lost they may be in the stream twice."""
        return await self._outages.wait_out_async(lambda: self._port.put_records(stream, entries), "PutRecords")

    async def list_shards(self, stream: str, after: str | None = None) -> list[Shard]:
        """Every shard of the stream."""
        return await self._outages.wait_out_async(lambda: self._port.list_shards(stream, after), "ListShards")

    async def stream_summary(self, stream: str) -> StreamSummary:
        """The limits of the stream."""
        return await self._outages.wait_out_async(lambda: self._port.stream_summary(stream), "DescribeStreamSummary")

    async def close(self) -> None:
        """Close the port."""
        await self._port.close()
