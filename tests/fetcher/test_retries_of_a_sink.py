"""A sink calls its service again while that is away (`SinkContext.retry`)."""

import asyncio

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.testing import run_virtual

from fakes.scripted_source import ScriptedSource, make_fetcher, read


class Service:
    """Refuses calls until `back_at` (seconds of the loop)."""

    def __init__(self, back_at: float, error: Exception) -> None:
        self.back_at, self.error, self.calls, self.rows = back_at, error, 0, []

    async def post(self, rows):
        self.calls += 1
        if asyncio.get_running_loop().time() < self.back_at:
            raise self.error
        self.rows += rows


class ServiceSink(rp.Sink):
    def __init__(self, service: Service, options=()) -> None:
        self.service, self.options = service, dict(options)

    async def open(self, context):
        self.context = context

    async def write(self, batch):
        await self.context.retry(lambda: self.service.post(batch.data), **self.options)


def source_of(*records):
    source = ScriptedSource()
    source.add("a", *records)
    return source


@pytest.mark.parametrize(
    ("error", "options"),
    [(rp.TransientError("POST", "503", "away"), {}), (ConnectionError("away"), {"on": OSError})],
)
def test_a_write_waits_for_its_service_and_the_batch_is_written_once(error, options, caplog):
    async def story():
        service = Service(asyncio.get_running_loop().time() + 300, error)
        await read(source_of(1, 2, 3), ServiceSink(service, {"service": "rows.example", **options}))
        return service

    service = run_virtual(story())
    assert service.rows == [b"1", b"2", b"3"]
    assert service.calls < 200
    assert "calls to rows.example have failed for" in caplog.text
    assert "calls to rows.example succeed again" in caplog.text


def test_another_error_ends_the_job_at_once():
    async def story():
        with pytest.raises(ValueError, match="no such table"):
            await read(source_of(1), ServiceSink(Service(1e9, ValueError("no such table"))))

    run_virtual(story())


def test_after_the_longest_outage_the_job_ends_with_the_last_error():
    async def story():
        began = asyncio.get_running_loop().time()
        sink = ServiceSink(Service(1e9, rp.TransientError("POST /rows", "503", "away")))
        with pytest.raises(rp.RetriesExhaustedError, match=r"POST /rows failed .*max.outage decides.*503: away"):
            await read(source_of(1), sink, properties={"flink.job.max.outage": "1min"})
        return asyncio.get_running_loop().time() - began

    assert 55 <= run_virtual(story()) <= 65


@pytest.mark.parametrize("max_time", [None, 60.0])
def test_a_job_that_is_stopped_gives_its_service_only_the_drain_timeout(max_time):
    async def story():
        loop = asyncio.get_running_loop()
        sink = ServiceSink(Service(1e9, rp.TransientError("POST /rows", "503", "away")))
        fetcher = make_fetcher(source_of(1), sink, {"flink.job.drain.timeout": "10s"})
        await fetcher.open()
        running = asyncio.create_task(fetcher.run_bounded(Bounds(max_time=max_time)))
        await asyncio.sleep(60)
        if max_time is None:
            fetcher.stop()
        stopped_at = loop.time()
        with pytest.raises(rp.RetriesExhaustedError, match="POST /rows failed"):
            await running
        await fetcher.close()
        return loop.time() - stopped_at

    assert 5 <= run_virtual(story()) <= 16.1


async def test_without_a_job_a_call_is_retried_too():
    context, service = (
        rp.SinkContext(),
        Service(asyncio.get_running_loop().time() + 0.2, rp.TransientError("a", "b", "c")),
    )
    await context.retry(lambda: service.post([1]))
    assert service.rows == [1]


class RejectingSink(rp.Sink):
    async def open(self, context):
        self.context = context

    async def write(self, batch):
        await self.context.reject_all([(batch.slice(at, at + 1), "too long") for at in range(len(batch))])


def test_a_dead_letter_sink_waits_for_its_service_as_long_as_the_job_outlasts_an_outage():
    async def story():
        service = Service(asyncio.get_running_loop().time() + 300, rp.TransientError("POST", "503", "away"))
        await read(source_of(1, 2), RejectingSink(), dead_letters=ServiceSink(service))
        return service

    assert len(run_virtual(story()).rows) == 2


def test_a_dead_letter_sink_gets_only_the_drain_timeout_after_a_stop():
    async def story():
        loop = asyncio.get_running_loop()
        letters = ServiceSink(Service(1e9, rp.TransientError("POST /rows", "503", "away")))
        fetcher = make_fetcher(source_of(1), RejectingSink(), {"flink.job.drain.timeout": "10s"}, dead_letters=letters)
        await fetcher.open()
        running = asyncio.create_task(fetcher.run_bounded(Bounds()))
        await asyncio.sleep(5)
        fetcher.stop()
        stopped_at = loop.time()
        with pytest.raises(rp.RetriesExhaustedError, match="POST /rows failed"):
            await running
        await fetcher.close()
        return loop.time() - stopped_at

    assert 5 <= run_virtual(story()) <= 16.1


class FlushingSink(ServiceSink):
    """Calls its service in `flush`."""

    async def write(self, batch):
        self.batch = batch

    async def flush(self, checkpoint):
        if getattr(self, "batch", None) is not None:
            await super().write(self.batch)


def test_a_stop_during_the_last_flush_of_a_bounded_run_gives_the_service_only_the_drain_timeout():
    async def story():
        loop = asyncio.get_running_loop()
        sink = FlushingSink(Service(1e9, rp.TransientError("POST /rows", "503", "away")))
        fetcher = make_fetcher(source_of(1), sink, {"flink.job.drain.timeout": "10s"})
        await fetcher.open()
        running = asyncio.create_task(fetcher.run_bounded(Bounds(max_records=1)))
        await asyncio.sleep(60)
        fetcher.stop()
        stopped_at = loop.time()
        with pytest.raises(rp.RetriesExhaustedError, match="POST /rows failed"):
            await running
        await fetcher.close()
        return loop.time() - stopped_at

    assert 5 <= run_virtual(story()) <= 16.1


