"""The target is looked at on the driver, once, and trouble that may pass is left to the tasks."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StringType, StructType

from recordpublisher.plugins.spark.python_worker import WorkerLoop
from recordpublisher.plugins.spark.writer.data_writers import KinesisStreamWriter, check_target, probe_target
from recordpublisher.plugins.spark.writer.write_options import WriteOptions
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

    async def list_shards(self, stream, after=None):
        if self.listing is not None:
            raise self.listing
        return await super().list_shards(stream)


async def test_what_no_retry_can_help_is_raised_and_the_rest_is_the_tasks():
    with pytest.raises(StreamNotFoundError):
        await probe_target(missing := Port(StreamNotFoundError("out", [])), "out")
    assert missing.is_closed
    for passing in (TransientError("api", "code", "away"), FatalKinesisError("api", "AccessDenied", "may not ask")):
        assert await probe_target(Port(passing), "out")
    with pytest.raises(FatalKinesisError, match="may not list"):
        await probe_target(Port(listing=FatalKinesisError("ListShards", "AccessDenied", "may not list")), "out")


def test_it_is_checked_once_for_each_process_and_connection():
    ports = {"a": Port(), "b": Port()}
    loop = WorkerLoop()
    for stream in ("a", "a", "b"):
        check_target(WriteOptions.parse({"stream": stream}), loop, ports.__getitem__)
    check_target(WriteOptions.parse({}), loop, ports.__getitem__)
    assert [port.calls for port in ports.values()] == [1, 1]


def test_a_region_that_is_missing_is_said_at_once(monkeypatch):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ConfigurationError, match=r"'aws\.region' is not set"):
        KinesisStreamWriter(WriteOptions.parse({"stream": "a"}), StructType().add("data", StringType())).check()
