"""A record of several parts is acknowledged when all of its parts are done under one receipt; on virtual time."""

import asyncio
import gzip
from dataclasses import replace

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.pipeline.bounded_runs import Bounds, EndReason
from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.plugins.runtime.argument_checks import batch_decorator_factory
from recordpublisher.publishers.errors import TransientError
from recordpublisher.publishers.properties.job_properties import OnBadRecord
from recordpublisher.queues.job import QueueJob, QueueJobParts, QueueSettings
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.queues.fake_queue import FakeQueue, FakeSource, ReceivedRecord, queue_job


class CommittingRows(rp.Sink):
    """Commits when two parts wait. The first write takes longer than the visibility."""

    def __init__(self):
        self.waiting, self.durable, self.writes = [], set(), 0

    async def open(self, context):
        self.context = context

    async def write(self, batch):
        self.writes += 1
        self.waiting += batch.sub_sequence_numbers
        if len(self.waiting) >= 2:
            self.context.request_checkpoint()
        await asyncio.sleep(9 if self.writes == 1 else 0.5)

    async def flush(self, checkpoint=None):
        self.durable |= set(self.waiting)
        self.waiting = []


def test_a_part_that_was_written_under_an_earlier_receipt_does_not_count_for_the_next_one():
    queue, sink = FakeQueue(visibility=8), CommittingRows()
    queue.put(1, parts=2, data=gzip.compress(b"1" * 5 * 2**20))  # each part is written alone
    queue.failures["prolong"] = [TransientError("Prolong", "503", "away")] * 6
    given = rp.Properties({"flink.deserializer.compression": "GZIP"})

    async def run():
        job = QueueJob(
            QueueJobParts(
                source=FakeSource(queue, 1),
                stream="s",
                sink=sink,
                decorator_for=batch_decorator_factory(load_registry(), given),
                settings=replace(QueueSettings.of(given), flush_interval_ms=60_000),
                clock=VirtualClock(),
            )
        )
        await job.open()
        await job.run_bounded(Bounds(max_time=200))
        await job.close()

    run_virtual(run())
    assert queue.acknowledged == ["1"]
    assert sink.durable == {0, 1}


def test_what_a_handler_of_an_earlier_run_says_does_not_count_for_the_record_that_came_again():
    queue, calls, first_may_end = FakeQueue(visibility=8), [], asyncio.Event()
    queue.put(1, parts=2)

    async def handler(record):
        calls.append(record.sub_sequence_number)
        if record.sub_sequence_number == 1:
            await asyncio.sleep(10_000)
        elif calls.count(0) == 1:
            await first_may_end.wait()

    async def run():
        sink = rp.MapSink(handler, ordering="NONE", clock=VirtualClock())
        job = queue_job(queue, sink, properties={"flink.job.drain.timeout": "1000"})
        await job.open()
        await job.run_bounded(Bounds(max_time=3))
        running = asyncio.create_task(job.run_bounded(Bounds(max_time=60)))
        await asyncio.sleep(5)
        first_may_end.set()
        await asyncio.sleep(5)
        acknowledged = list(queue.acknowledged)
        running.cancel()
        await asyncio.wait([running])
        return acknowledged

    assert run_virtual(run()) == []  # its second part was never handled


def test_an_aggregate_is_handled_whole_even_beyond_the_bound_of_a_run():
    """A run that ended within it would acknowledge nothing, and so would each further run, until the queue gives the record up."""
    queue, handled = FakeQueue(visibility=8), []
    queue.put(1, parts=3)
    queue.put(2)

    async def handler(record):
        handled.append((record.sequence_number, record.sub_sequence_number))

    async def run():
        job = queue_job(queue, rp.MapSink(handler, ordering="NONE", clock=VirtualClock()))
        await job.open()
        result = await job.run_bounded(Bounds(max_records=2))
        await job.close()
        return result

    assert run_virtual(run()).reason is EndReason.MAX_RECORDS
    assert handled == [("1", 0), ("1", 1), ("1", 2)]
    assert queue.acknowledged == ["1"]


def test_a_record_whose_write_has_failed_is_passed_on_in_the_next_run():
    queue, written = FakeQueue(visibility=8), []
    queue.put(1)

    class FailsOnce(rp.Sink):
        tells_done = True

        async def open(self, context):
            self.done = context.done

        async def write(self, batch):
            written.append(batch.sequence_numbers)
            if len(written) == 1:
                raise rp.SinkError("once")
            for number in batch.sequence_numbers:
                self.done(batch.shard.key, number)

        async def flush(self, checkpoint=None):
            pass

    async def run():
        job = queue_job(queue, FailsOnce())
        await job.open()
        with pytest.raises(rp.SinkError):
            await job.run_bounded(Bounds(max_time=30))
        await job.run_bounded(Bounds(max_time=30))
        await job.close()

    run_virtual(run())
    assert written == [["1"], ["1"]]
    assert queue.acknowledged == ["1"]


def test_records_that_a_sink_has_not_reported_after_its_last_flush_are_told(caplog):
    queue = FakeQueue(visibility=8)
    for number in (1, 2, 3):
        queue.put(number)

    class ForgetsRejected(rp.Sink):
        tells_done = True

        async def open(self, context):
            self.context = context

        async def write(self, batch):
            for index, number in enumerate(batch.sequence_numbers):
                if number == "2":
                    await self.context.reject(batch.slice(index, index + 1), "no")
                else:
                    self.context.done(batch.shard.key, number)

    async def run():
        job = queue_job(queue, ForgetsRejected(), OnBadRecord.SKIP)
        await job.open()
        await job.run_bounded(Bounds(max_time=30))
        await job.close()

    run_virtual(run())
    assert set(queue.acknowledged) == {"1", "3"}
    (line,) = (line for line in caplog.messages if "has not reported 1 record as finished" in line)
    assert "for a rejected one after `reject` has returned" in line


def test_parts_of_different_data_and_the_same_numbers_end_the_job():
    class Unnumbered(FakeSource):
        async def receive(self, metrics):
            received = await super().receive(metrics)
            return [
                ReceivedRecord(b"%d" % part, each.sequence_number, each.arrival, handle=each.handle)
                for each in received
                for part in range(3)
            ]

    async def run():
        queue = FakeQueue()
        queue.put(1)
        job = queue_job(queue, rp.MemorySink(), source=Unnumbered(queue))
        await job.open()
        try:
            with pytest.raises(rp.PluginError, match="number them: sub_sequence_number=0, 1 and so on"):
                await job.run_bounded(Bounds(stop_at_tip=True, max_time=60))
        finally:
            await job.close()
        return queue.acknowledged

    assert run_virtual(run()) == []
