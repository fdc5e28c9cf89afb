"""A source without positions on virtual time: what is acknowledged when, by sinks that are flushed and by sinks that tell what is done."""

import asyncio

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.pipeline.bounded_runs import Bounds, EndReason
from recordpublisher.publishers.errors import FatalKinesisError, StoreUnavailableError, TransientError
from recordpublisher.publishers.properties.job_properties import OnBadRecord
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.queues.fake_queue import FakeQueue, FakeSource, queue_job, work


class FlushedSink(rp.MemorySink):
    """Knows what was acknowledged when it was flushed: nothing that is not durable."""

    def __init__(self, queue: FakeQueue) -> None:
        super().__init__()
        self._queue = queue
        self.durable: set[str] = set()
        self.flush_seconds = 0.3

    async def write(self, batch):
        await super().write(batch)
        self.check()

    async def flush(self, checkpoint=None):
        written = {record.sequence_number for record in self.records}
        await asyncio.sleep(self.flush_seconds)
        self.check()
        self.durable |= written

    def check(self):
        assert set(self._queue.acknowledged) <= self.durable


def failures(fetcher, name="failed_acknowledgements"):
    return sum(shard["failedAcknowledgements"] for shard in fetcher.metrics()["shards"].values())


def test_records_are_acknowledged_once_after_the_flush_that_follows_their_write():
    queue = FakeQueue()
    queue.put(*range(555))
    sink = FlushedSink(queue)

    fetcher, result = run_virtual(work(queue, sink))

    assert result.reason is EndReason.TIP
    assert sorted(queue.acknowledged, key=int) == [str(number) for number in range(555)]
    assert len(sink.records) == 555
    assert not queue.messages
    assert not queue.late
    assert fetcher.snapshot()["shards"] == {}


@pytest.mark.slow
def test_a_sink_with_an_interval_commits_by_it_and_its_records_are_prolonged_meanwhile():
    queue, flushed = FakeQueue(visibility=8), []
    queue.put(*range(5_000))

    class Commits(rp.MemorySink):
        async def flush(self, checkpoint=None):
            flushed.append((asyncio.get_running_loop().time(), len(self.records)))

    given = {"flink.sink": "delta"}
    run_virtual(work(queue, Commits(), Bounds(max_time=100), properties=given))

    assert [(int(time + 0.1), count) for time, count in flushed] == [(0, 0), (60, 5_000), (100, 5_000)]
    assert sorted(queue.acknowledged, key=int) == [str(number) for number in range(5_000)]
    assert len(queue.prolonged) >= 5_000
    assert not queue.late


def test_a_slow_handler_keeps_its_record_and_no_other():
    queue, calls, seen = FakeQueue(visibility=4), [], []
    queue.put(*range(40))

    async def handler(record):
        calls.append(record.value)
        if record.value == 3:
            await asyncio.sleep(20)
            seen.append(set(queue.messages))

    run_virtual(work(queue, rp.MapSink(handler, ordering="NONE", clock=VirtualClock())))

    assert seen == [{"3"}]
    assert len(calls) == 40
    assert len(queue.acknowledged) == 40
    assert set(queue.prolonged) == {"3"}


def test_a_skipped_record_is_acknowledged():
    queue = FakeQueue()
    queue.put(*range(5))
    queue.put(7, data=b"{no json")
    sink = rp.MemorySink()

    job, _ = run_virtual(work(queue, sink, on_poison=OnBadRecord.SKIP))

    assert len(sink.records) == 5
    assert not queue.messages
    assert queue.acknowledged[0] == "7"
    assert job.metrics()["worker"]["skippedRecords"] == 1
    assert job.progress().records == 6


def test_a_skipped_record_that_is_received_again_counts_when_it_is_acknowledged():
    queue, sink = FakeQueue(visibility=8), rp.MemorySink()
    queue.put(*range(4))
    queue.put(7, data=b"{no json")

    async def run():
        job = queue_job(queue, sink, on_poison=OnBadRecord.SKIP, receivers=1)
        await job.open()
        counts = []
        for bounds in (Bounds(max_records=1, max_time=60), Bounds(stop_at_tip=True, max_time=60)):
            await job.run_bounded(bounds)
            counts.append((job.metrics()["worker"]["skippedRecords"], "7" in queue.acknowledged))
        await job.close()
        return counts

    assert run_virtual(run()) == [(0, False), (1, True)]


