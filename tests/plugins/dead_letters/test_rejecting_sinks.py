"""A letter that the job's sink rejects again in a replay is kept, and errors of the dead-letter sink name its properties."""

import asyncio
from contextlib import asynccontextmanager

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.pipeline.dead_letter_format import DeadLetter
from recordpublisher.fetcher.pipeline.dead_letters import DeadLetterHandler
from recordpublisher.fetcher.sink import SinkContext
from recordpublisher.plugins.dead_letters.base import StoredLetters
from recordpublisher.plugins.dead_letters.replay import JobTarget, replay_letters
from recordpublisher.publishers.properties.job_properties import OnBadRecord
from recordpublisher.publishers.records import UserRecord
from recordpublisher.publishers.shards import Shard
from recordpublisher.testing import run_virtual

from fakes.batches import batch

PROPERTIES = {"aws.region": "us-east-1"}


class Letters(StoredLetters):
    """Two letters, of which the sink rejects the first."""

    def __init__(self):
        shard = Shard("orders", "shardId-000000000000")
        payloads = {"1": b"bad", "2": b"good"}
        self.left = [DeadLetter(shard, UserRecord(data, number, 1.0, "k"), "bad") for number, data in payloads.items()]

    async def chunks(self, *, is_replay):
        yield list(self.left)

    async def finish(self, succeeded, failed):
        self.left = list(failed)


class RejectingSink(rp.Sink):
    """Rejects a bad record by one of the two calls of its context."""

    def __init__(self, call):
        self._call, self.written = call, []

    async def open(self, context):
        self.context = context

    async def write(self, batch):
        for index, record in enumerate(batch):
            one = batch.slice(index, index + 1)
            if record.data != b"bad":
                self.written.append(record.data)
            elif self._call == "reject":
                await self.context.reject(one, "no number")
            else:
                await self.context.reject_all([(one, "no number")])


class Program:
    """As `program:job`, with a sink of its own."""

    def __init__(self, sink):
        self._sink = sink

    def sink_and_decorators(self, properties):
        return rp.DataFetcher("orders", PROPERTIES, sink=self._sink).sink_and_decorators(properties)


@pytest.mark.parametrize("call", ["reject", "reject_all"])
async def test_it_is_kept_with_its_reason_and_the_others_are_replayed(call):
    sink = RejectingSink(call)
    async with JobTarget(rp.Properties(PROPERTIES), Program(sink)) as target:
        ((ended, failed),) = [found async for found in replay_letters(Letters(), target)]

    assert [letter.number for letter in ended] == ["2"]
    assert [(letter.number, reason) for letter, reason in failed] == [("1", "no number")]
    assert sink.written == [b"good"]


class MisconfiguredSink(rp.Sink):
    """It fails in one of its calls."""

    def __init__(self, call):
        self._call = call

    def _fail_in(self, call):
        if call == self._call:
            reason = "flink.sink.sql.columns is AUTO"
            raise rp.ConfigurationError("flink.sink.sql.uri", "x", "a database, or flink.sink.sql.table", reason=reason)

    async def open(self, context):
        self._fail_in("open")

    async def write(self, batch):
        self._fail_in("write")

    async def flush(self, checkpoint=None):
        self._fail_in("flush")


@pytest.mark.parametrize("call", ["open", "write", "flush"])
async def test_the_keys_are_those_of_the_dead_letter_sink(call):
    handler = DeadLetterHandler(lambda shard, counter: None, OnBadRecord.DEAD_LETTER, MisconfiguredSink(call))

    async def use():
        await handler.open(SinkContext())
        await handler.handle_rejected(batch(b"a"), "why")

    with pytest.raises(rp.ConfigurationError) as raised:
        await use()

    assert raised.value.key == "flink.deadletter.sql.uri"
    assert "flink.sink." not in str(raised.value)


class SinkWithBuffer(rp.Sink):
    """Keeps rows until `flush`, which takes a while, as most sinks do."""

    def __init__(self):
        self.rows, self.written, self.running = [], [], 0

    async def write(self, batch):
        async with self.alone():
            self.rows += batch.data

    async def flush(self, checkpoint=None):
        async with self.alone():
            self.written += self.rows
            self.rows.clear()

    @asynccontextmanager
    async def alone(self):
        self.running += 1
        assert self.running == 1, "two calls of the sink run at the same time"
        await asyncio.sleep(0.01)
        yield
        self.running -= 1


def test_records_that_a_sink_rejects_in_several_tasks_reach_the_dead_letter_sink_one_after_the_other():
    letters = SinkWithBuffer()
    handler = DeadLetterHandler(lambda shard, counter: None, OnBadRecord.DEAD_LETTER, letters)

    async def job():
        await handler.open(SinkContext())
        rejecting = [handler.handle_rejected(batch(b"%d" % number), "why") for number in range(20)]
        together = handler.handle_all_rejected([(batch(b"x"), "why"), (batch(b"y"), "why")])
        await asyncio.gather(*rejecting, together, handler.flush())

    run_virtual(job())
    assert sorted(letters.written) == sorted([*(b"%d" % number for number in range(20)), b"x", b"y"])
