"""Rows that cannot be put become dead letters or are counted; the others are written (S7, K3)."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import ExitStack

import pyarrow as pa
import pytest

import recordpublisher as rp
from recordpublisher.plugins.sinks.kinesis.pending_records import FailedRecord
from recordpublisher.plugins.spark import writer
from recordpublisher.plugins.spark.python_worker import WorkerLoop
from recordpublisher.plugins.spark.rows_to_records import IdField, RejectedRows, RowIds, RowsToRecords, WriteColumns
from recordpublisher.plugins.spark.write_options import WriteOptions, dead_letter_sink
from recordpublisher.plugins.spark.writer import TaskWrite, WriterPool, rejected_rows
from recordpublisher.publishers.errors import SinkError
from recordpublisher.testing import run_virtual

from fakes.writable_stream import FakeKinesis

LARGE = bytes(2**20)


class Job:
    """Tasks of batch 7 in one worker, over a fake stream."""

    def __init__(self, folder, **options):
        self.folder, self.fake, self.loop = folder, FakeKinesis(), WorkerLoop()
        self.options = WriteOptions.parse({"stream": "out", **options})
        self.writers: list[WriterPool] = []

    def run(self, batches, task=3, columns=WriteColumns(0, 1), id_field=None):  # noqa: B008
        where, scope = f"task {task} of batch 7", f"query/7/{task}"
        stream = "out" if columns.stream is None else None
        ids = (None, None) if id_field is None else (RowIds(scope), IdField(id_field))
        rejected = rejected_rows(self.options, task, where, scope)
        rows = RowsToRecords(columns, stream, *ids)
        return TaskWrite(task, 0, where, rows, self.loop, ("write",), self.make, rejected).run(batches)

    def make(self):
        self.writers.append(WriterPool(self.options.settings, lambda _: self.fake, reports_failures=True))
        return self.writers[-1]

    def letters(self):
        files = sorted(self.folder.glob("*/*/*.jsonl"))
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def end(self):
        for writers in self.writers:
            self.loop.run(writers.abandon())


@pytest.fixture
def job(tmp_path):
    """Makes a job, which ends with the test."""
    with ExitStack() as ends:

        def made(**options):
            started = Job(tmp_path / "letters", **options)
            ends.callback(started.end)
            return started

        yield made


def rows(*data, keys=None):
    keys = keys or [f"k{n}" for n in range(len(data))]
    return pa.record_batch([pa.array(data, pa.binary()), pa.array(keys, pa.string())], names=["data", "key"])


def test_a_dead_letter_has_the_row_its_task_and_what_is_valid(job, tmp_path):
    writing = job(deadletters=str(tmp_path / "letters"))
    figures = writing.run([rows(b"a", LARGE, b"b")])
    assert sorted(data for _, data in writing.fake.user_records()) == [b"a", b"b"]
    assert (figures.records, figures.given_up, figures.dead_letters) == (2, 1, 1)
    (letter,) = writing.letters()
    assert (letter["stream"], letter["shardId"], letter["partitionKey"]) == ("out", "task-3-of-batch-7", "k1")
    assert letter["value"]["payload"] == LARGE.decode()
    assert letter["value"]["error"] == (
        "task 3 of batch 7: a row of 1048576 bytes with the partition key 'k1' was not put into out: "
        "ValidationException: data and key have 1048578 bytes, but the stream accepts at most 1048576 (MaxRecordSizeInKiB)"
    )


def test_rows_without_data_target_or_room_for_an_id_become_dead_letters(job, tmp_path):
    writing = job(deadletters=str(tmp_path / "letters"))
    batch = rows(b'{"n": 1}', None, b"no object", b'{"id": 2}', b'{"n": 3}')
    batch = batch.append_column("stream", pa.array(["out", "out", "out", "out", None]))
    figures = writing.run([batch], columns=WriteColumns(0, 1, stream=2), id_field="id")
    assert [json.loads(data)["n"] for _, data in writing.fake.user_records()] == [1]
    assert (figures.records, figures.given_up, figures.dead_letters) == (1, 4, 4)
    errors = {(letter["stream"], letter["partitionKey"]): letter["value"]["error"] for letter in writing.letters()}
    assert "the row has no data (null)" in errors["out", "k1"]
    assert "idField adds 'id' to a JSON object, but the data of a row is b'no object'" in errors["out", "k2"]
    assert "the data of a row already has that field" in errors["out", "k3"]
    assert "the row has no stream (null)" in errors["null", "k4"]


def test_rows_whose_retries_are_used_up_become_dead_letters_and_the_next_task_continues(job, tmp_path):
    writing = job(deadletters=str(tmp_path / "letters"), **{"maxOutage": "0"})
    writing.fake.refuse = lambda entry: "InternalFailure" if entry.data == b"b" else None
    figures = writing.run([rows(b"a", b"b", b"c")])
    assert (figures.records, figures.dead_letters) == (2, 1)
    (letter,) = writing.letters()
    assert (
        "a row of 1 bytes with the partition key 'k1' was not put into out: InternalFailure" in letter["value"]["error"]
    )
    assert writing.run([rows(b"a")]).records == 1


def test_a_repeated_task_writes_the_same_dead_letters(job, tmp_path):
    writing = job(deadletters=str(tmp_path / "letters"))
    for _ in range(2):
        writing.run([rows(LARGE, b"a", LARGE)])
    counts = Counter(letter["sequenceNumber"] for letter in writing.letters())
    assert len(counts) == 2  # equal rows are two rows


async def test_concurrent_tasks_and_attempts_write_dead_letters_beside_each_other(job, tmp_path):
    make = dead_letter_sink(job(deadletters=str(tmp_path / "letters")).options.properties)
    tasks = [RejectedRows(make, task, f"task {task}", f"query/7/{task}") for task in (0, 1, 2, 1)]
    for rejected in tasks:
        rejected.add("out", FailedRecord(b"x", "k", None, "code", "words"))
        await rejected.write()
    for rejected in (tasks[0], tasks[2], tasks[3], tasks[1]):
        await rejected.wait_until_stored()
    assert len(list((tmp_path / "letters").glob("out/*/*.jsonl"))) == 4  # no attempt replaces the letters of another


def test_skip_counts_bad_rows_and_logs_the_first(job, caplog):
    writing = job(onfailure="SKIP")
    figures = writing.run([rows(b"a", None, LARGE, LARGE)])
    assert (figures.records, figures.given_up, figures.dead_letters) == (1, 3, 0)
    (line,) = [line for line in caplog.messages if "was not put" in line]
    assert line.startswith("task 3 of batch 7: a row of 0 bytes with the partition key 'k1' was not put into out: ")


def test_dead_letters_that_cannot_be_written_fail_the_task(job, tmp_path):
    writing = job(deadletters=str(tmp_path / "letters"))
    (tmp_path / "letters").write_text("in the way")
    with pytest.raises(
        SinkError, match=r"task 3 of batch 7: property 'flink.sink.jsonl.path'.*a folder that can be written"
    ):
        writing.run([rows(LARGE)])


@pytest.mark.parametrize("options", [{"onfailure": "SKIP"}, {"deadletters": "LETTERS"}])
@pytest.mark.parametrize("data", [b"", b" ", b"\xff"])
def test_a_row_with_empty_data_has_no_room_for_an_id_either(job, tmp_path, options, data):
    writing = job(**{key: value.replace("LETTERS", str(tmp_path / "letters")) for key, value in options.items()})
    figures = writing.run([rows(b'{"n": 1}', data, b'{"n": 3}')], id_field="id")
    assert sorted(json.loads(data)["n"] for _, data in writing.fake.user_records()) == [1, 3]
    assert (figures.records, figures.given_up) == (2, 1)


class SinkOfAServiceThatIsAway(rp.Sink):
    """Its service answers after five minutes."""

    def __init__(self):
        self.rows = []

    async def open(self, context):
        self.context, self.back_at = context, asyncio.get_running_loop().time() + 300

    async def write(self, batch):
        await self.context.retry(lambda: self.post(batch.data), on=OSError)

    async def post(self, rows):
        if asyncio.get_running_loop().time() < self.back_at:
            raise ConnectionError("away")
        self.rows += rows


def test_dead_letters_wait_for_their_service_as_the_rows_wait_for_kinesis(monkeypatch):
    sink = SinkOfAServiceThatIsAway()
    monkeypatch.setattr(writer, "dead_letter_sink", lambda properties: lambda: sink)

    async def story():
        rejected = rejected_rows(WriteOptions.parse({"stream": "out", "maxoutage": "10m"}), 3, "task 3", "query/7/3")
        rejected.add("out", FailedRecord(b"x", "k", None, "code", "words"))
        await rejected.wait_until_stored()

    run_virtual(story())
    assert len(sink.rows) == 1