def test_slow_calls_that_fail_are_not_made_again_when_the_drain_timeout_is_over():
    class SlowService(Service):
        async def post(self, rows):
            await asyncio.sleep(30)
            await super().post(rows)

    async def story():
        loop = asyncio.get_running_loop()
        sink = ServiceSink(SlowService(1e9, rp.TransientError("POST /rows", "503", "away")))
        fetcher = make_fetcher(source_of(1), sink, {"flink.job.drain.timeout": "10s"})
        await fetcher.open()
        running = asyncio.create_task(fetcher.run_bounded(Bounds()))
        await asyncio.sleep(5)
        fetcher.stop()
        stopped_at = loop.time()
        with pytest.raises(rp.RetriesExhaustedError, match=r"POST /rows failed.*began to end 10 s ago"):
            await running
        await fetcher.close()
        return loop.time() - stopped_at, sink.service.calls

    seconds, calls = run_virtual(story())
    assert (seconds < 30, calls) == (True, 1)


class LimitedService(Service):
    """Notes when it was called."""

    def __init__(self, back_at, error):
        super().__init__(back_at, error)
        self.times = []

    async def post(self, rows):
        self.times.append(asyncio.get_running_loop().time())
        await super().post(rows)


def test_a_service_is_not_called_again_before_the_time_that_it_has_asked_for_and_the_log_says_why(caplog):
    async def story():
        error = rp.ThrottledError("POST /rows", "429", "slow down", retry_after=60)
        service = LimitedService(asyncio.get_running_loop().time() + 100, error)
        await read(source_of(1), ServiceSink(service))
        return service

    service = run_virtual(story())
    assert service.rows == [b"1"]
    first, second, third = service.times
    assert 60 <= second - first <= 61
    assert 60 <= third - second <= 61
    told = [line for line in caplog.messages if "asks to wait 60 s before the next call" in line]
    assert len(told) == 2
    assert all("429: slow down" in line for line in told)


class WithHeaders(rp.TransientError):
    """An error whose pause is in a header, which this response does not have."""

    @property
    def retry_after(self):
        return float({}["Retry-After"])


def test_a_call_is_repeated_after_an_error_that_cannot_say_for_how_long_to_wait():
    async def story():
        service = LimitedService(asyncio.get_running_loop().time() + 10, WithHeaders("POST /rows", "503", "away"))
        await read(source_of(1), ServiceSink(service))
        return service.rows

    assert run_virtual(story()) == [b"1"]


def test_a_stop_does_not_wait_for_the_time_that_the_service_has_asked_for():
    async def story():
        loop = asyncio.get_running_loop()
        service = LimitedService(1e9, rp.TransientError("POST /rows", "429", "slow down", retry_after=600))
        fetcher = make_fetcher(source_of(1), ServiceSink(service), {"flink.job.drain.timeout": "10s"})
        await fetcher.open()
        running = asyncio.create_task(fetcher.run_bounded(Bounds()))
        await asyncio.sleep(60)
        fetcher.stop()
        stopped_at = loop.time()
        with pytest.raises(rp.RetriesExhaustedError, match=r"slow down.*began to end 10 s ago"):
            await running
        await fetcher.close()
        return loop.time() - stopped_at, service.calls

    seconds, calls = run_virtual(story())
    assert (5 <= seconds <= 13, calls) == (True, 1)


def test_the_time_that_a_service_asks_for_does_not_lengthen_the_longest_outage():
    async def story():
        began = asyncio.get_running_loop().time()
        sink = ServiceSink(Service(1e9, rp.TransientError("POST /rows", "429", "slow down", retry_after=3600)))
        with pytest.raises(
            rp.RetriesExhaustedError, match=r"POST /rows failed 2 times .*max.outage decides.*slow down"
        ):
            await read(source_of(1), sink, properties={"flink.job.max.outage": "1min"})
        return asyncio.get_running_loop().time() - began

    assert 55 <= run_virtual(story()) <= 65


def test_a_time_to_wait_that_is_not_a_number_is_refused_in_words():
    with pytest.raises(rp.PluginError, match="'retry_after' must be seconds, as a number, or None, not '60'"):
        rp.TransientError("POST /rows", "429", "slow down", retry_after="60")


async def post():
    """Stand for a request."""


@pytest.mark.parametrize(
    ("call", "options", "words"),
    [
        (lambda: None, {}, "needs an async function without arguments, but the call returned None"),
        (lambda: None, {"on": Exception}, "needs an async function without arguments, but the call returned None"),
        (post, {"on": BaseException}, "'on' must be a subclass of Exception"),
        (post, {"on": (ValueError, asyncio.CancelledError)}, "'on' must be a subclass of Exception"),
        (5, {}, "needs an async function without arguments, not 5"),
        (
            post,
            {"on": "TransientError"},
            "'on' must be a subclass of Exception or a tuple of them, not 'TransientError'",
        ),
        (post, {"on": (ValueError, 5)}, "'on' must be a subclass of Exception or a tuple of them"),
    ],
)
async def test_what_retry_cannot_use_is_refused_in_words(call, options, words):
    with pytest.raises(rp.PluginError, match=words):
        await rp.SinkContext().retry(call, **options)


async def test_a_call_instead_of_its_function_is_refused_because_it_could_be_made_once_only():
    given = post()
    with pytest.raises(rp.PluginError, match=r"write `lambda: \.\.\.` around the call"):
        await rp.SinkContext().retry(given)
    given.close()