def test_a_dead_letter_is_acknowledged_when_it_is_durable():
    queue = FakeQueue()
    queue.put(1, 2, data=b"{no json")
    letters = FlushedSink(queue)

    run_virtual(work(queue, rp.MemorySink(), on_poison=OnBadRecord.DEAD_LETTER, dead_letters=letters))

    assert {record.sequence_number for record in letters.records} == {"1", "2"}
    assert not queue.messages


def test_what_a_handler_cannot_handle_is_acknowledged_as_a_durable_dead_letter():
    queue = FakeQueue()
    queue.put(*range(9))
    letters = FlushedSink(queue)
    letters.durable = {str(number) for number in range(9) if number != 4}

    def handler(record):
        if record.value == 4:
            raise ValueError("bad")

    sink = rp.MapSink(handler, retries=0, on_failure="DEAD_LETTER", clock=VirtualClock())
    run_virtual(work(queue, sink, dead_letters=letters))

    assert [record.sequence_number for record in letters.records] == ["4"]
    assert not queue.messages


def test_parts_of_an_aggregate_are_acknowledged_as_one_when_all_are_done():
    queue, seen = FakeQueue(), []
    queue.put(1, parts=3)

    async def handler(record):
        await asyncio.sleep(record.sub_sequence_number)
        seen.append(list(queue.acknowledged))

    run_virtual(work(queue, rp.MapSink(handler, ordering="NONE", clock=VirtualClock())))

    assert seen == [[], [], []]
    assert queue.acknowledged == ["1"]


def test_a_receiver_waits_while_a_hundred_of_its_records_are_open():
    queue, gate = FakeQueue(), asyncio.Event()
    queue.put(*range(500))

    async def job():
        async def handler(record):
            await gate.wait()

        fetcher = queue_job(queue, rp.MapSink(handler, ordering="NONE", clock=VirtualClock()), receivers=2)
        await fetcher.open()
        running = asyncio.create_task(fetcher.run_bounded(Bounds(max_time=100)))
        await asyncio.sleep(50)
        hidden = len(queue.hidden(50))
        gate.set()
        await running
        await fetcher.close()
        return hidden

    assert run_virtual(job()) == 100
    assert not queue.messages


def test_stop_releases_what_no_handler_has_begun():
    queue = FakeQueue()
    queue.put(*range(300))
    handled = []

    async def job():
        async def handler(record):
            await asyncio.sleep(3)
            handled.append(record.sequence_number)

        fetcher = queue_job(queue, rp.MapSink(handler, ordering="NONE", concurrency=8, clock=VirtualClock()))
        await fetcher.open()
        asyncio.get_running_loop().call_later(4, fetcher.stop)
        await fetcher.run()
        await fetcher.close()
        assert failures(fetcher, "unacknowledged") == 0
        return queue.hidden(asyncio.get_running_loop().time())

    assert run_virtual(job()) == []
    assert sorted(handled) == sorted(queue.acknowledged)
    assert len(handled) == 16
    assert len(queue.messages) == 284


def test_a_failed_write_releases_what_is_open():
    queue = FakeQueue()
    queue.put(*range(30))

    class Failing(rp.MemorySink):
        async def write(self, batch):
            raise rp.SinkError("boom")

    async def job():
        with pytest.raises(rp.SinkError):
            await work(queue, Failing())
        return queue.hidden(asyncio.get_running_loop().time())

    assert run_virtual(job()) == []
    assert len(queue.messages) == 30
    assert not queue.acknowledged


class BufferingSink(rp.MemorySink):
    """Keeps its rows until they are flushed. Loses all of them with an error, after ten seconds, and the next flush succeeds."""

    def __init__(self, fails_in):
        super().__init__()
        self.buffered, self.durable, self.fails_in = [], [], fails_in

    async def write(self, batch):
        if self.fails_in == "write" and self.buffered:
            await self._lose()
        self.buffered += batch.sequence_numbers

    async def flush(self, checkpoint=None):
        if self.fails_in == "flush" and self.buffered:
            await self._lose()
        self.durable += self.buffered
        self.buffered = []

    async def _lose(self):
        self.fails_in = None
        await asyncio.sleep(10)
        self.buffered = []
        raise rp.SinkError("the rows are lost")


