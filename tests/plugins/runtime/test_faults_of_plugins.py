"""What a job reports of a plugin whose methods hang, return something wrong, or raise what is not an error."""

import asyncio
import copy
import dataclasses
import logging
import re
import time
from contextlib import suppress

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.pipeline.dead_letters import DeadLetterHandler
from recordpublisher.fetcher.pipeline.emitter import Bounds
from recordpublisher.plugins.runtime import data_fetcher
from recordpublisher.plugins.runtime.background_loop import LoopWatch
from recordpublisher.publishers.base import shards_listed_by
from recordpublisher.publishers.properties.job_properties import OnBadRecord
from recordpublisher.testing.virtual_time import run_virtual

from fakes.memory_streams import PROPERTIES, MemoryFactory, install
from fakes.scripted_source import RecordingSink, ScriptedSource, make_fetcher


class HangingSource(ScriptedSource):
    """Its `discover` hangs after the listings of the start."""

    listings = 0

    async def list_shards(self, stream):
        return await shards_listed_by(self, stream)

    async def discover(self, stream):
        self.listings += 1
        if self.listings > 2:
            await asyncio.sleep(1e9)
        return await super().list_shards(stream)


def test_a_job_whose_periodic_discover_hangs_is_not_ready(caplog):
    async def main():
        source = HangingSource()
        source.add("a", 1)
        fetcher = make_fetcher(source, RecordingSink(), {"flink.shard.discovery.intervalmillis": 1_000})
        await fetcher.open()
        running = asyncio.create_task(fetcher.run())
        await asyncio.sleep(5)
        before = fetcher.reasons_not_ready()
        await asyncio.sleep(15)
        hung = fetcher.reasons_not_ready()
        fetcher.stop()
        await running
        await fetcher.close()
        return before, hung

    before, (reason,) = run_virtual(main())
    assert before == []
    assert reason.startswith("`HangingSource.discover` for s has not returned for ")
    assert reason.endswith("(discover)")
    assert [
        text for text in caplog.messages if text.startswith("`HangingSource.discover` for s has not returned for 10 s")
    ]


class SlowToClose(ScriptedSource):
    async def close(self):
        await asyncio.sleep(1e9)


def test_a_factory_whose_close_hangs_is_named_and_left_after_the_drain_timeout(caplog):
    async def main():
        source = SlowToClose()
        source.add("a", 1)
        fetcher = make_fetcher(source, RecordingSink(), {"flink.job.drain.timeout": 15_000})
        await fetcher.open()
        began = asyncio.get_running_loop().time()
        await fetcher.close()
        return asyncio.get_running_loop().time() - began

    assert run_virtual(main()) == 15
    waits, left = caplog.messages[-2:]
    assert waits.startswith("`SlowToClose.close` has not returned for 10 s: it waits at ")
    assert left.startswith("`SlowToClose.close` has not ended after 15 s (flink.job.drain.timeout), and waits at ")
    assert "sink" not in caplog.text


class Blocks(rp.MemorySink):
    def __init__(self, method, until):
        super().__init__()
        self.method, self.until = method, until

    def block(self, method):
        limit = time.monotonic() + 60
        while method == self.method and not self.until() and time.monotonic() < limit:
            time.sleep(0.01)

    async def open(self, context):
        self.block("open")

    async def close(self):
        self.block("close")


@pytest.mark.parametrize("method", ["open", "close"])
async def test_a_call_that_blocks_the_event_loop_is_shown_while_a_job_opens_and_closes(method, monkeypatch, caplog):
    install(monkeypatch, {"a": [b"1"]})
    monkeypatch.setattr(data_fetcher, "LoopWatch", lambda: LoopWatch(0.01))

    def is_told():
        return "blocks the event loop" in caplog.text

    async with rp.DataFetcher("orders", PROPERTIES, sink=Blocks(method, is_told)):
        pass
    assert "(block) blocks the event loop" in caplog.text


