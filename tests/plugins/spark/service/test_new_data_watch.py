"""The watch of quiet shards: a record, a shard end or an error ends it; an empty response does not."""

from __future__ import annotations

import asyncio
import threading

import pytest

from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.spark.process.python_worker import worker_loop
from recordpublisher.plugins.spark.service.new_data_watch import NewDataWatch, watch_properties
from recordpublisher.publishers.base import RecordPublisher, RecordPublisherFactory, RunResult
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import StreamNotFoundError
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.properties.groups.polling import GETRECORDS_INTERVAL, GETRECORDS_MAX
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard


class Factory(RecordPublisherFactory):
    """Publishers with a given outcome for their shard, forever empty by default."""

    def __init__(self, **outcome: object) -> None:
        self.outcome = outcome
        self.started: list[StartingPosition] = []
        self.cancelled = threading.Event()

    async def create(self, shard, starting_position, metrics):
        self.started.append(starting_position)
        return Publisher(shard, self)


class Publisher(RecordPublisher):
    def __init__(self, shard: Shard, factory: Factory) -> None:
        self.shard, self.factory = shard, factory

    async def run(self, consumer):
        outcome = self.factory.outcome.get(self.shard.shard_id)
        await consumer(RecordBatch(self.shard, [], 0))
        if isinstance(outcome, Exception):
            raise outcome
        if isinstance(outcome, RunResult):
            return outcome
        try:
            if outcome is not None:
                await consumer(RecordBatch(self.shard, [outcome], 0))
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            self.factory.cancelled.set()
            raise
        return RunResult.INCOMPLETE


def watched(factory: Factory, *names: str) -> NewDataWatch:
    state = ShardState(StartingPosition.trim_horizon(), SequenceNumber("7"))
    factory.tips = {}
    watch = NewDataWatch(factory, worker_loop(), SystemClock(), factory.tips)
    watch.begin({Shard("s", name): state for name in names})
    return watch


@pytest.mark.parametrize(
    "outcome", [UserRecord(b"x", "8"), RunResult.COMPLETE, StreamNotFoundError("s"), ValueError("a bug")], ids=repr
)
def test_a_record_an_end_and_any_error_end_the_watch(outcome):
    watch = watched(Factory(b=outcome), "a", "b")
    assert watch.found.wait(60)
    watch.stop()


def test_empty_responses_do_not_end_it_and_a_stopped_watch_reads_no_more():
    factory = Factory()
    watch = watched(factory, "a")
    assert not watch.found.wait(0.2)
    watch.stop()
    assert factory.cancelled.wait(60)
    assert factory.tips.keys() == {"s/a"}
    assert not watch.found.is_set()
    assert factory.started == [StartingPosition.after(SequenceNumber("7"))]


def test_the_first_look_is_over_when_every_shard_has_responded():
    watch = watched(Factory(), "a", "b")
    assert watch.finds_nothing(60)
    watch.stop()


def test_the_first_look_ends_early_at_a_record_and_does_not_count_without_every_response():
    watch = watched(Factory(a=UserRecord(b"x", "8")), *(f"s{n}" for n in range(5000)), "a")
    assert not watch.finds_nothing(0.05)  # 5,001 shards take 50 s
    watch.stop()
    watch = watched(Factory(a=UserRecord(b"x", "8")), "a", *(f"s{n}" for n in range(5000)))
    assert not watch.finds_nothing(60)
    watch.stop()


@pytest.mark.parametrize(("shards", "interval"), [(1, 1000), (100, 1000), (1800, 18_000), (100_000, 240_000)])
def test_the_watch_makes_at_most_a_hundred_calls_a_second_of_one_record_each(shards, interval):
    properties = watch_properties(Properties({}), shards, 1000)
    assert properties.value(GETRECORDS_INTERVAL) == interval
    assert properties.value(GETRECORDS_MAX) == 1
