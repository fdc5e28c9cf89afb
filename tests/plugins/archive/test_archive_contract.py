"""The contract of publishers for ARCHIVE: a shard that has ended in the archive, one that ends live, and files of both formats."""

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import ClassVar

import pytest

import recordpublisher as rp
from recordpublisher.plugins.archive.factory import ArchiveFactory
from recordpublisher.plugins.sinks.files.jsonl import JsonlSink
from recordpublisher.plugins.sinks.files.parquet import ParquetSink
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard
from recordpublisher.testing import PublisherCase, PublisherContract

from fakes.commits.committing_sink import started

ARRIVAL = 1_790_000_000.0
PAYLOADS = [b"%d" % number for number in range(24)]
SHARD = Shard("orders", "shardId-0")


def records(start, stop):
    """Each third record is an aggregate of two."""
    found = []
    for index in range(start, stop):
        number, part = (index // 2 * 2, index % 2) if index % 6 < 2 else (index, -1)
        found.append(UserRecord(PAYLOADS[index], str(100 + number), ARRIVAL + 1800 * index, "key", None, part))
    return found


async def write_archive(folder, kind, cuts, *, is_ended=True, **more):
    """Write files that end at these indexes of the payloads."""
    name = kind.__name__.removesuffix("Sink").lower()
    sink = kind(rp.Properties({f"flink.sink.{name}.path": str(folder), "flink.sink.archive": "true", **more}))
    job = await started(sink)
    sink.shard_listed(SHARD, 1_700_000_000_000)
    sink.shard_started(SHARD, StartingPosition.trim_horizon(), follows_parents=True)
    for start, stop in zip((0, *cuts), (*cuts, len(PAYLOADS)), strict=True):
        rows = records(start, stop)
        last = rows[-1]
        is_inside = last.sub_sequence_number == 0
        position = SequenceNumber(last.sequence_number, 0 if is_inside else -1)
        await sink.write(RecordBatch(SHARD, rows, read_position=position, raw_count=len(rows), raw_bytes=len(rows)))
        await job.checkpoint({"version": 2, "generation": 1, "shards": {}})
    if is_ended:
        sink.shard_ended(SHARD, [])
        await job.checkpoint({"version": 2, "generation": 1, "shards": {}})
    await sink.close()


class ArchivedContract(PublisherContract):
    __test__ = False
    kind = JsonlSink
    more: ClassVar = {}

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        self.folder = tmp_path

    @asynccontextmanager
    async def open_case(self):
        await write_archive(self.folder / "archive", self.kind, (5, 7, 14), **self.more)
        factory = ArchiveFactory(
            rp.Properties({"flink.archive.uri": str(self.folder / "archive"), "flink.archive.live": "NONE"})
        )
        try:
            yield PublisherCase(factory, replace(SHARD, closed=True, is_unlisted=True), PAYLOADS)
        finally:
            await factory.close()


class TestJsonLines(ArchivedContract):
    __test__ = True


class TestParquet(ArchivedContract):
    __test__ = True
    kind = ParquetSink


class TestSortedParquet(ArchivedContract):
    """Each row group is sorted by another column."""

    __test__ = True
    kind = ParquetSink
    more: ClassVar = {"flink.sink.parquet.sort": "data"}


class TestPartitionedParquet(ArchivedContract):
    """The rows of a range are in several files."""

    __test__ = True
    kind = ParquetSink
    more: ClassVar = {"flink.sink.partitions": "hour={eventTime:%H}"}
