"""A job with fan-out deregisters its consumer when it ends, and not when it fails: its restart needs it (F8)."""

import asyncio

import pytest

import recordpublisher as rp
from recordpublisher.local import serve_in_thread


class FailingSink(rp.Sink):
    """A sink whose disk is full."""

    async def write(self, batch):
        raise OSError("the disk is full")


def failing(record):
    raise OSError("the disk is full")


def consumers_after(make_sink):
    """How many consumers are registered after a job with this sink, and the error that ended it."""
    with serve_in_thread(streams={"orders": 1}) as server:
        server.call(lambda: server.endpoint.stream("orders").put(b"data", "key"))
        settings = {"registration": "LAZY", "consumername": "app"}
        properties = {
            **server.properties(),
            "flink.stream.initpos": "TRIM_HORIZON",
            "flink.stream.recordpublisher": "EFO",
            **{f"flink.stream.efo.{key}": value for key, value in settings.items()},
        }

        async def job():
            async with rp.DataFetcher(["orders"], properties, sink=make_sink()) as fetcher:
                await fetcher.run_bounded(max_records=1)

        error = None
        try:
            asyncio.run(job())
        except (rp.RecordPublisherError, OSError) as raised:
            error = raised
        now_ms = server.endpoint.clock.now_ms()
        known = server.call(server.endpoint.stream("orders").consumers.all)
        return [consumer.status(now_ms) for consumer in known], error


@pytest.mark.parametrize("make_sink", [FailingSink, lambda: rp.MapSink(failing, retries=0)], ids=["sink", "handler"])
def test_f8_after_a_failed_write_the_consumer_stays_registered(make_sink):
    statuses, error = consumers_after(make_sink)
    assert statuses == ["ACTIVE"]
    assert "the disk is full" in str(error)


def test_f8_after_a_job_that_ended_the_consumer_is_deregistered():
    statuses, error = consumers_after(rp.MemorySink)
    assert statuses in (["DELETING"], [])
    assert error is None
