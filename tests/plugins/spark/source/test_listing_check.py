"""The driver takes no listing that lacks a shard which the service still has, against the endpoint."""

from __future__ import annotations

from recordpublisher.local import serve_in_thread
from recordpublisher.plugins.spark.options.spark_options import SparkOptions
from recordpublisher.plugins.spark.source.kinesis_service import KinesisService
from recordpublisher.publishers.kinesis.client import KinesisClient


def test_the_driver_keeps_its_listing_until_one_is_complete(monkeypatch, tmp_path):
    lacking: set[str] = set()
    real = KinesisClient.list_shards

    async def list_shards(self, stream, after=None):
        return [shard for shard in await real(self, stream, after) if shard.shard_id not in lacking]

    monkeypatch.setattr(KinesisClient, "list_shards", list_shards)
    with serve_in_thread(streams={"s": 1}) as endpoint:
        stream = endpoint.stream("s")
        given = {**endpoint.properties(), "stream": "s", "metadataLocation": str(tmp_path)}
        service = KinesisService(SparkOptions.parse(given))

        def found():
            service.list_shards("s")
            return {shard.shard_id for shard in service.discovered_shards(())}

        (parent,) = found()
        children = stream.split(parent)
        lacking.update(children)  # before there are grandchildren: the driver lists in the background, too
        grandchildren = {shard for child in children for shard in stream.split(child)}
        assert not found() & grandchildren
        lacking.clear()
        assert found() == {parent, *children, *grandchildren}
