"""An exception or a value of user code that cannot be shown, because its `__str__` or `__repr__` raises, hides no error."""

import asyncio
import logging

import pytest

import recordpublisher as rp
from recordpublisher.cli.execution import one_line
from recordpublisher.plugins.sinks.callback import CallbackSink
from recordpublisher.plugins.tracing.trace_context import _Guarded
from recordpublisher.testing import records as testing_records

from fakes.memory_store import MemoryStore
from fakes.memory_streams import PROPERTIES, MemoryFactory, install


class NoTextError(Exception):
    """An error of a program with a mistake of its own, as of f"{self.missing}"."""

    def __str__(self):
        raise AttributeError("missing")

    __repr__ = __str__


class NoText:
    def __repr__(self):
        raise AttributeError("missing")


def fail(*given):
    raise NoTextError


class Failing(rp.MemorySink):
    def __init__(self, method):
        super().__init__()
        self.method = method

    async def meet(self, method):
        if method == self.method:
            fail()

    async def open(self, context):
        await self.meet("open")

    async def write(self, batch):
        await self.meet("write")

    async def flush(self, checkpoint=None):
        await self.meet("flush")

    async def close(self):
        await self.meet("close")


class FailingPublisher(rp.RecordPublisher):
    async def run(self, consumer):
        fail()


class ReturningPublisher(rp.RecordPublisher):
    async def run(self, consumer):
        return NoText()


class GivingPublisher(rp.RecordPublisher):
    async def run(self, consumer):
        await consumer(NoText())


def returning(value):
    async def method(*given):
        return value

    return method


async def failing_method(*given):
    fail()


class FailingStore(MemoryStore):
    get = put_if_absent = compare_and_set = failing_method


class FailingDeserializer:
    values = staticmethod(fail)


async def run(sink=None, **arguments):
    async with rp.DataFetcher("orders", PROPERTIES, sink=sink or rp.MemorySink(), **arguments) as fetcher:
        await fetcher.run()


async def run_with(monkeypatch, method, replaced):
    monkeypatch.setattr(MemoryFactory, method, replaced)
    await run()


async def run_with_open(monkeypatch, replaced):
    monkeypatch.setattr(rp.MemorySink, "open", replaced)
    await run()


async def traces_of(function):
    (record,) = testing_records.batch_of(testing_records.record(data=b"1"))
    _Guarded(function)(record)


EDGES = {
    "run": lambda patch: run_with(patch, "create", returning(FailingPublisher())),
    "create": lambda patch: run_with(patch, "create", failing_method),
    "discover": lambda patch: run_with(patch, "discover", failing_method),
    "factory.close": lambda patch: run_with(patch, "close", failing_method),
    "open": lambda patch: run(Failing("open")),
    "write": lambda patch: run(Failing("write")),
    "flush": lambda patch: run(Failing("flush")),
    "close": lambda patch: run(Failing("close")),
    "store": lambda patch: run(state_store=FailingStore()),
    "deserializer": lambda patch: run(deserializer=FailingDeserializer()),
    "deserializer, a function": lambda patch: run(deserializer=fail),
    "deserializer, skipped": lambda patch: run(deserializer=fail, deserializer_error="SKIP"),
    "timestamp_assigner": lambda patch: run(timestamp_assigner=fail),
    "handler": lambda patch: run(rp.MapSink(fail, retries=0)),
    "handler, skipped": lambda patch: run(rp.MapSink(fail, retries=0, on_failure="SKIP")),
    "handler that returns a value": lambda patch: run(rp.MapSink(lambda records: NoText(), retries=0, batch_size=2)),
    "callback": lambda patch: run(CallbackSink(function=fail)),
    "trace context": lambda patch: traces_of(fail),
    "what discover returns": lambda patch: run_with(patch, "discover", returning(NoText())),
    "what create returns": lambda patch: run_with(patch, "create", returning(NoText())),
    "what run returns": lambda patch: run_with(patch, "create", returning(ReturningPublisher())),
    "a batch": lambda patch: run_with(patch, "create", returning(GivingPublisher())),
    "what open returns": lambda patch: run_with_open(patch, returning(NoText())),
}


@pytest.mark.parametrize("edge", EDGES)
async def test_an_error_whose_text_fails_is_told_by_its_class(edge, monkeypatch, caplog):
    install(monkeypatch, {"a": [b"1"]}, closed=True)
    with caplog.at_level(logging.INFO):
        (ended,) = await asyncio.gather(EDGES[edge](monkeypatch), return_exceptions=True)
    assert not isinstance(ended, AttributeError)
    assert "NoText" in caplog.text + ("" if ended is None else one_line(ended))


def test_a_setting_whose_text_fails_is_named():
    with pytest.raises(
        rp.ConfigurationError, match=r"'flink.job.max.outage' is '\(its __str__ raised AttributeError\)'"
    ):
        rp.Properties({"flink.job.max.outage": NoText()}).check()
