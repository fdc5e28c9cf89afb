"""The emitter beside readers that leave little of the loop to others."""

import asyncio

from recordpublisher.fetcher.bounded import Bounds

from scripted import RecordingSink, ScriptedPublisher, ScriptedSource, a_fetcher
from virtual_time import run_virtual


class BusyPublisher(ScriptedPublisher):
    """Never waits for the source, and keeps the loop for 10 ms at each read."""

    def _batch(self, *read):
        asyncio.get_running_loop().suspend(0.01)
        return super()._batch(*read)


class BusySource(ScriptedSource):
    async def create(self, shard, starting_position, metrics):
        return BusyPublisher(self, self.shards[shard.key], starting_position)


class Watching(RecordingSink):
    """Notes how much is queued at each write."""

    most_queued = 0

    async def write(self, batch):
        await super().write(batch)
        shards = self.fetcher.metrics()["shards"].values()
        self.most_queued = max(self.most_queued, sum(shard["queuedRecords"] for shard in shards))


def test_f1_busy_readers_do_not_fill_the_queues_before_a_sink_that_never_waits():
    source, sink = BusySource(per_read=10, latency=0), Watching()
    for name in "abcd":
        source.add(name, *range(1000))

    async def read():
        sink.fetcher = a_fetcher(source, sink)
        await sink.fetcher.open()
        await sink.fetcher.run_bounded(Bounds(max_records=4000))
        await sink.fetcher.close()

    run_virtual(read())

    assert len(sink.rows) == 4000
    assert sink.most_queued <= 4 * 2 * 10  # a read or two of each shard
