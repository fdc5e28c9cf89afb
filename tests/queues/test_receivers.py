"""How many receivers call, and what a source may not do."""

import asyncio
from math import inf

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.publishers.records import UserRecord
from recordpublisher.queues.job import QueueJob
from recordpublisher.testing.virtual_time import run_virtual

from fakes.queues.fake_queue import FakeQueue, FakeSource, queue_job


class ScriptedSource(FakeSource):
    """Each receive takes a second and brings as many records as the next number of the script says; then none for ever."""

    def __init__(self, script, receivers):
        super().__init__(FakeQueue(visibility=1000), receivers)
        self.script, self.calls, self.most_calls, self.number = list(script), 0, [], 0

    async def receive(self, metrics):
        self.calls += 1
        try:
            await asyncio.sleep(1)
            self.most_calls.append(self.calls)
            if not self.script:
                await asyncio.Event().wait()
            count = self.script.pop(0)
        finally:
            self.calls -= 1
        self.number += count
        return [UserRecord(b"1", str(self.number - index)) for index in range(count)]


def calls(script, receivers=4, full_bytes=inf):
    """How many calls ran at each receive of the script."""
    source = ScriptedSource(script, receivers)
    source.full_bytes = full_bytes

    async def job():
        made = queue_job(source.queue, rp.MemorySink(), source=source)
        await made.open()
        await made.run_bounded(Bounds(max_time=200))
        await made.close()

    run_virtual(job())
    return source.most_calls[: len(script)]


def test_one_receiver_calls_at_first_and_ten_full_receives_in_a_row_ask_for_one_more():
    assert max(calls([10] * 9 + [3] + [10] * 9)) == 1
    assert calls([10] * 10 + [3] * 6)[10:14] == [2, 1, 2, 1]


def test_large_records_ask_for_one_more_although_a_response_never_has_ten():
    assert calls([3] * 10 + [1] * 2, full_bytes=3)[10:] == [2, 1]
    assert max(calls([3] * 20, full_bytes=4)) == 1


def test_there_are_never_more_than_the_source_allows():
    assert max(calls([10] * 200, receivers=3)) == 3


def test_an_empty_receive_asks_for_one_less():
    assert calls([10] * 10 + [3, 3, 0] + [3] * 6)[-4:] == [1, 1, 1, 1]


def test_one_receiver_stays():
    assert calls([0, 0, 0, 3]) == [1, 1, 1, 1]


def run_with(receive):
    class Source(FakeSource):
        async def receive(self, metrics):
            return await receive(metrics)

    async def job():
        made = queue_job(FakeQueue(), rp.MemorySink(), source=Source(FakeQueue()))
        await made.open()
        try:
            await made.run_bounded(Bounds(max_time=10))
        finally:
            await made.close()

    run_virtual(job())


@pytest.mark.parametrize("given", [None, [b"x"], "text", {"a": 1}])
def test_a_receive_that_returns_no_records_is_named(given):
    async def receive(metrics):
        return given

    with pytest.raises(rp.PluginError, match=r"Source\.receive returned"):
        run_with(receive)


def test_a_receive_that_ends_as_cancelled_is_named():
    async def receive(metrics):
        raise asyncio.CancelledError

    with pytest.raises(rp.PluginError, match=r"`Source\.receive` raised CancelledError"):
        run_with(receive)


def test_a_source_that_says_at_once_that_it_is_empty_is_not_called_without_a_pause():
    calls = []

    async def receive(metrics):
        calls.append(1)
        return []

    run_with(receive)

    assert 90 < len(calls) < 110


@pytest.mark.parametrize("arrival", [float("nan"), float("inf"), -1e300])
def test_records_with_an_arrival_that_is_no_time_are_released(arrival):
    released = []

    class Source(FakeSource):
        async def receive(self, metrics):
            return [UserRecord(b"1", "a", arrival)]

        async def release(self, records):
            released.extend(record.sequence_number for record in records)

    async def job():
        made = queue_job(FakeQueue(), rp.MemorySink(), source=Source(FakeQueue()))
        await made.open()
        with pytest.raises(rp.PluginError, match="Source"):
            await made.run_bounded(Bounds(max_time=10))
        await made.close()

    run_virtual(job())
    assert released == ["a"]


def test_an_error_of_a_receive_ends_the_run():
    async def receive(metrics):
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        run_with(receive)


