"""Calls of user code and of a source that do not return, or that end as if they had been cancelled; on virtual time."""

import asyncio
import re
from contextlib import suppress

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.fetcher.sink import Unfinished
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.queues.fake_queue import FakeQueue, FakeSource, queue_job


class HungSink(rp.Sink):
    """Its flush waits for a call that does not return. It does not tell which records are done."""

    def __init__(self):
        self.count = 0

    async def write(self, batch):
        self.count += len(batch)

    async def flush(self, checkpoint=None):
        if self.count:
            await asyncio.sleep(100_000)

    def unfinished(self):
        return Unfinished(self.count, "a call hangs", call="x" if self.count else None)


@pytest.mark.parametrize("interval", ["1s", "60s"], ids=["of the interval", "of the end"])
def test_a_stop_waits_for_a_flush_that_hangs_no_longer_than_the_drain_timeout(interval):
    queue = FakeQueue(visibility=8)
    queue.put(1)

    async def run():
        given = {"flink.job.drain.timeout": "5000", "flink.sink": "delta", "flink.state.checkpoint.interval": interval}
        job = queue_job(queue, HungSink(), properties=given)
        await job.open()
        loop = asyncio.get_running_loop()
        loop.call_later(5, job.stop)
        running = asyncio.create_task(job.run())
        await asyncio.wait([running], timeout=600)
        ended = running.done(), loop.time()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        return ended

    has_ended, seconds = run_virtual(run())
    assert has_ended
    assert 10 <= seconds < 12
    assert queue.acknowledged == []


def test_a_prolonging_that_hangs_costs_no_other_record_its_time():
    class OnceHung(FakeSource):
        has_hung = False

        async def prolong(self, records):
            if not self.has_hung:
                self.has_hung = True
                await asyncio.Event().wait()
            await super().prolong(records)

    async def handler(record):
        await asyncio.sleep(20)

    async def run():
        queue, visible = FakeQueue(visibility=8), set()
        job = queue_job(queue, rp.MapSink(handler, ordering="NONE", clock=VirtualClock()), source=OnceHung(queue, 1))
        await job.open()
        running = asyncio.create_task(job.run_bounded(Bounds(max_time=15)))
        queue.put(1)
        await asyncio.sleep(3)
        queue.put(2)
        for _ in range(100):
            await asyncio.sleep(0.1)
            visible |= queue.messages.keys() - set(queue.hidden(asyncio.get_running_loop().time()))
        await running
        await job.close()
        return visible

    assert "2" not in run_virtual(run())


def test_a_receive_that_hangs_is_named_with_its_line(caplog):
    class Hung(FakeSource):
        async def receive(self, metrics):
            await asyncio.sleep(1e9)

    async def run():
        job = queue_job(FakeQueue(), rp.MemorySink(), source=Hung(FakeQueue(), 1))
        await job.open()
        await job.run_bounded(Bounds(max_time=45))
        await job.close()

    run_virtual(run())
    (line,) = [each for each in caplog.messages if "has not returned" in each]
    assert line.startswith("`Hung.receive` has not returned for 30 s: it waits at ")
    assert line.endswith("(receive)")


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("data", "x", "`data` .* 'x', of the type str: it must be bytes"),
        ("sequence_number", 5, "`sequence_number` .* 5, of the type int"),
    ],
)
def test_a_record_with_a_field_of_a_wrong_type_names_the_method_of_the_source(field, value, words):
    class Wrong(FakeSource):
        async def receive(self, metrics):
            given = {"data": b"x", "sequence_number": "1", "arrival": 1.7e9, "partition_key": None} | {field: value}
            return [rp.UserRecord(**given)]

    async def run():
        job = queue_job(FakeQueue(), HungSink(), source=Wrong(FakeQueue(), 1))
        await job.open()
        await job.run()

    with pytest.raises(rp.PluginError, match=f"`Wrong.receive` gave a record with {words}"):
        run_virtual(run())


def test_a_receive_that_waits_20_s_for_records_is_not_logged(caplog):
    class Polls(FakeSource):
        async def receive(self, metrics):
            await asyncio.sleep(20)
            return []

    async def run():
        job = queue_job(FakeQueue(), rp.MemorySink(), source=Polls(FakeQueue(), 1))
        await job.open()
        await job.run_bounded(Bounds(max_time=95))
        await job.close()

    run_virtual(run())
    assert not [each for each in caplog.messages if "has not returned" in each]


