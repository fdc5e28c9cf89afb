"""An archive in S3 (moto's server): the same contract, one listing for the plan, and one GET for each file."""

import secrets
from contextlib import asynccontextmanager
from dataclasses import replace

import boto3
import pytest

import recordpublisher as rp
from recordpublisher.plugins.archive.factory import ArchiveFactory
from recordpublisher.plugins.sinks.files.jsonl import JsonlSink
from recordpublisher.plugins.sinks.files.parquet import ParquetSink
from recordpublisher.testing import PublisherCase, PublisherContract

from fakes.archives import PAYLOADS, SHARD, write_archive
from servers.moto_server import KEYS, serve_moto


@pytest.fixture(scope="module")
def moto():
    with serve_moto() as url:
        yield url


@pytest.fixture(params=[JsonlSink, ParquetSink])
def kind(request):
    return request.param


class TestContract(PublisherContract):
    @pytest.fixture(autouse=True)
    def _place(self, moto, kind):
        self.url, self.kind = moto, kind

    @asynccontextmanager
    async def open_case(self):
        place = f"s3://bucket/archive-{secrets.token_hex(4)}"
        given = {**KEYS, "flink.state.endpoint": self.url, "aws.region": "us-east-1"}
        name = self.kind.__name__.removesuffix("Sink").lower()
        sink = self.kind(rp.Properties({**given, f"flink.sink.{name}.path": place, "flink.sink.archive": "true"}))
        await write_archive(place, self.kind, (5, 8, 14), sink=sink)
        factory = ArchiveFactory(rp.Properties({**given, "flink.archive.uri": place, "flink.archive.live": "NONE"}))
        try:
            yield PublisherCase(factory, replace(SHARD, closed=True, is_unlisted=True), PAYLOADS)
        finally:
            await factory.close()


async def test_a_file_that_was_deleted_is_missing(moto, kind):
    place, name = f"archive-{secrets.token_hex(4)}", kind.__name__.removesuffix("Sink").lower()
    given = {**KEYS, "flink.state.endpoint": moto, "aws.region": "us-east-1"}
    path = {f"flink.sink.{name}.path": f"s3://bucket/{place}", "flink.sink.archive": "true"}
    await write_archive(place, kind, (5, 8, 14), sink=kind(rp.Properties({**given, **path})))
    client = boto3.client(
        "s3", endpoint_url=moto, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="s"
    )
    client.delete_object(Bucket="bucket", Key=f"{place}/orders/shardId-0/104.-1_106.-1.{name}")
    client.close()
    reading = {**given, "flink.archive.uri": f"s3://bucket/{place}", "flink.archive.live": "NONE"}
    factory = ArchiveFactory(rp.Properties(reading))
    publisher = await factory.create(SHARD, rp.StartingPosition.trim_horizon(), rp.ShardMetrics())

    async def consumer(batch):
        return batch.read_position

    with pytest.raises(rp.DataLossError, match=f"up to 106 are in no file of s3://bucket/{place}"):
        await publisher.run(consumer)
    await factory.close()