@pytest.mark.parametrize("name", ["until_event_time", "shard_limits"])
def test_a_bound_that_needs_order_is_refused(name):
    async def job():
        made: QueueJob = queue_job(FakeQueue(), rp.MemorySink())
        with pytest.raises(rp.ConfigurationError, match="max_time, max_records or stop_at_tip"):
            await made.run_bounded(Bounds(**{name: 1 if name == "until_event_time" else {"a": 1}}))

    run_virtual(job())


def test_what_is_received_and_not_written_is_bounded_in_bytes():
    queue, gate = FakeQueue(), asyncio.Event()
    queue.put(*range(500), data=b"1" * 1000)

    class Slow(rp.MemorySink):
        async def write(self, batch):
            await gate.wait()

    async def job():
        made = queue_job(queue, Slow(), receivers=8, properties={"flink.memory.worker.bytes": 1})
        made._receivers._wanted = 8
        await made.open()
        running = asyncio.create_task(made.run_bounded(Bounds(max_time=20)))
        await asyncio.sleep(3)
        held = made.metrics()["worker"]["budgetUsedBytes"]
        gate.set()
        await running
        await made.close()
        return held

    assert 0 < run_virtual(job()) < 8 * 15_000


class Full(rp.MemorySink):
    """It has no room until its test says so."""

    is_full = True

    async def open(self, context):
        self.resume = context.resume_writing

    def has_room(self):
        return not self.is_full


def test_a_sink_without_room_is_given_nothing_until_it_has_room():
    queue, given = FakeQueue(), []
    queue.put(*range(20))

    async def job():
        sink = Full()
        made = queue_job(queue, sink)
        await made.open()
        running = asyncio.create_task(made.run_bounded(Bounds(stop_at_tip=True)))
        await asyncio.sleep(3)
        given.append(len(sink.records))
        sink.is_full = False
        sink.resume()
        await running
        given.append(len(sink.records))
        await made.close()

    run_virtual(job())
    assert given == [0, 20]


def test_after_a_suspension_beyond_the_timeout_what_waits_to_be_written_is_dropped_and_comes_again():
    queue = FakeQueue(visibility=4)
    queue.put(*range(10))

    async def job():
        sink = Full()
        made = queue_job(queue, sink)
        await made.open()
        running = asyncio.create_task(made.run_bounded(Bounds(max_time=30)))
        await asyncio.sleep(1)
        asyncio.get_running_loop().suspend(10)
        for number in range(5, 10):  # another process has received and acknowledged them
            del queue.messages[str(number)]
        sink.is_full = False
        sink.resume()
        await running
        await made.close()
        return [record.sequence_number for record in sink.records]

    assert run_virtual(job()) == [str(number) for number in range(5)]
    assert not queue.messages


def test_after_a_suspension_beyond_the_timeout_a_response_that_waited_in_the_socket_is_dropped():
    queue, sink = FakeQueue(visibility=4), Full()
    sink.is_full = False

    class Source(FakeSource):
        async def _take(self):
            records = await super()._take()
            if records and not queue.late:
                asyncio.get_running_loop().suspend(10)
                for number in range(5, 10):  # another process has received and acknowledged them
                    queue.messages.pop(str(number), None)
            return records

    queue.put(*range(10))

    async def job():
        made = queue_job(queue, sink, source=Source(queue))
        await made.open()
        await made.run_bounded(Bounds(max_time=30))
        await made.close()
        return [record.sequence_number for record in sink.records]

    assert run_virtual(job()) == [str(number) for number in range(5)]
    assert not queue.messages


def test_a_second_run_is_ready_only_when_it_has_received_itself():
    queue = FakeQueue()
    source = FakeSource(queue, 1)

    async def story():
        job = queue_job(queue, rp.MemorySink(), source=source)
        await job.open()
        await job.run_bounded(Bounds(max_time=5))
        source.receive = lambda metrics: asyncio.sleep(1_000)  # the queue does not answer
        running = asyncio.create_task(job.run_bounded(Bounds(max_time=60)))
        await asyncio.sleep(1)
        waiting = asyncio.create_task(job.wait_ready())
        await asyncio.sleep(20)
        ready = waiting.done(), job.reasons_not_ready()
        await asyncio.wait([running, waiting])
        await job.close()
        return ready

    assert run_virtual(story()) == (False, ["nothing was received yet"])