class HangingSink(RecordingSink):
    """Its method never returns, and does not block the event loop."""

    def __init__(self, method):
        super().__init__()
        self.method = method

    async def write(self, batch):
        await self.hang_in("write")

    async def flush(self, checkpoint=None):
        await self.hang_in("flush")

    async def hang_in(self, method):
        if method == self.method:
            await asyncio.sleep(60)


@pytest.mark.parametrize(("method", "subject"), [("write", " for s/a"), ("flush", "")])
def test_a_method_of_a_sink_that_hangs_is_named_with_its_line(method, subject, caplog):
    async def main():
        source, sink = ScriptedSource(), HangingSink("")
        source.add("a", 1)
        fetcher = make_fetcher(source, sink)
        await fetcher.open()
        sink.method = method
        await fetcher.run_bounded(Bounds(stop_at_tip=True))
        await fetcher.close()

    run_virtual(main())
    hung = [line for line in caplog.messages if "has not returned" in line]
    assert [line.partition(": it waits at ")[0] for line in hung] == [
        f"`HangingSink.{method}`{subject} has not returned for {seconds} s" for seconds in (10, 20, 40)
    ]
    assert all(line.endswith("(hang_in)") for line in hung)


class QuietSource(ScriptedSource):
    """Its publishers wait in code of their own: after two records, or for `pause` seconds before each of them."""

    pause = None

    async def create(self, shard, starting_position, metrics):
        made = await super().create(shard, starting_position, metrics)
        run = made.run

        async def waits(consumer):
            async def taken(batch):
                position = await consumer(batch)
                await asyncio.sleep(self.pause or 1e9)
                return position

            return await run(taken)

        made.run = waits
        return made


def run_for(source, seconds, *, stop_at_tip=False, names=("a", "b")):
    async def main():
        for name in names:
            if f"s/{name}" not in source.shards:
                source.add(name, *range(2))
        fetcher = make_fetcher(source, RecordingSink(), {"flink.watermark.sync.interval": 1_000})
        await fetcher.open()
        await fetcher.run_bounded(Bounds(max_time=seconds, stop_at_tip=stop_at_tip))
        await fetcher.close()

    run_virtual(main())


def test_a_publisher_that_gives_no_batch_is_shown_with_its_line_and_is_no_fault(caplog):
    caplog.set_level(logging.INFO)
    run_for(QuietSource(), 1_000)

    quiet = [record for record in caplog.records if "gave no batch lately" in record.getMessage()]
    line = re.compile(r"2 shards gave .*, s/a for the longest time, (\d+) s: the publisher waits at \S+:\d+ \(taken\)")
    assert {record.levelname for record in quiet} == {"INFO"}
    words = [line.fullmatch(each.getMessage()) for each in quiet]
    assert [round(int(each[1]), -1) for each in words] == [60, 120, 240, 480, 960]


class TiplessSource(ScriptedSource):
    """Its publishers never say how far a batch is behind the tip, or only after `tip_after` seconds."""

    tip_after = None

    async def create(self, shard, starting_position, metrics):
        made = await super().create(shard, starting_position, metrics)
        run, ends_at = made.run, asyncio.get_running_loop().time() + (self.tip_after or 1e9)

        async def silent(consumer):
            async def taken(batch):
                is_said = asyncio.get_running_loop().time() >= ends_at
                return await consumer(batch if is_said else dataclasses.replace(batch, millis_behind_latest=None))

            return await run(taken)

        made.run = silent
        return made


def tip_warnings(caplog):
    return [record.getMessage() for record in caplog.records if "millis_behind_latest=0" in record.getMessage()]


@pytest.mark.parametrize("tip_after", [None, 45, 90])
def test_a_publisher_that_does_not_say_that_it_is_at_the_tip_is_named_where_the_run_waits_for_it(caplog, tip_after):
    source = TiplessSource()
    source.tip_after = tip_after
    run_for(source, 300, stop_at_tip=True)

    words = (
        "the run waits until a read is at the tip of 2 shards, and TiplessSource has not said so for s/a, although it gave no record for "
        "60 s: when no record follows a batch, even an empty one, its publisher must give the batch millis_behind_latest=0"
    )
    assert [re.sub(r"6\d s:", "60 s:", each) for each in tip_warnings(caplog)] == ([] if tip_after == 45 else [words])


