"""What user code raises is in the log with its traceback, and says at which record; as JSON, in fields of their own."""

import json
import logging
from contextlib import nullcontext

import pytest

import recordpublisher as rp
from recordpublisher.cli.output import JsonLines
from recordpublisher.plugins.sinks.callback import CallbackSink

from fakes.memory_streams import PROPERTIES, install


def broken(given):
    raise ZeroDivisionError("boom")


class BrokenSink(rp.Sink):
    async def write(self, batch):
        broken(batch)


async def run(sink, **arguments):
    properties = rp.Properties({**PROPERTIES, **arguments.pop("properties", {})})
    async with rp.DataFetcher(["orders"], properties, sink=sink, **arguments) as fetcher:
        await fetcher.run_bounded(stop_at_tip=True)


KINDS = {
    "sink": lambda: run(BrokenSink()),
    "callback": lambda: run(CallbackSink(function=broken)),
    "handler": lambda: run(rp.MapSink(broken)),
    "handler that is skipped": lambda: run(rp.MapSink(broken, on_failure="SKIP")),
    "handler, dead letter, skipped": lambda: run(
        rp.MapSink(broken, on_failure="DEAD_LETTER"),
        properties={"flink.deserializer.error": "DEAD_LETTER", "flink.deadletter.sink": "memory"},
    ),
    "deserializer": lambda: run(rp.MemorySink(), deserializer=broken),
    "event time": lambda: run(rp.MemorySink(), timestamp_assigner=broken),
    "deserializer, skipped": lambda: run(
        rp.MemorySink(), deserializer=broken, properties={"flink.deserializer.error": "SKIP"}
    ),
}


@pytest.mark.parametrize("kind", KINDS)
async def test_the_log_has_the_traceback_and_the_first_record(kind, caplog, monkeypatch):
    install(monkeypatch, {"a": [b"1", b"2"]})
    failing = nullcontext() if "skipped" in kind else pytest.raises((ZeroDivisionError, rp.RecordPublisherError))
    with caplog.at_level(logging.WARNING, "recordpublisher"), failing:
        await KINDS[kind]()
    lines = [json.loads(JsonLines().format(record)) for record in caplog.records]
    (line,) = [line for line in lines if "traceback" in line]
    assert (line["stream"], line["shard"], line["sequenceNumber"]) == ("orders", "a", "0")
    assert "in broken" in line["traceback"]
    assert "ZeroDivisionError: boom" in line["traceback"]


async def test_an_error_of_a_sink_says_at_which_record_where_it_is_caught(monkeypatch):
    install(monkeypatch, {"a": [b"1", b"2"]})
    with pytest.raises(ZeroDivisionError) as caught:
        await run(BrokenSink())
    assert caught.value.__notes__ == [
        "the sink BrokenSink failed in `write` at a batch of orders/a that begins at record 0"
    ]


async def test_the_error_of_a_handler_is_told_once_also_when_the_next_write_raises_it(monkeypatch, caplog):
    install(monkeypatch, {"a": [b"1"], "b": [b"2"]})
    with pytest.raises(rp.SinkError):
        await run(rp.MapSink(broken, retries=0, concurrency=1, max_bytes=1))
    (line,) = [record for record in caplog.records if record.exc_info]
    assert "cannot be handled" in line.getMessage()


@pytest.mark.parametrize("sink", [rp.MemorySink, lambda: rp.MapSink(broken, retries=0, on_failure="SKIP")])
async def test_the_end_of_a_job_tells_how_many_records_were_left_out(monkeypatch, caplog, sink):
    install(monkeypatch, {"a": [b"1", b"2"], "b": [b"3"]}, closed=True)
    failing = {} if sink is not rp.MemorySink else {"deserializer": broken}
    await run(sink(), properties={"flink.deserializer.error": "SKIP"}, **failing)
    assert caplog.messages[-1] == "this run left out records: 3 skipped, 0 written as dead letters"
