"""An archive in S3 (moto's server): the same contract, one listing for the plan, and one GET for each file."""

import secrets
from contextlib import asynccontextmanager
from dataclasses import replace

import boto3
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog

import recordpublisher as rp
from recordpublisher.plugins.archive.factory import ArchiveFactory
from recordpublisher.plugins.sinks.files.jsonl_sink import JsonlSink
from recordpublisher.plugins.sinks.files.parquet_sink import ParquetSink
from recordpublisher.plugins.sinks.tables.delta import DeltaSink
from recordpublisher.plugins.sinks.tables.iceberg import IcebergSink
from recordpublisher.plugins.stores.folder_store import FolderStore
from recordpublisher.testing import PublisherCase, PublisherContract

from fakes.archives import PAYLOADS, SHARD, write_archive, write_table_archive
from servers.moto_server import KEYS, serve_moto


@pytest.fixture(scope="module")
def moto():
    with serve_moto() as url:
        yield url


@pytest.fixture(params=[JsonlSink, pytest.param(ParquetSink, marks=pytest.mark.slow)])
def kind(request):
    return request.param


class TestContract(PublisherContract):
    deadline = 60.0  # a shared machine may be slow

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
    with pytest.raises(rp.DataLossError, match=f"up to 106 are in no file of s3://bucket/{place}"):
        await read({**given, "flink.archive.uri": f"s3://bucket/{place}"})


async def read(given):
    factory = ArchiveFactory(rp.Properties({**given, "flink.archive.live": "NONE"}))
    publisher = await factory.create(SHARD, rp.StartingPosition.trim_horizon(), rp.ShardMetrics())
    seen = []

    async def consumer(batch):
        seen.extend(batch.data)
        return batch.read_position

    try:
        await publisher.run(consumer)
    finally:
        await factory.close()
    return seen


class DeltaOnS3:
    def __init__(self, url, folder):
        self.uri = f"s3://bucket/{folder.name}"
        self.given = {**KEYS, "flink.state.endpoint": url, "aws.region": "us-east-1"}
        self.archive = {**self.given, "flink.archive.uri": f"delta:{self.uri}"}
        options = {"AWS_ENDPOINT_URL": url, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}
        self.options = options | {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "s3cr3t"}

    def sink(self, **more):
        return DeltaSink(rp.Properties({**self.given, "flink.sink.delta.uri": self.uri, **more}))

    def entries(self):
        return None

    def compact(self):
        DeltaTable(self.uri, storage_options=self.options).optimize.compact()


class IcebergOnS3:
    def __init__(self, url, folder):
        catalog = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"s3://bucket/{folder.name}", "type": "sql"}
        self.given = {f"flink.sink.iceberg.catalog.{name}": value for name, value in catalog.items()}
        self.given |= {**KEYS, "flink.state.endpoint": url, "aws.region": "us-east-1"}
        self.archive = {**self.given, "flink.archive.uri": "iceberg:lake.orders"}
        keys = {"s3.access-key-id": "a", "s3.secret-access-key": "s3cr3t", "s3.region": "us-east-1"}
        self.folder, self.catalog = folder, catalog | {"s3.endpoint": url} | keys

    def sink(self, **more):
        given = {"flink.sink.iceberg.table": "lake.orders", "flink.state.uri": str(self.folder / "state")}
        return IcebergSink(rp.Properties({**self.given, **given, **more}))

    def entries(self):
        return FolderStore(self.folder / "state", None)

    def compact(self):
        table = load_catalog("default", **self.catalog).load_table("lake.orders")
        table.overwrite(table.scan().to_arrow())


@pytest.mark.parametrize("kind", [DeltaOnS3, IcebergOnS3])
async def test_a_table_in_a_bucket_is_read_back_before_and_after_it_is_compacted(moto, tmp_path, kind):
    table = kind(moto, tmp_path)
    await write_table_archive(table, (5, 7), is_ended=False, stop=14)
    assert await read(table.archive) == PAYLOADS[:14]
    table.compact()
    await write_table_archive(table, (20,), start=14)
    assert await read(table.archive) == PAYLOADS