def test_a_run_that_does_not_end_at_the_tip_waits_for_no_publisher_to_say_so(caplog):
    run_for(TiplessSource(), 300)

    assert tip_warnings(caplog) == []


def test_a_publisher_that_still_gives_records_is_not_told_to_be_at_the_tip(caplog):
    source = TiplessSource(per_read=1)
    source.add("c", *range(1_000))
    run_for(source, 200, stop_at_tip=True, names=("c",))

    assert tip_warnings(caplog) == []


def test_a_publisher_that_gives_a_batch_now_and_then_is_not_mentioned(caplog):
    caplog.set_level(logging.INFO)
    source = QuietSource()
    source.pause = 20
    run_for(source, 1_000)

    assert "gave no batch lately" not in caplog.text


class MyBase(BaseException):
    pass


class Faulty(rp.MemorySink):
    """Returns, or raises, `fault` in one of its methods."""

    def __init__(self, method, fault):
        super().__init__()
        self.method, self.fault = method, fault

    def meet(self, method):
        if method != self.method:
            return None
        if isinstance(self.fault, BaseException):
            raise self.fault
        return self.fault

    async def open(self, context):
        return self.meet("open")

    async def write(self, batch):
        self.meet("write")

    async def flush(self, checkpoint=None):
        return self.meet("flush")

    async def close(self):
        self.meet("close")


async def run(sink, **arguments):
    async with rp.DataFetcher("orders", PROPERTIES, sink=sink, **arguments) as fetcher:
        await fetcher.run_bounded(stop_at_tip=True)


@pytest.mark.parametrize(
    ("method", "fault", "words"),
    [
        ("open", 5, "`Faulty.open` returned 5: return None, or the state"),
        ("open", "state", "`Faulty.open` returned 'state': return None, or the state"),
        ("open", {}, "`Faulty.open` returned a state that cannot be used: the stored state is not a snapshot"),
        ("flush", 5, "`Faulty.flush` returned 5: return None, or the state"),
        ("flush", {}, "`Faulty.flush` returned a state that cannot be used: the stored state is not a snapshot"),
        ("write", asyncio.CancelledError(), "`Faulty.write` for orders/a raised CancelledError, but nothing"),
        ("write", MyBase("boom"), r"`Faulty.write` for orders/a raised MyBase: boom at \S+ \(meet\)"),
        ("open", MyBase("boom"), "`Faulty.open` raised MyBase: boom"),
        ("close", MyBase("boom"), "`Faulty.close` raised MyBase: boom"),
    ],
)
async def test_the_error_names_the_method_of_the_sink(method, fault, words, monkeypatch):
    install(monkeypatch, {"a": [b"1"]})
    with pytest.raises(rp.RecordPublisherError, match=words):
        await run(Faulty(method, fault))


OWN_ERRORS = [
    rp.ConfigurationError("a.b", 1, "2"),
    rp.StateError("broken"),
    rp.SinkError("broken"),
    rp.TransientError("broken"),
    rp.FatalKinesisError("broken"),
]


@pytest.mark.parametrize("method", ["open", "write", "flush", "close"])
@pytest.mark.parametrize("error", OWN_ERRORS, ids=lambda error: type(error).__name__)
async def test_an_error_of_this_package_that_a_sink_raises_keeps_its_class_and_names_the_method(
    error, method, monkeypatch
):
    install(monkeypatch, {"a": [b"1"]})
    fault = copy.copy(error)
    with pytest.raises(type(error)) as raised:
        await run(Faulty(method, fault))
    where = " at a batch of orders/a that begins at record 0" if method == "write" else ""
    assert raised.value.__notes__ == [f"the sink Faulty failed in `{method}`{where}"]


