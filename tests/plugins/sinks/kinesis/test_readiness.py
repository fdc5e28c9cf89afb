"""A sink outside of a job is not ready while it cannot put, and names the cause."""

import asyncio

import pytest

from recordpublisher.publishers.errors import SinkError, StreamNotFoundError, TransientError
from recordpublisher.publishers.retry import retry_listener
from recordpublisher.testing.virtual_time import run_virtual

from fakes.writable_stream import FakeKinesis, a_sink, put_numbers

AWAY = TransientError("ListShards", "ClientConnectorError", "refused")


def test_a_sink_that_was_never_opened_or_is_closed_is_not_ready():
    async def job():
        sink = a_sink(FakeKinesis())
        before = sink.reasons_not_ready()
        async with sink:
            during = sink.reasons_not_ready()
        return before, during, sink.reasons_not_ready()

    assert run_virtual(job()) == (
        ["KinesisSink, stream out: it is not open"],
        [],
        ["KinesisSink, stream out: it is closed"],
    )


def test_a_sink_that_opens_while_the_service_is_away_names_the_cause():
    async def job():
        fake, heard = FakeKinesis(), []
        fake.listing_error = AWAY
        sink = a_sink(fake)
        retry_listener.set(lambda error, waited, left: heard.append(error))
        opening = asyncio.create_task(sink.__aenter__())
        await asyncio.sleep(3)
        during = sink.reasons_not_ready()
        with pytest.raises(SinkError, match="is not open yet: ListShards failed with ClientConnectorError: refused"):
            await sink.put(b"x", "k")
        fake.listing_error = None
        await opening
        after = sink.reasons_not_ready()
        await sink.close()
        assert heard
        return during, after

    during, after = run_virtual(job())
    assert during == ["KinesisSink, stream out: it is not open: ListShards failed with ClientConnectorError: refused"]
    assert after == []


def test_a_sink_whose_opening_has_failed_names_the_error():
    async def job():
        fake = FakeKinesis()
        fake.listing_error = StreamNotFoundError("out")
        sink = a_sink(fake)
        with pytest.raises(StreamNotFoundError):
            await sink.__aenter__()
        return sink.reasons_not_ready()

    (reason,) = run_virtual(job())
    assert reason.startswith("KinesisSink, stream out: it is not open: StreamNotFoundError: ")


def test_a_sink_is_not_ready_when_its_puts_have_failed_for_ten_seconds():
    async def job():
        fake = FakeKinesis(2)
        async with a_sink(fake) as sink:
            fake.fail = TransientError("PutRecords", "ClientConnectorError", "refused")
            await put_numbers(sink, range(3))
            await asyncio.sleep(9)
            before = sink.reasons_not_ready()
            await asyncio.sleep(4)
            during = sink.reasons_not_ready()
            fake.fail = None
            await sink.flush()
            return before, during, sink.reasons_not_ready()

    before, during, after = run_virtual(job())
    assert (before, after) == ([], [])
    (reason,) = during
    assert reason.startswith("KinesisSink, stream out: puts have failed for 1")
    assert reason.endswith(" s: PutRecords failed with ClientConnectorError: refused")


def test_a_sink_that_puts_into_one_shard_is_ready_while_another_shard_fails():
    async def job():
        fake = FakeKinesis(2)
        fake.refuse = lambda entry: "InternalFailure" if entry.explicit_hash_key == "0" else None
        async with a_sink(fake, {"flink.job.max.outage": "40s"}, on_failure=lambda failed: None) as sink:
            await sink.put(b"x", "k", "0")
            for _ in range(20):
                await sink.put(b"x", "k", str(2**128 - 1))
                await asyncio.sleep(1)
            assert sink.metrics()["failingMs"] > 15_000
            return sink.reasons_not_ready()

    assert run_virtual(job()) == []


def test_a_sink_is_not_ready_while_records_wait_although_some_have_been_given_up(caplog):
    async def job():
        fake, found = FakeKinesis(), []
        async with a_sink(fake, {"flink.job.max.outage": "5s"}, on_failure=lambda failed: None) as sink:
            fake.fail = TransientError("PutRecords", "ClientConnectorError", "refused")
            for number in range(60):
                await put_numbers(sink, [number])
                await asyncio.sleep(1)
                found.append(bool(sink.reasons_not_ready()))
            await asyncio.sleep(60)
            assert sink.metrics()["outstandingRecordsCount"] == 0
            return found, sink.reasons_not_ready()

    found, after = run_virtual(job())
    lines = [text for text in caplog.messages if text.startswith("calls to Kinesis have failed for")]
    assert 3 <= len(lines) <= 12, "the pause between two lines grows, however short each record is retried"
    assert ", for -" not in caplog.text
    assert all(found[5:]), "the outage is longer than records are retried"
    assert after == [], "nothing is put, and the service responds to other calls"


