"""Bounded reads of given shards, as a Spark task makes them, with one shared publisher factory."""

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.pipeline.bounded_runs import Bounds, EndReason
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.runtime.bounded_reader import BoundedReader
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition

from fakes.memory_streams import PROPERTIES, MemoryFactory, install

START = ShardState(StartingPosition.trim_horizon())
PARENT, CHILD = rp.Shard("orders", "a"), rp.Shard("orders", "b", ("a",))


@pytest.fixture(autouse=True)
def _orders(monkeypatch):
    install(monkeypatch, {"a": [b"%d" % number for number in range(10)], "b": [b"x"]})


@pytest.fixture
async def reader():
    made = BoundedReader(rp.Properties({**PROPERTIES, "flink.watermark.lookahead.millis": 0}))
    yield made
    await made.close()


async def test_exactly_the_given_shards_are_read(reader):
    sink = rp.MemorySink()
    result = await reader.read({PARENT: START}, sink, Bounds(stop_at_tip=True))

    assert result.reason is EndReason.TIP
    assert {record.shard_id for record in sink.records} == {"a"}
    assert result.shards["orders/a"].records == 10


async def test_a_child_is_read_without_its_parent(reader):
    sink = rp.MemorySink()
    await reader.read({CHILD: START}, sink, Bounds(stop_at_tip=True))

    assert [record.data for record in sink.records] == [b"x"]


async def test_a_read_continues_where_the_last_one_ended(reader):
    first, second = rp.MemorySink(), rp.MemorySink()
    done = await reader.read({PARENT: START}, first, Bounds(shard_limits={"orders/a": 4}))
    state = done.shards["orders/a"].state
    await reader.read({PARENT: state}, second, Bounds(stop_at_tip=True))

    assert state.position == SequenceNumber("3")
    assert [record.data for record in first.records + second.records] == [b"%d" % number for number in range(10)]


async def test_records_that_could_not_be_used_are_counted_for_each_read():
    given = {"flink.deserializer.schema": "n BIGINT", "flink.deserializer.error": "SKIP"}  # The records are numbers.
    made = BoundedReader(rp.Properties({**PROPERTIES, **given, "flink.deserializer": "json"}))
    for _ in range(2):
        result = await made.read({PARENT: START}, rp.MemorySink(), Bounds(stop_at_tip=True))
        assert (result.shards["orders/a"].records, result.shards["orders/a"].seen.skipped) == (0, 10)
    await made.close()


async def test_the_factory_is_open_until_the_reader_is_closed(reader, monkeypatch):
    closes = []

    async def close(self):
        closes.append(self)

    monkeypatch.setattr(MemoryFactory, "close", close)
    for _ in range(2):
        await reader.read({PARENT: START}, rp.MemorySink(), Bounds(stop_at_tip=True))
    assert closes == []
    await reader.close()

    assert len(closes) == 1


async def test_the_publisher_can_be_chosen():
    with pytest.raises(rp.ConfigurationError, match="no-such"):
        BoundedReader(rp.Properties(PROPERTIES), "no-such")


async def test_a_read_of_no_records_moves_no_position(reader):
    sink = rp.MemorySink()
    result = await reader.read({PARENT: START}, sink, Bounds(max_records=0))

    assert (sink.records, result.records) == ([], 0)
    assert result.shards["orders/a"].state == START
    assert not result.shards["orders/a"].seen.at_tip