@pytest.mark.parametrize("error", OWN_ERRORS, ids=lambda error: type(error).__name__)
async def test_a_setting_of_a_dead_letter_sink_keeps_the_name_of_the_method(error, monkeypatch):
    handler = DeadLetterHandler(None, OnBadRecord.FAIL, Faulty("open", copy.copy(error)))
    with pytest.raises(type(error)) as raised:
        await handler.open(rp.SinkContext(("orders",)))
    assert raised.value.__notes__ == ["the dead-letter sink Faulty failed in `open`"]


class FaultySource(ScriptedSource):
    def __init__(self, method, error):
        super().__init__()
        self.method, self.error = method, error

    def meet(self, method):
        if method == self.method:
            raise self.error

    async def list_shards(self, stream):
        return await shards_listed_by(self, stream)

    async def discover(self, stream):
        self.meet("discover")
        return await super().list_shards(stream)

    async def create(self, shard, starting_position, metrics):
        self.meet("create")
        return await super().create(shard, starting_position, metrics)

    async def close(self):
        self.meet("close")


@pytest.mark.parametrize("error", OWN_ERRORS, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(("method", "subject"), [("discover", " for s"), ("create", " for s/a"), ("close", "")])
def test_an_error_of_this_package_that_a_factory_raises_keeps_its_class_and_names_the_method(method, subject, error):
    async def main():
        source = FaultySource(method, copy.copy(error))
        source.add("a", 1)
        fetcher = make_fetcher(source, RecordingSink())
        await fetcher.open()
        await fetcher.run_bounded(Bounds(stop_at_tip=True))
        await fetcher.close()

    with pytest.raises(type(error)) as raised:
        run_virtual(main())
    assert raised.value.__notes__ == [f"`FaultySource.{method}`{subject} failed"]


async def test_an_exception_of_a_publisher_that_is_not_an_error_names_the_shard(monkeypatch):
    install(monkeypatch, {"a": [b"1"]})

    async def fail(self, shard, start, metrics):
        class Publisher(rp.RecordPublisher):
            async def run(self, consumer):
                raise MyBase("boom")

        return Publisher()

    monkeypatch.setattr(MemoryFactory, "create", fail)
    words = r"the publisher of MemoryFactory for orders/a raised MyBase: boom at \S+ \(run\): raise a subclass"
    with pytest.raises(rp.PluginError, match=words):
        await run(rp.MemorySink())


async def test_a_publisher_of_an_own_listing_cannot_say_that_the_stream_was_deleted(monkeypatch):
    """Only the listing tells that. Otherwise a hiccup that raises this error would drop the positions, and the job would succeed."""
    install(monkeypatch, {"a": [b"1"]})

    async def fail(self, shard, start, metrics):
        class Publisher(rp.RecordPublisher):
            async def run(self, consumer):
                raise rp.StreamNotFoundError("another")

        return Publisher()

    monkeypatch.setattr(MemoryFactory, "create", fail)
    with pytest.raises(rp.StreamNotFoundError) as raised:
        await run(rp.MemorySink())
    assert raised.value.__notes__ == ["`Publisher.run` for orders/a failed"]


class Async:
    async def values(self, batch):
        return [1] * len(batch)


class Generator:
    def values(self, batch):
        yield from batch


class TooMany:
    def values(self, batch):
        return [1] * (len(batch) + 1)


class Unordered:
    def values(self, batch):
        return set(batch.data)


class Cancelled:
    def values(self, batch):
        raise asyncio.CancelledError


@pytest.mark.parametrize("error", ["FAIL", "SKIP"])
@pytest.mark.parametrize(
    ("deserializer", "words"),
    [
        (Async, "returned a coroutine for 2 records: return a sequence with one value for each record"),
        (Generator, "returned a generator for 2 records"),
        (TooMany, "returned 3 items for 2 records"),
        (Unordered, "returned a set for 2 records"),
        (Cancelled, "raised CancelledError"),
    ],
)
async def test_a_deserializer_that_is_wrong_itself_ends_the_job_and_skips_no_record(
    deserializer, words, error, monkeypatch
):
    install(monkeypatch, {"a": [b"1", b"2"]})
    with pytest.raises(rp.PluginError, match=rf"`{deserializer.__name__}\.values` {words}"):
        await run(rp.MemorySink(), deserializer=deserializer(), deserializer_error=error)


async def test_a_deserializer_of_one_stream_is_named_itself(monkeypatch):
    install(monkeypatch, {"a": [b"1", b"2"]})
    with pytest.raises(rp.PluginError, match=r"`TooMany\.values` returned 3 items"):
        await run(rp.MemorySink(), deserializer={"orders": TooMany()})


@pytest.mark.parametrize("error", ["FAIL", "SKIP"])
async def test_a_setting_that_a_deserializer_refuses_ends_the_job_and_skips_no_record(error, monkeypatch):
    class Refuses:
        def values(self, batch):
            raise rp.ConfigurationError("a.b", 1, "2")

    install(monkeypatch, {"a": [b"1", b"2"]})
    with pytest.raises(rp.ConfigurationError, match=r"property 'a\.b' is 1") as raised:
        await run(rp.MemorySink(), deserializer=Refuses(), deserializer_error=error)
    assert raised.value.__notes__ == ["`Refuses.values` failed"]


class Room(rp.MemorySink):
    def __init__(self, room):
        super().__init__()
        self.room = room

    def has_room(self):
        return self.room()


async def test_a_sink_that_does_not_say_whether_it_has_room_is_named(monkeypatch):
    install(monkeypatch, {"a": [b"1"]})
    with pytest.raises(rp.PluginError, match=r"`Room\.has_room` returned None: return True or False"):
        await run(Room(lambda: None))


async def test_an_error_of_has_room_names_the_method(monkeypatch):
    install(monkeypatch, {"a": [b"1"]})
    with pytest.raises(KeyError) as raised:
        await run(Room(lambda: {}["room"]))
    assert raised.value.__notes__ == ["the sink Room failed in `has_room`"]


async def test_an_error_of_prepare_names_the_method(monkeypatch):
    install(monkeypatch, {"a": [b"1"]})
    monkeypatch.setattr(MemoryFactory, "prepare", lambda self, streams: {}["stream"])
    with pytest.raises(KeyError) as raised:
        await run(rp.MemorySink())
    assert raised.value.__notes__ == ["`MemoryFactory.prepare` failed"]


async def test_children_that_are_no_shards_are_refused(monkeypatch):
    class Publisher(rp.RecordPublisher):
        async def run(self, consumer):
            await consumer(rp.RecordBatch(rp.Shard("orders", "a"), [], 0, None, ("b",)))

    async def create(self, shard, start, metrics):
        return Publisher()

    install(monkeypatch, {"a": [b"1"]})
    monkeypatch.setattr(MemoryFactory, "create", create)
    with pytest.raises(
        rp.PluginError, match=r"Publisher gave a batch with `child_shards` .* 'b', of the type str: it must be Shard"
    ):
        await run(rp.MemorySink())


def test_a_checkpoint_that_is_not_stored_names_the_sink(caplog):
    class Away(RecordingSink):
        async def flush(self, checkpoint=None):
            if checkpoint is not None and checkpoint.may_be_partial:
                raise rp.StoreUnavailableError("database away")

    async def main():
        source = ScriptedSource()
        source.add("a", 1)
        fetcher = make_fetcher(source, Away(), {"flink.state.checkpoint.interval": 1_000})
        await fetcher.open()
        with suppress(rp.StoreUnavailableError):
            await fetcher.run_bounded(Bounds(max_time=3))
        await fetcher.close()

    run_virtual(main())
    assert (
        "a checkpoint was not stored, the next one tries again: database away; the sink Away failed in `flush`"
        in caplog.messages
    )
