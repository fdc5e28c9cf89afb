"""One task: puts rows as fast as they are acknowledged, counts them, and closes its writers after an error."""

from __future__ import annotations

from contextlib import ExitStack

import pyarrow as pa
import pytest

from recordpublisher.plugins.spark.python_worker import WorkerLoop
from recordpublisher.plugins.spark.rows_to_records import SLICE_ROWS, RowsToRecords, WriteColumns
from recordpublisher.plugins.spark.write_options import WriteOptions
from recordpublisher.plugins.spark.writer import MAX_OPEN_STREAMS, TaskWrite, WriterPool
from recordpublisher.publishers.errors import SinkError, StreamNotFoundError

from fakes.writable_stream import FakeKinesis


class Worker:
    """The event loop of a worker process, with a fake stream."""

    def __init__(self, fake, **options):
        self.fake, self.loop, self.opened = fake, WorkerLoop(), 0
        self.options = WriteOptions.parse({"stream": "out", **options})

    def task(self, batches, rows=None, attempt=0):
        rows = rows or RowsToRecords(WriteColumns(0, 1), "out")
        return TaskWrite(3, attempt, "task 3 of batch 7", rows, self.loop, ("write",), self.make).run(batches)

    def make(self):
        self.opened += 1
        return WriterPool(self.options.settings, lambda stream: self.fake)

    def end(self):
        self.loop.run(self.loop.cached(("write",), self.make).abandon())


@pytest.fixture
def start():
    """Starts a worker, which ends with the test."""
    with ExitStack() as ends:

        def started(fake, **options):
            worker = Worker(fake, **options)
            ends.callback(worker.end)
            return worker

        yield started


def rows(count, start=0, size=8):
    numbers = range(start, start + count)
    return pa.record_batch([[b"%d" % n + bytes(size) for n in numbers], [f"k{n}" for n in numbers]], names=["d", "k"])


def payloads(fake):
    return sorted(int(data.rstrip(b"\0")) for _, data in fake.user_records())


def test_rows_are_put_and_counted(start):
    worker = start(FakeKinesis(2))
    figures = worker.task([rows(700), rows(0), rows(300, 700)])
    assert payloads(worker.fake) == list(range(1000))
    assert (figures.task, figures.records, figures.kinesis_records, figures.given_up) == (3, 1000, 1000, 0)
    assert figures.bytes == sum(len(data) + len(key) for key, data in worker.fake.user_records())


def test_writers_are_reused_between_tasks_and_counts_are_per_task(start):
    worker = start(FakeKinesis())
    assert [worker.task([rows(10)]).records, worker.task([rows(20)]).records] == [10, 20]
    assert (worker.opened, worker.fake.listings) == (1, 1)


def test_writers_are_closed_when_rows_name_too_many_streams(start):
    fakes = {f"s{n}": FakeKinesis() for n in range(MAX_OPEN_STREAMS + 10)}
    worker = start(FakeKinesis())
    worker.make = lambda: WriterPool(worker.options.settings, fakes.__getitem__)
    named = pa.record_batch(
        [[b"%d" % n for n in range(len(fakes))], ["k"] * len(fakes), list(fakes)], names=["d", "k", "s"]
    )
    figures = worker.task([named], RowsToRecords(WriteColumns(0, 1, stream=2), None))
    assert [fake.user_records() for fake in fakes.values()] == [[("k", b"%d" % n)] for n in range(len(fakes))]
    assert figures.records == len(fakes)
    assert sum(not fake.is_closed for fake in fakes.values()) == 10


def test_an_aggregating_task_puts_fewer_records(start):
    worker = start(FakeKinesis(), aggregationenabled="true")
    figures = worker.task([rows(1000)])
    assert payloads(worker.fake) == list(range(1000))
    assert figures.records == 1000
    assert figures.kinesis_records < 50


def test_k1_rows_are_read_only_as_fast_as_they_are_acknowledged(start):
    """The rows read from Spark and not acknowledged are at most those of the queue and of one slice."""
    limit, piece = 300, 100
    worker = start(FakeKinesis(), **{"flink.sink.kinesis.queue.limit": str(limit), "ratelimit": "10000"})
    ahead = []

    def batches():
        for number in range(30):
            ahead.append(number * piece - len(worker.fake.user_records()))
            yield rows(piece, number * piece)

    figures = worker.task(batches())
    assert payloads(worker.fake) == list(range(30 * piece))
    assert max(ahead) <= limit
    assert figures.waits > 0


def test_k2_throttled_records_are_retried_and_counted(start):
    fake = FakeKinesis()
    fake.rate = 2_000.0
    worker = start(fake, ratelimit="1000")
    figures = worker.task([rows(SLICE_ROWS), rows(SLICE_ROWS, SLICE_ROWS)])
    assert payloads(fake) == list(range(2 * SLICE_ROWS))
    assert figures.throttles > 0
    assert figures.retries >= figures.throttles


@pytest.mark.parametrize("batch", [rows(1, size=2**20), pa.record_batch([[b"1"], ["k" * 257]], names=["d", "k"])])
def test_k3_an_invalid_row_is_named_with_its_task(start, batch):
    worker = start(FakeKinesis())
    with pytest.raises(
        SinkError, match=r"task 3 of batch 7: a record with the partition key 'k.* was not put into out"
    ):
        worker.task([batch])


def test_after_a_failure_the_next_attempt_has_writers_of_its_own(start):
    worker = start(FakeKinesis())

    def failing():
        yield rows(10)
        raise OSError("the query above failed")

    with pytest.raises(OSError, match="above"):
        worker.task(failing())
    assert worker.task([rows(10)], attempt=1).records == 10
    assert worker.opened == 2


def test_a_missing_stream_is_named(start):
    worker = start(FakeKinesis())

    async def missing(stream):
        raise StreamNotFoundError(stream, ["in"])

    worker.fake.stream_summary = missing
    with pytest.raises(SinkError, match="task 3 of batch 7: stream 'out' does not exist; existing streams: in"):
        worker.task([rows(1)])
