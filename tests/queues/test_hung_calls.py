"""Calls of user code and of a source that do not return, or that end as if they had been cancelled; on virtual time."""

import asyncio
import re
from contextlib import suppress

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.pipeline.bounded_runs import Bounds, EndReason
from recordpublisher.fetcher.sink import Unfinished
from recordpublisher.publishers.errors import TransientError
from recordpublisher.publishers.properties.job_properties import OnBadRecord
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.queues.fake_queue import FakeQueue, FakeSource, queue_job, work


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


def test_a_stop_ends_although_a_flush_that_was_given_up_waits_for_a_handler():
    queue = FakeQueue(visibility=8)
    queue.put(1)

    async def hang(record):
        await asyncio.Event().wait()

    async def run():
        job = queue_job(queue, rp.MapSink(hang, clock=VirtualClock()), properties={"flink.job.drain.timeout": "5000"})
        await job.open()
        running = asyncio.create_task(job.run())
        await asyncio.sleep(1)
        given_up = asyncio.create_task(job.checkpoint())
        finishing = asyncio.create_task(job.finish_given_up(given_up))
        await asyncio.sleep(1)
        job.stop()
        await asyncio.wait([running], timeout=60)
        ended = running.done() and finishing.done() and given_up.cancelled()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        return ended

    assert run_virtual(run())


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


class SlowLetters(rp.MemorySink):
    """The first dead letter takes longer than the visibility."""

    async def write(self, batch):
        await super().write(batch)
        await asyncio.sleep(20 if len(self.records) == 1 else 0)


class HeldRows(rp.MemorySink):
    """Knows of each record whether others could receive it when it was written."""

    def __init__(self, queue):
        super().__init__()
        self.queue, self.held = queue, []

    async def write(self, batch):
        await super().write(batch)
        hidden = self.queue.hidden(asyncio.get_running_loop().time())
        self.held += [(number, number in hidden) for number in batch.sequence_numbers]


def test_records_that_others_may_have_received_during_a_slow_dead_letter_are_not_written():
    queue, letters = FakeQueue(visibility=8), SlowLetters()
    queue.put(0, data=b"{")
    queue.put(1, 2)
    queue.failures["prolong"] = [TransientError("Prolong", "503", "away")] * 100
    sink = HeldRows(queue)

    run_virtual(work(queue, sink, Bounds(max_time=60), OnBadRecord.DEAD_LETTER, receivers=1, dead_letters=letters))
    assert sink.held == [("1", True), ("2", True)]
    assert {record.sequence_number for record in letters.records} == {"0"}
    assert queue.messages == {}


class SlowWrites(rp.MemorySink):
    """Each write takes five seconds. `most`: how many calls of the sink ran at the same time."""

    def __init__(self):
        super().__init__()
        self.calls = self.most = 0

    async def write(self, batch):
        self.calls += 1
        self.most = max(self.most, self.calls)
        await asyncio.sleep(5)
        await super().write(batch)
        self.calls -= 1


def cancelled_while_it_ends(sink, queue, cancels, later):
    """A run is cancelled while its last write goes on, and another one starts `later`."""

    async def story():
        job = queue_job(queue, sink, source=FakeSource(queue, 1, wait=20))
        await job.open()
        running = asyncio.create_task(job.run_bounded(Bounds(max_time=2)))
        await asyncio.sleep(3)
        for _ in range(cancels):
            running.cancel()
            await asyncio.sleep(0.1)
        await asyncio.wait([running])
        left = sink.calls
        await asyncio.sleep(later)
        try:
            result = await job.run_bounded(Bounds(stop_at_tip=True, max_time=100))
        finally:
            await job.close()
        return running.cancelled(), left, result.reason

    return run_virtual(story())


def test_a_run_that_is_cancelled_while_it_ends_leaves_no_write_to_the_next_run():
    queue, sink = FakeQueue(visibility=30), SlowWrites()
    queue.put(*range(25))

    assert cancelled_while_it_ends(sink, queue, 1, 0) == (True, 0, EndReason.TIP)
    assert sink.most == 1
    assert queue.messages == {}


def test_after_a_second_cancellation_no_run_starts_before_the_write_has_ended():
    queue, sink = FakeQueue(visibility=30), SlowWrites()
    queue.put(*range(25))
    with pytest.raises(rp.StateError, match="was cancelled twice, and its write has not ended"):
        cancelled_while_it_ends(sink, queue, 2, 0)

    queue, sink = FakeQueue(visibility=30), SlowWrites()
    queue.put(*range(25))
    assert cancelled_while_it_ends(sink, queue, 2, 30) == (True, 1, EndReason.TIP)
    assert sink.most == 1
    assert queue.messages == {}
