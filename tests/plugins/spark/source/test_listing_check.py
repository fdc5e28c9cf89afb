"""The driver takes no listing that lacks a shard which the service still has, against the endpoint."""

from __future__ import annotations

from recordpublisher.local import serve_in_thread
from recordpublisher.plugins.spark.batch_read import shard_ranges
from recordpublisher.plugins.spark.options.spark_options import SparkOptions
from recordpublisher.plugins.spark.read_range import ReadRange
from recordpublisher.plugins.spark.source.kinesis_service import KinesisService
from recordpublisher.plugins.spark.source.query_start import initial_offset
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.kinesis.client import KinesisClient


def test_the_driver_keeps_its_listing_until_one_is_complete(monkeypatch, tmp_path):
    lacking: set[str] = set()
    real = KinesisClient.list_shards

    async def list_shards(self, stream):
        return [shard for shard in await real(self, stream) if shard.shard_id not in lacking]

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


def test_s2_a_new_read_waits_for_a_parent_that_the_first_listing_lacks(monkeypatch, tmp_path):
    lacking: list[set[str]] = []
    real = KinesisClient.list_shards

    async def list_shards(self, stream):
        absent = lacking.pop(0) if lacking else set()
        return [shard for shard in await real(self, stream) if shard.shard_id not in absent]

    monkeypatch.setattr(KinesisClient, "list_shards", list_shards)
    monkeypatch.setattr("recordpublisher.fetcher.checkpoints.shard_starts.PAUSE_SECONDS", 0.01)
    with serve_in_thread(streams={"s": 1}) as endpoint:
        given = {**endpoint.properties(), "stream": "s", "metadataLocation": str(tmp_path)}
        given["flink.stream.initpos"] = "TRIM_HORIZON"
        options = SparkOptions.parse(given)
        service = KinesisService(options)
        (parent,) = (shard.shard_id for shard in service.list_shards("s"))
        children = endpoint.stream("s").split(parent)
        lacking.append({parent})
        query = initial_offset(options, service, SystemClock(), SystemClock().now_ms())
        lacking[:] = [{parent}]
        positions = ReadRange.parse(options.properties, options.streams, SystemClock().now_ms())
        parts, _ = shard_ranges(options.streams, positions, service, accepts_loss=False)
        expected = {parent, *children}
        assert {entry.shard.shard_id for entry in query.shards.values()} == expected
        assert {part.shard.shard_id for part in parts} == expected
