"""The contract of sinks that commit asks what a job asks: a sink whose commit makes its rows visible passes it."""

from contextlib import asynccontextmanager

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.conditional_store import write_value
from recordpublisher.testing import CommittingSinkContract, SinkCase, run_virtual

from fakes.memory_store import MemoryStore


class VisibleByCommit(rp.CommittingSink):
    """Writes its rows in the transaction of the entry, as a database does, and publishes nothing."""

    def __init__(self, store, rows):
        self.store, self.rows = store, rows
        self.waiting, self.staged = {}, {}

    def entries(self):
        return self.store

    async def begin(self, life):
        self.waiting, self.staged = {}, {}

    async def write(self, batch):
        self.waiting.setdefault(batch.shard.key, []).extend(batch.data)

    def revoked(self, shards):
        for shard in shards:
            self.waiting.pop(shard, None)

    async def stage(self, number):
        rows = [row for each in self.waiting.values() for row in each]
        self.waiting = {}
        self.staged[number] = rows
        return rp.Staged(number, {}) if rows else None

    async def commit(self, store, name, value, expected, staged):
        version = await write_value(store, name, value, expected)
        for each in staged:
            self.rows += self.staged.pop(each.number)
        return version

    async def publish(self, staged):
        pass

    async def discard(self, has_ended, kept):
        pass


class FlushesRows(VisibleByCommit):
    """Has a `flush` of its own, for dead letters."""

    async def flush(self, checkpoint=None):
        self.rows += [row for each in self.waiting.values() for row in each]
        self.waiting = {}


class PublishesTheRest(VisibleByCommit):
    """Publishes what no commit has written, for the default `flush`."""

    async def publish(self, staged):
        for each in staged:
            self.rows += self.staged.pop(each.number, [])


class RowsContract(CommittingSinkContract):
    sink = FlushesRows

    @asynccontextmanager
    async def open_case(self):
        store, rows = MemoryStore(), []

        async def written():
            return rows

        yield SinkCase(lambda: self.sink(store, rows), written)

    def execute(self, work):
        run_virtual(work)


class TestASinkThatFlushesItsRows(RowsContract):
    """The contract of a sink that publishes nothing."""


class TestASinkThatPublishesTheRest(RowsContract):
    """The contract of a sink without a `flush` of its own."""

    sink = PublishesTheRest


def test_a_sink_that_shows_nothing_without_a_commit_fails_with_a_sentence():
    contract = RowsContract()
    contract.sink = VisibleByCommit

    with pytest.raises(AssertionError, match="`flush` gives `publish` items that no `commit` has written"):
        contract.test_what_was_flushed_is_in_the_target()
