"""A job that is stopped while its Kinesis sink cannot put ends after the drain timeout, and leaves the records to the next start."""

import asyncio

from recordpublisher.fetcher.pipeline.bounded_runs import Bounds, EndReason
from recordpublisher.publishers.errors import TransientError
from recordpublisher.testing.virtual_time import run_virtual

from fakes.kept_snapshots import KeptSnapshots
from fakes.scripted_source import ScriptedSource, make_fetcher
from fakes.writable_stream import FakeKinesis, a_sink

AWAY = TransientError("PutRecords", "ClientConnectorError", "refused")


def stopped(outage, *, began=15, stop=40):
    """Run and stop a job. Return the reason for its end, when its run and its close ended, and the numbers put and stored."""
    source, kept, fake = ScriptedSource(per_read=5, latency=0.1), KeptSnapshots(), FakeKinesis()
    source.add("a", *range(3000))

    async def job():
        loop, sink = asyncio.get_running_loop(), a_sink(fake)
        fetcher = make_fetcher(source, sink, {"flink.state.checkpoint.interval": 10_000}, alone=kept.start())
        await fetcher.open()
        loop.call_later(began, setattr, fake, "fail", AWAY)
        loop.call_later(began + outage, setattr, fake, "fail", None)
        loop.call_later(stop, fetcher.stop)
        result = await fetcher.run_bounded(Bounds())
        ended = loop.time()
        await fetcher.close()
        return result.reason, ended - stop, loop.time() - ended

    reason, ended, closed = run_virtual(job())
    put = [int(entry.data) for entry in fake.shards["s0"].taken]
    return reason, ended, closed, put, int(kept.kept[-1]["shards"]["s/a"]["position"])


def test_a_stop_in_an_outage_waits_for_the_drain_timeout_and_stores_what_was_put(caplog):
    reason, ended, closed, put, position = stopped(outage=3600)

    assert reason is EndReason.STOPPED
    assert 20 <= ended < 25
    assert closed < 5
    assert position >= 450, "the newest checkpoint whose records were all put"
    assert put[: position + 1] == list(range(position + 1))
    assert "puts have failed for" in next(text for text in caplog.messages if text.startswith("the job ends although"))


def test_a_stop_waits_for_the_end_of_a_shorter_outage():
    reason, ended, _, put, position = stopped(outage=35)

    assert reason is EndReason.STOPPED
    assert ended < 20
    assert sorted(set(put)) == list(range(position + 1))
    assert position > 500


def test_a_stop_waits_longer_than_the_drain_timeout_for_a_stream_that_takes_records_slowly():
    source, fake = ScriptedSource(per_read=500, latency=0.01), FakeKinesis()
    fake.rate = 10.0
    source.add("a", *range(600))

    async def job():
        sink = a_sink(fake)
        fetcher = make_fetcher(source, sink, alone=KeptSnapshots().start())
        await fetcher.open()
        loop = asyncio.get_running_loop()
        loop.call_later(5, fetcher.stop)
        await fetcher.run_bounded(Bounds())
        ended = loop.time()
        left = sink.metrics()["outstandingRecordsCount"]
        await fetcher.close()
        return left, ended

    left, ended = run_virtual(job())
    assert ended > 30, "the stream took longer than the drain timeout"
    assert left == 0
    assert len(fake.shards["s0"].taken) == 600