@pytest.mark.parametrize("fails_in", ["write", "flush"])
@pytest.mark.parametrize("stops", [True, False])
def test_rows_that_a_sink_has_lost_with_its_error_are_received_again(fails_in, stops):
    """Also if the job is stopped while the call fails, and although the next flush succeeds."""
    queue, sink = FakeQueue(visibility=60), BufferingSink(fails_in)
    queue.put(*range(20))

    async def job():
        fetcher = queue_job(queue, sink, receivers=1)
        await fetcher.open()
        if stops:
            asyncio.get_running_loop().call_later(5, fetcher.stop)
        with pytest.raises(rp.SinkError, match="the rows are lost"):
            await fetcher.run()
        await fetcher.close()

    run_virtual(job())

    assert set(queue.acknowledged) <= set(sink.durable)
    assert len(queue.messages) + len(sink.durable) == 20


def test_a_failed_acknowledgement_is_counted_and_its_records_come_again():
    queue = FakeQueue(visibility=3)
    queue.put(*range(10))
    queue.failures["acknowledge"] = [TransientError("Acknowledge", "InternalFailure", "no"), OSError("gone")]
    sink = rp.MemorySink()

    fetcher, _ = run_virtual(work(queue, sink, Bounds(max_time=30)))

    assert not queue.messages
    assert len(sink.records) == 10  # what was handled is acknowledged when it comes again, and not handled again
    assert failures(fetcher) == 20


@pytest.mark.parametrize("name", ["acknowledge", "prolong"])
def test_a_denied_call_ends_the_job(name):
    queue = FakeQueue(visibility=3)
    queue.put(1)
    queue.failures[name] = [FatalKinesisError(name, "AccessDeniedException", "not you")]

    async def handler(record):
        if name == "prolong":
            await asyncio.sleep(10)

    with pytest.raises(FatalKinesisError, match="not you"):
        run_virtual(work(queue, rp.MapSink(handler, clock=VirtualClock()), Bounds(max_time=100)))


def test_a_failed_prolonging_is_tried_again_in_time():
    queue = FakeQueue(visibility=8)
    queue.put(1)
    queue.failures["prolong"] = [OSError("gone")]
    calls = []

    async def handler(record):
        calls.append(record.value)
        await asyncio.sleep(30)

    run_virtual(work(queue, rp.MapSink(handler, clock=VirtualClock())))

    assert calls == [1]
    assert not queue.late


def test_after_a_suspension_beyond_the_timeout_what_is_not_written_is_dropped():
    queue, gate = FakeQueue(visibility=4), asyncio.Event()
    queue.put(*range(20))

    class Slow(rp.MemorySink):
        async def write(self, batch):
            await gate.wait()
            await super().write(batch)

    async def job():
        sink = Slow()
        fetcher = queue_job(queue, sink, receivers=1)
        await fetcher.open()
        running = asyncio.create_task(fetcher.run_bounded(Bounds(max_time=30)))
        await asyncio.sleep(1)
        asyncio.get_running_loop().suspend(10)
        for number in range(10, 20):  # another process has received and acknowledged them
            del queue.messages[str(number)]
        gate.set()
        await running
        await fetcher.close()
        return [record.sequence_number for record in sink.records]

    assert set(run_virtual(job())) == {str(number) for number in range(10)}
    assert not queue.messages


def test_while_the_sinks_store_is_away_the_job_waits_in_place():
    queue = FakeQueue(visibility=4)
    queue.put(*range(20))
    sink = FlushedSink(queue)
    flush = sink.flush

    async def away(checkpoint=None):
        if 1 < asyncio.get_running_loop().time() < 60:
            raise StoreUnavailableError("away")
        await flush(checkpoint)

    sink.flush = away
    run_virtual(work(queue, sink, Bounds(max_time=120), properties={"flink.job.max.outage": 300_000}))

    assert not queue.messages
    assert len(sink.records) == 20