def fail_every_call(fake, error=AWAY):
    fake.fail = fake.listing_error = fake.summary_error = error


@pytest.mark.parametrize("max_outage", ["0s", "2s", "60s"])
def test_a_sink_is_not_ready_until_the_service_responds_although_no_record_is_left(max_outage):
    async def job():
        fake, found = FakeKinesis(), []
        async with a_sink(fake, {"flink.job.max.outage": max_outage}, on_failure=lambda failed: None) as sink:
            fail_every_call(fake)
            await put_numbers(sink, range(3))
            for _ in range(300):
                await asyncio.sleep(1)
                found.append(bool(sink.reasons_not_ready()))
            assert sink.metrics()["outstandingRecordsCount"] == 0
            fail_every_call(fake, None)
            await asyncio.sleep(60)
            return found, sink.reasons_not_ready()

    found, after = run_virtual(job())
    assert all(found[12 if max_outage == "60s" else 4 :])
    assert after == []


def test_a_sink_is_ready_as_soon_as_a_put_succeeds():
    async def job():
        fake = FakeKinesis()
        async with a_sink(fake, {"flink.job.max.outage": "2s"}, on_failure=lambda failed: None) as sink:
            fail_every_call(fake)
            await put_numbers(sink, range(3))
            await asyncio.sleep(30)
            during = sink.reasons_not_ready()
            fail_every_call(fake, None)
            await put_numbers(sink, [3])
            await sink.flush()
            return during, sink.reasons_not_ready()

    during, after = run_virtual(job())
    assert during == [
        "KinesisSink, stream out: puts have failed for 30 s: ListShards failed with ClientConnectorError: refused"
    ]
    assert after == []


def test_a_sink_whose_calls_do_not_return_is_not_ready():
    async def job():
        fake = FakeKinesis()
        async with a_sink(fake) as sink:
            fake.latency = 40
            await put_numbers(sink, range(3))
            await asyncio.sleep(9)
            before = sink.reasons_not_ready()
            await asyncio.sleep(4)
            during = sink.reasons_not_ready()
            await sink.flush()
            return before, during, sink.reasons_not_ready()

    before, (during,), after = run_virtual(job())
    assert (before, after) == ([], [])
    assert during == "KinesisSink, stream out: puts have failed for 13 s: no call has returned"


def test_a_sink_is_ready_when_a_shard_that_failed_was_merged():
    async def job():
        fake = FakeKinesis(2)
        async with a_sink(fake) as sink:
            fake.refuse = lambda entry: "InternalFailure" if entry.explicit_hash_key != "0" else None
            await sink.put(b"x", "k", str(2**128 - 1))
            await asyncio.sleep(3)
            fake.refuse = lambda entry: None
            fake.merge("s0", "s1")
            await sink.put(b"x", "k", "0")  # It shows the merge while the other record waits for its next try.
            await sink.flush()
            await asyncio.sleep(60)
            return sink.metrics()["failingMs"], sink.reasons_not_ready()

    assert run_virtual(job()) == (0, [])


async def share_of_ready_seconds(sink, seconds):
    """Put a record a second while the sink is ready, as a server behind a load balancer does."""
    ready = 0
    for _ in range(seconds):
        if not sink.reasons_not_ready():
            ready += 1
            await put_numbers(sink, [0])
        await asyncio.sleep(1)
    return ready / seconds


def test_a_server_whose_puts_alone_fail_is_seldom_ready_and_becomes_ready_with_the_first_success():
    async def job():
        fake = FakeKinesis()
        async with a_sink(fake, {"flink.job.max.outage": "30s"}, on_failure=lambda failed: None) as sink:
            fake.fail = TransientError("PutRecords", "ClientConnectorError", "refused")
            share = await share_of_ready_seconds(sink, 600)
            fake.fail = None
            await asyncio.sleep(60)
            return share, await share_of_ready_seconds(sink, 60)

    share, after = run_virtual(job())
    assert share < 0.1
    assert after == 1


def test_a_put_that_fails_long_after_an_outage_does_not_continue_it():
    async def job():
        fake = FakeKinesis()
        async with a_sink(fake, {"flink.job.max.outage": "2s"}, on_failure=lambda failed: None) as sink:
            fake.fail = AWAY
            await put_numbers(sink, [0])
            await asyncio.sleep(3600)
            await put_numbers(sink, [1])
            await asyncio.sleep(1)
            return sink.reasons_not_ready(), sink.metrics()["failingMs"]

    reasons, failing_ms = run_virtual(job())
    assert (reasons, failing_ms < 2000) == ([], True)
