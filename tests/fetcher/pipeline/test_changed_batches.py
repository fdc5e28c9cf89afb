"""A batch that code of a plugin changes after it was given moves no position past records that were not written."""

import pytest

import recordpublisher as rp

from fakes.memory_streams import PROPERTIES, install
from fakes.queues.fake_queue import FakeQueue, queue_job


class ChangingSink(rp.Sink):
    """Changes each batch with a function, and keeps the values that were left."""

    def __init__(self, change):
        self.change, self.values = change, []

    async def write(self, batch):
        self.change(batch)
        self.values += batch.values


async def run(monkeypatch, sink, **arguments):
    install(monkeypatch, {"a": [b"%d" % number for number in range(40)]})
    async with rp.DataFetcher("orders", PROPERTIES, sink=sink, **arguments) as fetcher:
        await fetcher.run_bounded(stop_at_tip=True, max_time=30)


@pytest.mark.parametrize("column", ["values", "event_times", "watermarks"])
@pytest.mark.parametrize("change", ["clear", "pop"])
async def test_a_sink_that_shortens_a_column_ends_the_job(monkeypatch, column, change):
    sink = ChangingSink(lambda batch: getattr(getattr(batch, column), change)())
    with pytest.raises(
        rp.PluginError, match=r"`ChangingSink.write` has changed its batch of [0-9]+ records of orders/a"
    ):
        await run(monkeypatch, sink, deserializer="json")


async def test_a_sink_cannot_clear_the_records_of_a_plugin(monkeypatch):
    batch = rp.RecordBatch(rp.Shard("orders", "a"), [rp.UserRecord(b"1", "1")])
    with pytest.raises(AttributeError):
        batch.records.clear()


async def test_a_sink_of_a_queue_that_clears_a_column_ends_the_job():
    sink = ChangingSink(lambda batch: batch.data.clear())
    queue = FakeQueue()
    queue.put(1, 2)
    job = queue_job(queue, sink)
    await job.open()
    with pytest.raises(rp.PluginError, match=r"`ChangingSink.write` has changed its batch of 2 records"):
        await job.run()
    await job.close()
    assert not queue.acknowledged


class ReusedList:
    """A deserializer that fills one list again for each batch."""

    def __init__(self):
        self.list = []

    def values(self, batch):
        self.list.clear()
        self.list += [int(data) for data in batch.data]
        return self.list


async def test_a_deserializer_may_fill_its_list_again_while_a_batch_waits(monkeypatch):
    held, sink = [], ChangingSink(lambda batch: None)
    sink.change = held.append
    await run(monkeypatch, sink, deserializer=ReusedList(), shard_getrecords_maxrecordcount=10)
    assert len(held) > 1
    assert [value for batch in held for value in batch.values] == [*range(40)]


async def test_a_deserializer_that_shortens_a_column_is_named_and_not_the_sink(monkeypatch):
    class Clears:
        def values(self, batch):
            values = [int(data) for data in batch.data]
            batch.data.clear()
            return values

    with pytest.raises(rp.PluginError, match=r"`Clears\.values` has changed its batch"):
        await run(monkeypatch, rp.MemorySink(), deserializer=Clears())


class ChangesState(rp.Sink):
    """Removes the shards from the state of each checkpoint."""

    async def write(self, batch):
        pass

    async def flush(self, checkpoint=None):
        checkpoint.state["shards"].clear()
        del checkpoint.state["version"]


async def test_a_sink_that_changes_the_state_of_a_checkpoint_loses_no_position(monkeypatch):
    install(monkeypatch, {"a": [b"%d" % number for number in range(40)]})
    async with rp.DataFetcher("orders", PROPERTIES, sink=ChangesState()) as fetcher:
        await fetcher.run_bounded(stop_at_tip=True, max_time=30)
        snapshot = await fetcher.checkpoint()
    assert list(snapshot["shards"]) == ["orders/a"]


async def test_a_publisher_may_fill_its_list_again_after_it_gave_a_batch():
    records = [rp.UserRecord(b"1", "1")]
    batch = rp.RecordBatch(rp.Shard("orders", "a"), records)
    records.clear()
    assert list(batch.data) == [b"1"]
