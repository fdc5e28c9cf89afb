"""A sink that keeps all records in memory, for tests, notebooks and small reads."""

from collections.abc import Mapping

from recordpublisher.fetcher.sink import Sink
from recordpublisher.publishers.errors import SinkError
from recordpublisher.publishers.records import Record, RecordBatch


class MemorySink(Sink):
    """Owns every batch written, in order, and every watermark.

    A write that would exceed `limit` (records) raises SinkError and keeps no record of its batch.
    """

    def __init__(self, properties: Mapping[str, object] | None = None, *, limit: int | None = None) -> None:
        self._limit = limit
        self._count = 0
        self._records: list[Record] = []
        self._expanded = 0
        self.batches: list[RecordBatch] = []
        self.watermarks: list[int] = []

    @property
    def records(self) -> list[Record]:
        """Every record written, in order. Records are made from the batches at this access, so a write has no cost per record."""
        for batch in self.batches[self._expanded :]:
            self._records.extend(batch)
        self._expanded = len(self.batches)
        return self._records

    async def write(self, batch: RecordBatch) -> None:
        """Keep the batch. Raises: SinkError if the limit would be exceeded."""
        if self._limit is not None and self._count + len(batch) > self._limit:
            raise SinkError(f"the memory sink holds {self._count} records and may hold {self._limit} (limit)")
        self._count += len(batch)
        self.batches.append(batch)

    async def watermark(self, watermark: int) -> None:
        """Keep the watermark."""
        self.watermarks.append(watermark)
