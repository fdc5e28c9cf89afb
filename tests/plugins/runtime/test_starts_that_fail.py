"""A start that cannot read its streams does not end the process that reads them, and can be stopped."""

import asyncio
import os
import signal
import socket

import pytest

import recordpublisher as rp
from recordpublisher.local import LocalKinesis

from fakes.memory_streams import PROPERTIES, install


def closed_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


async def handle(record):
    """Nothing to do."""


async def test_a_start_that_cannot_list_its_streams_does_not_fence_the_running_one(tmp_path):
    async with LocalKinesis(streams={"orders": 1}) as endpoint:
        given = {**endpoint.properties(), "flink.state.uri": str(tmp_path / "state"), "flink.job.name": "job"}
        away = {**given, "aws.endpoint": f"http://127.0.0.1:{closed_port()}", "flink.job.max.outage": "500ms"}
        async with rp.DataFetcher("orders", given, sink=rp.MapSink(handle)) as running:
            reading = asyncio.create_task(running.run())

            with pytest.raises(rp.StreamNotFoundError):
                await opened("bills", given)
            with pytest.raises(rp.RecordPublisherError, match="ListShards"):
                await opened("orders", away)

            await running.checkpoint()  # no FencedError
            running.stop()
            await reading


@pytest.fixture
def away(tmp_path):
    """A job whose endpoint does not answer, for as long as the test takes."""
    keys = {f"aws.credentials.provider.basic.{key}": "x" for key in ("accesskeyid", "secretkey")}
    endpoint = {"aws.endpoint": f"http://127.0.0.1:{closed_port()}", "aws.region": "us-east-1"}
    return {**keys, **endpoint, "flink.state.uri": str(tmp_path / "state"), "flink.job.name": "job"}


async def test_stop_ends_a_fetcher_that_opens_in_an_outage(away):
    async def read():
        async with fetcher:
            return await fetcher.run()

    fetcher = rp.DataFetcher("orders", away, sink=rp.MapSink(handle))
    reading = asyncio.create_task(read())
    await asyncio.sleep(0.5)
    fetcher.stop()
    async with asyncio.timeout(5):
        result = await reading

    assert (result.reason.name, result.records) == ("STOPPED", 0)


async def test_a_fetcher_that_was_stopped_before_it_opens_reads_nothing(away):
    fetcher = rp.DataFetcher("orders", away, sink=rp.MapSink(handle))
    fetcher.stop()
    async with asyncio.timeout(5), fetcher:
        assert (await fetcher.run()).reason.name == "STOPPED"
        await fetcher.wait_ready()


async def test_a_fetcher_that_was_stopped_while_it_opened_says_that_it_knows_no_positions(away):
    """An empty snapshot would replace the positions that the program has kept."""
    fetcher = rp.DataFetcher("orders", away, sink=rp.MapSink(handle))
    fetcher.stop()
    async with asyncio.timeout(5), fetcher:
        await fetcher.run()
        with pytest.raises(rp.StateError, match=r"stopped while it opened.*keep the positions that you have"):
            fetcher.snapshot()
        with pytest.raises(rp.StateError, match="stopped while it opened"):
            await fetcher.checkpoint()
        assert (await fetcher.run()).reason.name == "STOPPED"
    with pytest.raises(rp.StateError, match="stopped while it opened"):
        fetcher.snapshot()


async def test_a_signal_ends_a_fetcher_that_opens_in_an_outage(away):
    asyncio.get_running_loop().call_later(0.5, os.kill, os.getpid(), signal.SIGTERM)
    fetcher = rp.DataFetcher("orders", away, sink=rp.MapSink(handle), handle_signals=True)
    async with asyncio.timeout(5), fetcher:
        assert (await fetcher.run()).reason.name == "STOPPED"


async def test_a_cancellation_of_an_opening_is_no_stop(away):
    fetcher = rp.DataFetcher("orders", away, sink=rp.MapSink(handle))
    opening = asyncio.create_task(fetcher.__aenter__())
    await asyncio.sleep(0.5)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening


class SlowToEnd(rp.Sink):
    """Its opening takes a while to end after its cancellation."""

    is_closed = False

    async def open(self, context):
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.2)

    async def write(self, batch):
        """Nothing to do."""

    async def close(self):
        self.is_closed = True


async def test_a_second_cancellation_of_an_opening_closes_what_was_opened(monkeypatch):
    install(monkeypatch, {"a": [b"1"]})
    sink = SlowToEnd()
    opening = asyncio.create_task(rp.DataFetcher("orders", PROPERTIES, sink=sink, handle_signals=True).__aenter__())
    await asyncio.sleep(0.1)
    handler = signal.getsignal(signal.SIGTERM)
    opening.cancel()
    await asyncio.sleep(0.05)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening

    assert sink.is_closed
    assert signal.getsignal(signal.SIGTERM) is not handler


async def opened(stream, given):
    async with rp.DataFetcher(stream, given, sink=rp.MapSink(handle)):
        pass
