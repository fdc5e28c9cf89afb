"""Decoded rows of all shards share one buffer: what is beyond is decoded again, and no shard waits for another one."""

import asyncio

import recordpublisher as rp
from recordpublisher.plugins.archive.factory import ArchiveFactory
from recordpublisher.plugins.sinks.files.parquet_sink import ParquetSink
from recordpublisher.publishers.base import RunResult
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shard_metrics import ShardMetrics

from fakes.archives import PAYLOADS, SHARD, write_archive


async def test_a_hundred_readers_that_take_turns_need_the_memory_of_one_row_group(tmp_path):
    await write_archive(tmp_path, ParquetSink, (12,))
    given = {"flink.archive.uri": str(tmp_path), "flink.archive.live": "NONE"}
    factory = ArchiveFactory(rp.Properties(given))
    buffer, most = factory._archive.buffer, []
    buffer.limit = 1

    async def read():
        seen = []

        async def consumer(batch):
            most.append(buffer.bytes)
            seen.extend(batch.data)
            await asyncio.sleep(0)
            return batch.read_position

        publisher = await factory.create(SHARD, StartingPosition.trim_horizon(), ShardMetrics())
        publisher.set_read_budget(2_000)
        assert await publisher.run(consumer) is RunResult.COMPLETE
        return seen

    assert await asyncio.gather(*(read() for _ in range(100))) == [PAYLOADS] * 100
    group = 12 * 250 + sum(map(len, PAYLOADS[12:]))
    assert 0 < max(most) <= group
    assert buffer.bytes == 0
    await factory.close()


async def test_no_more_records_are_given_than_the_job_has_room_for(tmp_path):
    await write_archive(tmp_path, ParquetSink, ())
    factory = ArchiveFactory(rp.Properties({"flink.archive.uri": str(tmp_path), "flink.archive.live": "NONE"}))
    publisher = await factory.create(SHARD, StartingPosition.trim_horizon(), ShardMetrics())
    sizes = []

    async def consumer(batch):
        sizes.append(len(batch))
        publisher.set_read_budget(1_000 if len(sizes) == 1 else 1)
        return batch.read_position

    publisher.set_read_budget(4_000)
    await publisher.run(consumer)
    assert sizes[:3] == [11, 2, 1]
    await factory.close()