def test_a_run_to_the_tip_ends_when_each_receiver_had_an_empty_receive():
    async def job():
        await work(FakeQueue(), rp.MemorySink(), receivers=3)
        return asyncio.get_running_loop().time()

    assert 1 <= run_virtual(job()) < 4


def test_a_further_run_goes_on():
    queue, sink = FakeQueue(), rp.MemorySink()
    queue.put(*range(50))

    async def job():
        fetcher = queue_job(queue, sink)
        await fetcher.open()
        while (await fetcher.run_bounded(Bounds(max_records=7, stop_at_tip=True))).reason is EndReason.MAX_RECORDS:
            pass
        await fetcher.close()

    run_virtual(job())
    assert sorted(int(record.sequence_number) for record in sink.records) == list(range(50))
    assert not queue.messages
    assert not sink.watermarks


@pytest.mark.parametrize("seconds", [0, -1.0, float("inf"), float("nan"), "30"])
def test_a_visibility_that_is_no_time_is_refused(seconds):
    with pytest.raises(rp.PluginError, match=r"FakeSource\.visibility_seconds is"):
        queue_job(FakeQueue(visibility=seconds), rp.MemorySink())


def test_a_job_whose_source_has_positions_has_no_acknowledgements():
    from fakes.scripted_source import RecordingSink, ScriptedSource, make_fetcher

    opened = []

    class Sink(RecordingSink):
        async def open(self, context):
            opened.append(context.done)

    source = ScriptedSource()
    source.add("a", 1)
    run_virtual(make_fetcher(source, Sink()).open())

    assert opened == [None]


def test_a_stop_while_the_sinks_store_is_away_takes_the_drain_timeout_and_not_the_longest_outage():
    async def job():
        queue = FakeQueue(visibility=4)
        queue.put(*range(20))
        sink, loop = FlushedSink(queue), asyncio.get_running_loop()
        flush = sink.flush

        async def away(checkpoint=None):
            if loop.time() > 1:
                raise StoreUnavailableError("away")
            await flush(checkpoint)

        sink.flush = away
        fetcher = queue_job(queue, sink)
        await fetcher.open()
        loop.call_later(60, fetcher.stop)
        with pytest.raises(StoreUnavailableError, match="away"):
            await fetcher.run()
        await fetcher.close()
        return len(queue.messages), loop.time()

    left, ended_at = run_virtual(job())
    assert left == 20
    assert 80 <= ended_at < 95


class RejectingSink(rp.MemorySink):
    """Rejects each record."""

    async def open(self, context):
        self._context = context

    async def write(self, batch):
        await self._context.reject(batch.slice(0, 1), "refused")


def test_the_error_of_a_rejected_record_names_no_command_that_queues_refuse():
    queue = FakeQueue()
    queue.put(1, 2)

    with pytest.raises(rp.SinkError, match="cannot be written: refused") as raised:
        run_virtual(work(queue, RejectingSink()))

    assert "recordpublisher tail" not in str(raised.value)
    assert "flink.deserializer.error = DEAD_LETTER" in str(raised.value)
    assert "`recordpublisher dead-letters show`" in str(raised.value)


class SlowAcknowledgement(FakeSource):
    """Its first acknowledgement takes long."""

    seconds = 5

    async def acknowledge(self, records):
        seconds, self.seconds = self.seconds, 0
        await asyncio.sleep(seconds)
        await super().acknowledge(records)


def test_a_run_that_is_cancelled_during_its_last_acknowledgement_releases_the_other_records():
    queue, sink = FakeQueue(visibility=8), rp.MemorySink()
    queue.put(*range(10))

    async def story():
        job = queue_job(queue, sink, source=SlowAcknowledgement(queue, 1))
        await job.open()
        running = asyncio.create_task(job.run_bounded(Bounds(max_records=3)))
        await asyncio.sleep(1)
        running.cancel()
        await asyncio.wait([running])
        released = sorted(queue.released)
        await job.run_bounded(Bounds(max_time=60))
        await job.close()
        return released

    # The second run gets them again: they are not taken for records that the sink still has.
    assert run_virtual(story()) == [str(number) for number in range(3, 10)]
    assert sorted(record.sequence_number for record in sink.records) == [str(number) for number in range(10)]
    assert queue.messages == {}
