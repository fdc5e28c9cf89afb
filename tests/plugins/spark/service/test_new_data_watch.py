"""The watch behind quiet shards: a record, an end and an error are news, an empty answer is none."""

from __future__ import annotations

import asyncio
import threading

import pytest

from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.spark.python_worker import worker_loop
from recordpublisher.plugins.spark.service.new_data_watch import NewDataWatch, watch_properties
from recordpublisher.publishers.base import RecordPublisher, RecordPublisherFactory, RunResult
from recordpublisher.publishers.errors import StreamNotFoundError
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.properties import table
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard


class Factory(RecordPublisherFactory):
    """Publishers that do what is told for their shard, forever empty by default."""

    def __init__(self, **told: object) -> None:
        self.told = told
        self.started: list[StartingPosition] = []
        self.cancelled = threading.Event()

    async def create(self, shard, starting_position, metrics):
        self.started.append(starting_position)
        return Publisher(shard, self)


class Publisher(RecordPublisher):
    def __init__(self, shard: Shard, factory: Factory) -> None:
        self.shard, self.factory = shard, factory

    async def run(self, consumer):
        told = self.factory.told.get(self.shard.shard_id)
        await consumer(RecordBatch(self.shard, [], 0))
        if isinstance(told, Exception):
            raise told
        if isinstance(told, RunResult):
            return told
        try:
            if told is not None:
                await consumer(RecordBatch(self.shard, [told], 0))
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            self.factory.cancelled.set()
            raise
        return RunResult.INCOMPLETE


def watched(factory: Factory, *names: str) -> NewDataWatch:
    state = ShardState(StartingPosition.trim_horizon(), SequenceNumber("7"))
    watch = NewDataWatch(factory, worker_loop())
    watch.begin({Shard("s", name): state for name in names})
    return watch


@pytest.mark.parametrize(
    "told", [UserRecord(b"x", "8"), RunResult.COMPLETE, StreamNotFoundError("s"), ValueError("a bug")], ids=repr
)
def test_a_record_an_end_and_any_error_are_news(told):
    watch = watched(Factory(b=told), "a", "b")
    assert watch.news.wait(60)
    watch.stop()


def test_empty_answers_are_no_news_and_a_stopped_watch_reads_no_more():
    factory = Factory()
    watch = watched(factory, "a")
    assert not watch.news.wait(0.2)
    watch.stop()
    assert factory.cancelled.wait(60)
    assert not watch.news.is_set()
    assert factory.started == [StartingPosition.after(SequenceNumber("7"))]


@pytest.mark.parametrize(("shards", "interval"), [(1, 1000), (100, 1000), (1800, 18_000), (100_000, 240_000)])
def test_a_hundred_calls_a_second_at_most_and_one_record_each(shards, interval):
    properties = watch_properties(Properties({}), shards, 1000)
    assert properties.value(table.GETRECORDS_INTERVAL) == interval
    assert properties.value(table.GETRECORDS_MAX) == 1
