"""The contract of publishers for ARCHIVE: a shard that has ended in the archive, files of both formats, and a live stream that grows."""

from contextlib import asynccontextmanager
from dataclasses import replace
from typing import ClassVar

import pytest

import recordpublisher as rp
from recordpublisher.local import LocalKinesis
from recordpublisher.plugins.archive.factory import ArchiveFactory
from recordpublisher.plugins.sinks.files.jsonl_sink import JsonlSink
from recordpublisher.plugins.sinks.files.parquet_sink import ParquetSink
from recordpublisher.publishers.kinesis import KinesisClient
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


class TestBesideALiveStream(ArchivedContract):
    """The stream has only a shard that was never archived."""

    __test__ = True

    @asynccontextmanager
    async def open_case(self):
        await write_archive(self.folder / "archive", self.kind, (5, 7, 14))
        async with LocalKinesis(streams={"orders": 1}) as endpoint:
            properties = rp.Properties(
                endpoint.properties(), archive_uri=str(self.folder / "archive"), archive_live="POLLING"
            )
            async with KinesisClient(properties) as client:
                (shard,) = await client.list_shards("orders")

            def put(payload: bytes) -> None:
                endpoint.stream("orders").put(payload, "key")

            ended = replace(SHARD, closed=True, is_unlisted=True)
            factory = ArchiveFactory(properties)
            try:
                yield PublisherCase(factory, ended, PAYLOADS, open_shard=shard, put=put)
            finally:
                await factory.close()

    def is_of_source(self, task):
        name = task.get_coro().__qualname__  # the endpoint's: one for each connection, open or being opened
        return name in ("RequestHandler.start", "BaseSelectorEventLoop._accept_connection2")
