"""The watch of quiet shards: a record, a shard end or an error ends it; an empty response does not."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.spark.python_worker import worker_loop
from recordpublisher.plugins.spark.source.new_data_watch import (
    LookResult,
    NewDataWatch,
    seconds_between_shards,
    watch_properties,
)
from recordpublisher.publishers.base import RecordPublisher, RecordPublisherFactory, RunResult
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import StreamNotFoundError
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.properties.polling_properties import GETRECORDS_INTERVAL, GETRECORDS_MAX
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard


class Factory(RecordPublisherFactory):
    """Publishers with a given outcome for their shard, forever empty by default."""

    def __init__(self, **outcome: object) -> None:
        self.outcome = outcome
        self.reads: list[str] = []
        self.behind_ms = [0]
        self.answer = threading.Event()
        self.answer.set()
        self.started: list[StartingPosition] = []
        self.cancelled = threading.Event()

    async def create(self, shard, starting_position, metrics):
        self.started.append(starting_position)
        return Publisher(shard, self)


class Publisher(RecordPublisher):
    """A shard whose first read has the outcome of the factory, if there is one; other reads are empty."""

    def __init__(self, shard: Shard, factory: Factory) -> None:
        self.shard, self.factory = shard, factory

    async def run(self, consumer):
        factory = self.factory
        outcome = factory.outcome.get(self.shard.shard_id)
        try:
            while True:
                factory.reads.append(self.shard.shard_id)
                behind_ms = factory.behind_ms.pop(0) if len(factory.behind_ms) > 1 else factory.behind_ms[0]
                await asyncio.sleep(0)  # a call, in which the watch may end
                await asyncio.to_thread(factory.answer.wait)
                if isinstance(outcome, Exception):
                    raise outcome
                if isinstance(outcome, RunResult):
                    return outcome
                records = [outcome] if isinstance(outcome, UserRecord) else []
                children = outcome if isinstance(outcome, tuple) else ()
                await consumer(RecordBatch(self.shard, records, behind_ms, child_shards=children))
        except asyncio.CancelledError:
            factory.cancelled.set()
            raise


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
    assert watch.look(60) is LookResult.FOUND
    assert watch.found.is_set()
    watch.stop()


def test_a_response_that_names_children_ends_the_watch_in_the_same_look():
    """They may have records that were put before the look."""
    watch = watched(Factory(b=(Shard("s", "child", ("b",)),)), "a", "b")
    assert watch.look(60) is LookResult.FOUND
    watch.stop()


def test_empty_responses_do_not_end_it_and_a_stopped_watch_reads_no_more():
    factory = Factory()
    watch = watched(factory, "a")
    assert watch.look(60) is LookResult.NOTHING
    watch.stop()
    assert factory.cancelled.wait(60)
    assert factory.tips.keys() == {"s/a"}
    assert not watch.found.is_set()
    assert factory.started == [StartingPosition.after(SequenceNumber("7"))]


def test_each_look_reads_each_shard_once():
    factory = Factory()
    watch = watched(factory, "a", "b")
    for looks in range(1, 4):
        assert watch.look(60) is LookResult.NOTHING
        assert sorted(factory.reads) == sorted(["a", "b"] * looks)
    watch.stop()


def test_an_empty_response_before_the_tip_is_followed_by_another_read_in_the_same_look():
    factory = Factory()
    factory.behind_ms = [9000, 5, 0]
    watch = watched(factory, "a")
    assert watch.look(60) is LookResult.NOTHING
    assert factory.reads == ["a"] * 3
    watch.stop()


def test_a_read_that_began_before_a_look_does_not_count_for_it():
    """It may have been answered before the record that the look is about was put."""
    factory = Factory()
    watch = watched(factory, "a")
    factory.answer.clear()
    assert watch.look(0.05) is LookResult.LATE
    threading.Timer(0.05, factory.answer.set).start()
    assert watch.look(60) is LookResult.NOTHING
    assert factory.reads == ["a", "a"]
    watch.stop()


@pytest.mark.parametrize(
    ("shards", "seconds", "pause", "between"),
    [(8, 4, 1, 1 / 8), (1, 4, 1, 1), (8, 4, 60, 3 / 8), (8, 4, 0, 0.01), (400, 4, 1, 0.01), (8, 0.5, 1, 0.01)],
)
def test_shards_take_turns_during_a_pause_as_far_as_the_time_of_the_call_allows(shards, seconds, pause, between):
    assert seconds_between_shards(shards, seconds, pause) == between


def test_a_look_takes_its_pause_unless_the_call_would_end_before():
    factory = Factory()
    watch = watched(factory, "a")
    assert watch.look(60) is LookResult.NOTHING
    before = time.monotonic()
    assert watch.look(60, pause=0.2) is LookResult.NOTHING
    assert time.monotonic() - before >= 0.2
    assert watch.look(0.05, pause=3600) is not LookResult.FOUND  # and does not wait an hour
    watch.stop()


def test_a_look_at_many_shards_ends_early_at_a_record_and_is_late_without_every_response():
    watch = watched(Factory(a=UserRecord(b"x", "8")), *(f"s{n}" for n in range(5000)), "a")
    assert watch.look(0.05) is LookResult.PARTIAL  # 5,001 shards take 50 s
    watch.stop()
    watch = watched(Factory(a=UserRecord(b"x", "8")), "a", *(f"s{n}" for n in range(5000)))
    assert watch.look(60) is LookResult.FOUND
    watch.stop()


@pytest.mark.parametrize(("probe_ms", "interval"), [(0, 0), (100, 100), (60_000, 200)])
def test_the_watch_reads_one_record_at_a_time_and_a_shard_at_most_five_times_a_second(probe_ms, interval):
    properties = watch_properties(Properties({}), probe_ms)
    assert properties.value(GETRECORDS_INTERVAL) == interval
    assert properties.value(GETRECORDS_MAX) == 1
