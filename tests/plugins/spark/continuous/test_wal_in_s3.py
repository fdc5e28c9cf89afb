"""A write-ahead log in S3, simulated by moto."""

import pytest

from recordpublisher import Properties
from recordpublisher.plugins.stores.by_location import write_once_store_of
from recordpublisher.publishers.errors import FencedError
from recordpublisher.publishers.shards import Shard

from fakes.spark.continuous import Query, opened
from servers.moto_server import KEYS, serve_moto

SHARDS = [Shard("s", "a"), Shard("s", "b")]


async def test_every_record_once_through_two_starts_a_zombie_and_a_restart_of_the_query():
    with serve_moto() as endpoint:
        properties = Properties({"aws.region": "us-east-1", "flink.state.endpoint": endpoint, **KEYS})
        store = write_once_store_of("s3://bucket/wal", "metadataLocation", properties)
        query = Query(store)
        await query.start()
        zombie = await opened(store, SHARDS)
        await zombie.read_all(5)
        await query.run_all()
        fetcher = await opened(store, SHARDS)
        await fetcher.read_all(9)
        with pytest.raises(FencedError):
            await zombie.read_all(7)
        await query.start()
        await query.run_all()
        await store.close()
    assert [query.rows(shard.shard_id) for shard in SHARDS] == [list(range(9))] * 2
