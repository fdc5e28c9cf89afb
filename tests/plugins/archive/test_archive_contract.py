"""The contract of publishers for ARCHIVE: a shard that has ended in the archive, one that ends live, and files of both formats."""

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import ClassVar

import pytest

import recordpublisher as rp
from recordpublisher.plugins.archive.factory import ArchiveFactory
from recordpublisher.plugins.sinks.files.jsonl_sink import JsonlSink
from recordpublisher.plugins.sinks.files.parquet_sink import ParquetSink
from recordpublisher.testing import PublisherCase, PublisherContract

from fakes.archives import PAYLOADS, SHARD, write_archive


class ArchivedContract(PublisherContract):
    deadline = 60.0  # a shared machine may be slow

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
