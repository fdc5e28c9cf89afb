"""An elastic fetcher that opens: what it refuses, a store that is slow at first, and what it closes when it cannot open."""

import asyncio

import pytest

from recordpublisher.fetcher.elastic.job_storage import JobStorage, group_job_of
from recordpublisher.fetcher.leases.lease_settings import LeaseSettings
from recordpublisher.fetcher.shard_fetcher import build_fetcher
from recordpublisher.fetcher.shards.discovery import StreamList
from recordpublisher.publishers.errors import ConfigurationError, StoreUnavailableError
from recordpublisher.testing import run_virtual

from fakes.leases.elastic_processes import DURATION
from fakes.memory_store import MemoryStore
from fakes.scripted_source import RecordingSink, ScriptedSource, fetcher_dependencies


class ClosableStore(MemoryStore):
    """Counts how often it was closed. Its first answer takes as long as connecting does on a busy machine."""

    def __init__(self, first_answer_seconds=0.0):
        super().__init__()
        self.closed = 0
        self._pause = first_answer_seconds

    async def get(self, name):
        pause, self._pause = self._pause, 0.0
        await asyncio.sleep(pause)
        return await super().get(name)

    async def close(self):
        self.closed += 1


class AwayStore(MemoryStore):
    """Is away at first, for these seconds of the loop."""

    def __init__(self, seconds):
        super().__init__()
        self._until = seconds

    async def get(self, name):
        if asyncio.get_running_loop().time() < self._until:
            raise StoreUnavailableError("away")
        return await super().get(name)


class KeepingSink(RecordingSink):
    """Returns positions, as if it kept them."""

    is_closed = False

    async def open(self, context):
        return {}

    async def close(self):
        self.is_closed = True


def fetcher_of(store, sink, properties=None):
    dependencies = fetcher_dependencies(ScriptedSource(), sink, properties)
    return build_fetcher(dependencies, JobStorage(store, LeaseSettings(DURATION)))


def test_a_sink_that_returns_stored_positions_is_refused():
    async def story():
        with pytest.raises(ConfigurationError, match="stores positions itself"):
            await fetcher_of(MemoryStore(), KeepingSink()).open()

    run_virtual(story())


def test_one_that_could_not_open_closes_its_sink_and_its_store():
    async def story():
        store, sink = ClosableStore(), KeepingSink()
        fetcher = fetcher_of(store, sink)
        with pytest.raises(ConfigurationError):
            await fetcher.open()
        await fetcher.close()
        return store, sink

    store, sink = run_virtual(story())
    assert (store.closed, sink.is_closed) == (1, True)


def test_the_first_answer_of_the_store_may_take_longer_than_a_heartbeat():
    async def story():
        store = ClosableStore(first_answer_seconds=4 * LeaseSettings(DURATION).interval)
        fetcher = fetcher_of(store, RecordingSink())
        await fetcher.open()
        await fetcher.close()

    run_virtual(story())


def test_a_store_that_is_away_at_the_start_is_waited_for():
    outlasts_minutes = {"flink.shard.getrecords.maxretries": 200, "flink.shard.getrecords.backoff.max": 10_000}

    async def story():
        await fetcher_of(AwayStore(300), RecordingSink(), outlasts_minutes).open()
        return asyncio.get_running_loop().time()

    assert 300 <= run_virtual(story()) < 312


def test_jobs_of_a_sink_without_a_destination_are_told_apart_by_their_streams():
    class Nowhere(RecordingSink):
        def destination(self):
            return ""

    theirs, ours = (group_job_of(StreamList([stream]), Nowhere()) for stream in ("orders", "others"))
    difference = ours.contradiction(theirs)
    assert difference == "the group reads orders, and this process reads others"
