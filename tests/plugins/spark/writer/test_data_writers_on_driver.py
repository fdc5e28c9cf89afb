"""What the writers do on the driver, without Spark: they check the target once, and log one line for each batch."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pyspark.sql.types import StringType, StructType

from recordpublisher.plugins.spark.python_worker import WorkerLoop
from recordpublisher.plugins.spark.write_options import WriteOptions
from recordpublisher.plugins.spark.writer import (
    KinesisStreamWriter,
    TaskFigures,
    abort_line,
    check_target,
    commit_line,
    probe_target,
)
from recordpublisher.publishers.errors import ConfigurationError, FatalKinesisError, StreamNotFoundError, TransientError

from fakes.writable_stream import FakeKinesis


class Port(FakeKinesis):
    def __init__(self, error: Exception | None = None, listing: Exception | None = None) -> None:
        super().__init__()
        self.error, self.listing = error, listing
        self.calls = 0

    async def stream_summary(self, stream):
        self.calls += 1
        if self.error is not None:
            raise self.error
        return self.summary

    async def list_shards(self, stream):
        if self.listing is not None:
            raise self.listing
        return await super().list_shards(stream)


async def test_the_target_check_raises_only_errors_that_retries_cannot_fix():
    with pytest.raises(StreamNotFoundError):
        await probe_target(missing := Port(StreamNotFoundError("out", [])), "out")
    assert missing.is_closed
    for passing in (TransientError("api", "code", "away"), FatalKinesisError("api", "AccessDenied", "may not ask")):
        assert await probe_target(Port(passing), "out")
    with pytest.raises(FatalKinesisError, match="may not list"):
        await probe_target(Port(listing=FatalKinesisError("ListShards", "AccessDenied", "may not list")), "out")


def test_the_target_is_checked_once_for_each_process_and_connection():
    ports = {"a": Port(), "b": Port()}
    loop = WorkerLoop()
    for stream in ("a", "a", "b"):
        check_target(WriteOptions.parse({"stream": stream}), loop, ports.__getitem__)
    check_target(WriteOptions.parse({}), loop, ports.__getitem__)
    assert [port.calls for port in ports.values()] == [1, 1]


def test_a_missing_region_is_an_error_on_the_driver(monkeypatch):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigurationError, match=r"'aws\.region' is required"):
        KinesisStreamWriter(WriteOptions.parse({"stream": "a"}), StructType().add("data", StringType())).check()


TASKS = [TaskFigures(0, 0, 10, 1000, 2, 1, 1, 0, 3, 0.5), TaskFigures(1, 1, 5, 500, 1, 0, 0, 1, 0, 2.04)]


def test_a_batch_is_one_line_with_its_sums_and_its_slowest_task():
    assert commit_line("batch 7", TASKS) == (
        "batch 7: 15 records and 1500 bytes put by 2 tasks, as 3 Kinesis records; 1 sent again, 1 throttled, 1 given up, "
        "3 waits because of back-pressure; the slowest task (1) took 2.0 s"
    )


def test_a_batch_without_tasks_and_one_that_failed():
    assert commit_line("batch 0", []).endswith("no task wrote")
    assert abort_line("batch 7", TASKS[:1]).startswith(
        "batch 7 failed: 10 records of 1 finished task are in the stream"
    )


def test_dead_letters_are_counted_apart_from_skipped_rows():
    skipped = TaskFigures(0, 0, 8, 800, 8, 0, 0, given_up=2, waits=0, seconds=1.0)
    assert "2 given up, " in commit_line("batch 7", [skipped])
    assert "4 given up (2 dead letters), " in commit_line("batch 7", [skipped, replace(skipped, dead_letters=2)])
