"""An error of `on_failure` or `queue_limit` ends no sink outside of a job: it is logged with its place, and counted."""

import asyncio

import pytest

from recordpublisher.fetcher.sink import SinkContext
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.testing.virtual_time import run_virtual

from fakes.writable_stream import FakeKinesis, a_sink, put_numbers


class Orders:
    def lost(self, failed):
        raise ValueError("no room for dead letters")


def cancelled(failed):
    raise asyncio.CancelledError


def ended(failed):
    raise SystemExit(3)


async def later(failed):
    pass


def returned(failed):
    return later(failed)


async def put_what_is_refused(fake, sink):
    fake.refuse = lambda entry: "InternalFailure" if entry.data in (b"0", b"1") else None
    await put_numbers(sink, range(4))
    await sink.flush()


@pytest.mark.parametrize(
    ("callback", "told"),
    [
        (Orders().lost, "ValueError: no room for dead letters, at {place} (Orders.lost)"),
        (cancelled, "CancelledError, at {place} (cancelled)"),
        (ended, "SystemExit: 3, at {place} (ended)"),
        (returned, "TypeError: the function returned a coroutine"),
    ],
)
@pytest.mark.parametrize("fails_on_error", [True, False])
def test_an_error_of_on_failure_is_logged_with_its_place_and_the_sink_continues(callback, told, fails_on_error, caplog):
    async def job():
        fake = FakeKinesis()
        given = {"flink.job.max.outage": 0}
        async with a_sink(fake, given, fail_on_error=fails_on_error, on_failure=callback) as sink:
            await put_what_is_refused(fake, sink)
            await put_numbers(sink, [4])
            await sink.flush()
        assert (sink.metrics()["callbackErrors"], sink.metrics()["numRecordsOutErrors"]) == (2, 2)
        return [data for _, data in fake.user_records()]

    assert run_virtual(job()) == [b"2", b"3", b"4"]
    first = caplog.records[0]
    text = (
        "on_failure raised an error for a record with the partition key 'k', not put into out (InternalFailure): "
        + told
    )
    place = f"{__file__}:{callback.__code__.co_firstlineno + 1}"
    assert first.getMessage().startswith(text.format(place=place))
    assert first.levelname == "ERROR"


def test_in_a_job_an_error_of_on_failure_ends_the_sink_so_that_a_restart_puts_the_record_again():
    async def job():
        fake = FakeKinesis()
        sink = a_sink(fake, {"flink.job.max.outage": 0}, fail_on_error=False, on_failure=Orders().lost)
        await sink.open(SinkContext())
        with pytest.raises(ValueError, match="no room"):
            await put_what_is_refused(fake, sink)
        await sink.close()

    run_virtual(job())


def test_a_function_that_takes_no_record_is_refused_at_once():
    with pytest.raises(ConfigurationError, match="cannot be called with 1 argument"):
        a_sink(FakeKinesis(), on_failure=lambda: None)


@pytest.mark.parametrize(("returned", "told"), [(None, "ZeroDivisionError"), (0, "at least 1")])
def test_after_an_error_of_queue_limit_the_last_limit_is_kept(returned, told, caplog):
    def limit(statistics):
        if statistics.mean_record_bytes:
            return returned if returned is not None else 1 // 0
        return 7

    async def job():
        async with a_sink(FakeKinesis(), queue_limit=limit) as sink:
            for start in (0, 20):
                await put_numbers(sink, range(start, start + 20))
                await sink.flush()
            return sink.metrics()

    metrics = run_virtual(job())
    assert (metrics["queueLimit"], metrics["numRecordsOut"], metrics["outstandingRecordsCount"]) == (7, 40, 0)
    (line,) = [
        text
        for text in caplog.messages
        if text.startswith("the function `queue_limit` failed, so the last limit is kept")
    ]
    assert told in line
