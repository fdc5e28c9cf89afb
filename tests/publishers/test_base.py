"""RecordPublisher: a plugin's `run` is not replaced; observers are attached to the consumer."""

import asyncio

import pytest
from reactivex import Observer

from recordpublisher.publishers.base import RecordPublisher, RunResult
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.shards import Shard

BATCHES = [RecordBatch(Shard("orders", "a"), []) for _ in range(3)]


async def _run(self, consumer):
    for batch in BATCHES:
        await consumer(batch)
    return self.result


class Author(RecordPublisher):
    """A plugin's publisher whose `__init__` does not call ours."""

    run = _run

    def __init__(self, result=RunResult.COMPLETE):
        self.result = result


async def ignore(batch):
    return None


def observed(publisher, seen):
    return publisher.subscribe(Observer(seen.append, seen.append, lambda: seen.append("end")))


def test_a_subclass_keeps_its_own_run():
    assert Author.run is _run


def test_observers_see_every_batch_and_the_end_of_the_shard():
    publisher, seen = Author(), []
    observed(publisher, seen)
    assert asyncio.run(publisher.run_observed(ignore)) is RunResult.COMPLETE
    assert seen == [*BATCHES, "end"]


def test_an_incomplete_run_does_not_complete_the_observers():
    publisher, seen = Author(RunResult.INCOMPLETE), []
    observed(publisher, seen)
    assert asyncio.run(publisher.run_observed(ignore)) is RunResult.INCOMPLETE
    assert seen == BATCHES


def test_observers_see_a_batch_before_the_consumer():
    publisher, seen = Author(), []
    observed(publisher, seen)

    async def consumer(batch):
        seen.append("consumed")

    asyncio.run(publisher.run_observed(consumer))
    assert seen[:2] == [BATCHES[0], "consumed"]


def test_observers_see_an_error_that_ends_the_run():
    publisher, seen, error = Author(), [], ValueError("the sink refused")
    observed(publisher, seen)

    async def consumer(batch):
        raise error

    with pytest.raises(ValueError, match="refused"):
        asyncio.run(publisher.run_observed(consumer))
    assert seen == [BATCHES[0], error]


def test_a_disposed_observer_sees_nothing_more():
    publisher, seen = Author(), []
    disposable = observed(publisher, seen)

    async def consumer(batch):
        disposable.dispose()

    asyncio.run(publisher.run_observed(consumer))
    assert seen == [BATCHES[0]]


def test_an_observer_added_during_a_run_sees_the_rest():
    publisher, seen = Author(), []

    async def consumer(batch):
        if batch is BATCHES[0]:
            observed(publisher, seen)

    asyncio.run(publisher.run_observed(consumer))
    assert seen == [*BATCHES[1:], "end"]
