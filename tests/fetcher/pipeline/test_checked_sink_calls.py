"""An error of a sink names the sink and the method that raised it, also that of the dead-letter sink."""

import inspect

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.pipeline.checked_sink_calls import destination_of, naming_sink, unfinished_of
from recordpublisher.plugins.runtime import job_assembly
from recordpublisher.publishers.user_code import is_coroutine_function

from fakes.memory_streams import PROPERTIES, install
from fakes.queues.fake_queue import FakeQueue, queue_job


class Shaky(rp.Sink):
    """Raises in one of its methods."""

    def __init__(self, failing, error=OSError):
        self.failing, self.error = failing, error

    def fail_in(self, method):
        if method == self.failing:
            raise self.error(f"cannot {method}")

    async def open(self, context):
        self.fail_in("open")

    async def write(self, batch):
        self.fail_in("write")

    async def watermark(self, watermark):
        self.fail_in("watermark")

    async def flush(self, checkpoint=None):
        self.fail_in("flush")

    async def close(self):
        self.fail_in("close")


def broken(record):
    raise ZeroDivisionError("boom")


async def run(sink, stop_at_tip=True, **arguments):
    async with rp.DataFetcher("orders", PROPERTIES, sink=sink, **arguments) as fetcher:
        await fetcher.run_bounded(stop_at_tip=stop_at_tip, max_time=30)


@pytest.mark.parametrize("method", ["open", "flush", "watermark", "close"])
async def test_the_sink_of_a_job(monkeypatch, method):
    install(monkeypatch, {"a": [b"%d" % number for number in range(40)]})
    with pytest.raises(OSError, match=f"cannot {method}") as caught:
        await run(Shaky(method), watermark_emit_interval=0)

    assert caught.value.__notes__ == [f"the sink Shaky failed in `{method}`"]


@pytest.mark.parametrize("method", ["open", "write", "flush", "close"])
async def test_the_dead_letter_sink(monkeypatch, method):
    install(monkeypatch, {"a": [b"1"]}, closed=True)
    monkeypatch.setattr(job_assembly, "build_dead_letter_sink", lambda *given: Shaky(method))
    with pytest.raises(OSError, match=f"cannot {method}") as caught:
        await run(rp.MemorySink(), deserializer=broken, deserializer_error="DEAD_LETTER", deadletter_sink="memory")

    assert caught.value.__notes__ == [f"the dead-letter sink Shaky failed in `{method}`"]


async def test_an_error_that_a_sink_of_this_package_raises_says_itself_what_failed(monkeypatch):
    install(monkeypatch, {"a": [b"1"]}, closed=True)
    with pytest.raises(rp.SinkError, match="cannot be handled") as caught:
        await run(rp.MapSink(broken, retries=0))

    assert not hasattr(caught.value, "__notes__")


async def opened_and_closed(job):
    await job.open()
    await job.close()


@pytest.mark.parametrize("method", ["open", "flush", "close"])
async def test_the_sink_of_a_queue(method):
    job = queue_job(FakeQueue(), Shaky(method))
    with pytest.raises(OSError, match=f"cannot {method}") as caught:
        await opened_and_closed(job)

    assert caught.value.__notes__ == [f"the sink Shaky failed in `{method}`"]


class Answers(rp.MemorySink):
    """One of its plain methods does what the test says."""

    def __init__(self, method, answer):
        super().__init__()
        setattr(self, method, answer)


def raises(*arguments, **options):
    raise KeyError("mine")


@pytest.mark.parametrize("method", ["unfinished", "shard_started", "shard_listed", "shard_ended"])
async def test_a_plain_method_of_the_sink_that_raises_is_named(method, monkeypatch):
    install(monkeypatch, {"a": [b"1"]}, closed=True)
    with pytest.raises(KeyError, match="mine") as caught:
        await run(Answers(method, raises), stop_at_tip=False)

    assert caught.value.__notes__ == [f"the sink Answers failed in `{method}`"]


async def test_the_destination_of_a_sink_that_raises_is_named():
    with pytest.raises(KeyError) as caught:
        destination_of(Answers("destination", raises))
    assert caught.value.__notes__ == ["the sink Answers failed in `destination`"]


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (unfinished_of, "`Answers.unfinished` returned 5: return an Unfinished, or None"),
        (destination_of, "`Answers.destination` returned 5: return a str"),
    ],
)
async def test_an_answer_of_another_type_is_refused(ask, words):
    with pytest.raises(rp.PluginError) as caught:
        ask(Answers(ask.__name__.removesuffix("_of"), lambda: 5))
    assert str(caught.value) == words


@pytest.mark.parametrize("answer", [raises, lambda: 5])
async def test_a_queue_whose_sink_cannot_say_what_is_unfinished_names_it(answer):
    job = queue_job(FakeQueue(), Answers("unfinished", answer))
    await job.open()
    with pytest.raises((KeyError, rp.PluginError)) as caught:
        job.metrics()
    await job.close()

    told = [str(caught.value), *getattr(caught.value, "__notes__", [])]
    assert any("unfinished` returned 5" in line or "failed in `unfinished`" in line for line in told)


def test_only_a_call_that_is_awaited_is_watched():
    """Outside an event loop, where a watched call raises RuntimeError, every method of a sink that is not async can be called."""
    plain = [
        name for name, each in vars(rp.Sink).items() if inspect.isfunction(each) and not is_coroutine_function(each)
    ]
    assert {"assigned", "revoked", "has_stopped", "may_flush_after_error"} <= set(plain)
    for method in plain:
        with naming_sink(rp.MemorySink(), method):
            """The call of a sink."""
    for method in ("open", "flush", "watermark", "stored_positions"):
        with pytest.raises(RuntimeError, match="no running event loop"), naming_sink(rp.MemorySink(), method):
            """The call is watched."""