def test_a_slow_write_is_logged_after_10_s_although_a_receive_waits(caplog):
    class Polls(FakeSource):
        calls = 0

        async def receive(self, metrics):
            self.calls += 1
            if self.calls > 1:
                await asyncio.sleep(20)
            return await super().receive(metrics)

    class Slow(rp.Sink):
        async def write(self, batch):
            await asyncio.sleep(13)

    async def run():
        queue = FakeQueue(visibility=100)
        queue.put(1)
        job = queue_job(queue, Slow(), source=Polls(queue, 2))
        await job.open()
        await job.run_bounded(Bounds(max_time=15))
        await job.close()

    run_virtual(run())
    (line,) = [each for each in caplog.messages if "has not returned" in each]
    assert line.startswith("`Slow.write` for s/receiver-000 has not returned for 10 s")


class Away(FakeSource):
    """Cannot reach its queue for the first `away` calls of receive."""

    away = 0

    async def receive(self, metrics):
        self.away -= 1
        if self.away >= 0:
            raise rp.TransientError("the database is away")
        return await super().receive(metrics)


async def received_while_away(away, **properties):
    queue = FakeQueue()
    queue.put(1, 2)
    source = Away(queue, 1)
    source.away = away
    job = queue_job(queue, rp.MemorySink(), source=source, properties=properties)
    await job.open()
    try:
        await job.run_bounded(Bounds(stop_at_tip=True))
    finally:
        await job.close()
    return sorted(queue.acknowledged)


def test_a_receive_that_cannot_reach_its_queue_is_retried():
    assert run_virtual(received_while_away(5)) == ["1", "2"]


def test_a_receive_that_cannot_reach_its_queue_for_longer_than_the_outage_ends_the_job():
    with pytest.raises(
        rp.RetriesExhaustedError, match=r"Away\.receive failed .*flink\.job\.max\.outage.*the database is away"
    ):
        run_virtual(received_while_away(10**6, **{"flink.job.max.outage": "60s"}))


async def acknowledged_by(acknowledge):
    class Acknowledges(FakeSource):
        async def acknowledge(self, records):
            return await acknowledge()

    queue = FakeQueue(visibility=8)
    queue.put(1, 2)
    job = queue_job(queue, rp.MemorySink(), source=Acknowledges(queue))
    await job.open()
    try:
        await job.run_bounded(Bounds(max_time=2))
    finally:
        await job.close()


async def fail():
    raise KeyError("k")


async def hang():
    await asyncio.sleep(1e9)


@pytest.mark.parametrize(("acknowledge", "reason"), [(fail, "KeyError: 'k'"), (hang, "TimeoutError")])
def test_an_acknowledgement_that_fails_or_hangs_is_named_with_its_line(acknowledge, reason, caplog):
    run_virtual(acknowledged_by(acknowledge))
    line = next(each for each in caplog.messages if each.startswith("cannot acknowledge 2 records"))
    assert re.search(
        rf"delivers them again: `Acknowledges\.acknowledge` at \S+:\d+ \(\w+\) failed: {reason}$",
        line,
    )


@pytest.mark.parametrize("numbers", [5, [7], "12"])
def test_an_acknowledgement_that_returns_no_numbers_of_records_is_refused(numbers):
    async def acknowledge():
        return numbers

    with pytest.raises(rp.PluginError, match=r"`Acknowledges\.acknowledge` returned .*: return the sequence numbers"):
        run_virtual(acknowledged_by(acknowledge))


@pytest.mark.parametrize("seconds", [0.5, 10], ids=["at the end", "in the run"])
def test_an_acknowledgement_that_ends_as_cancelled_is_an_error_that_names_it(seconds):
    class Cancelled(FakeSource):
        async def acknowledge(self, records):
            raise asyncio.CancelledError

    async def run():
        queue = FakeQueue()
        queue.put(1, 2)
        job = queue_job(queue, rp.MemorySink(), source=Cancelled(queue))
        await job.open()
        try:
            await job.run_bounded(Bounds(max_time=seconds))
        finally:
            await job.close()

    with pytest.raises(rp.PluginError, match=r"`Cancelled\.acknowledge` raised CancelledError"):
        run_virtual(run())


def test_a_source_that_catches_its_cancellation_is_left_behind_after_the_drain_timeout(caplog):
    class Stubborn(FakeSource):
        async def receive(self, metrics):
            while True:
                with suppress(BaseException):
                    await asyncio.sleep(3_600)

    async def run():
        job = queue_job(FakeQueue(), rp.MemorySink(), source=Stubborn(FakeQueue(), 1))
        await job.open()
        loop = asyncio.get_running_loop()
        loop.call_later(5, job.stop)
        await job.run()
        await job.close()
        return loop.time(), len(asyncio.all_tasks())

    seconds, tasks = run_virtual(run())
    assert 25 <= seconds < 27
    assert tasks == 1, "asyncio.run waits for no task"
    (line,) = [text for text in caplog.messages if "flink.job.drain.timeout" in text]
    assert line.startswith("a call of Stubborn has not ended 20 s after it was cancelled")
