"""The arguments of `MapSink`, given in Python or as properties, and the memory that it holds."""

import asyncio
import gc
import sys
import weakref
from datetime import timedelta

import pytest

import recordpublisher as rp
from recordpublisher.plugins.sinks.map.handling import MapSettings
from recordpublisher.plugins.sinks.map.key_order import Ordering
from recordpublisher.plugins.sinks.map.map_sink import MapSinkFromProperties
from recordpublisher.publishers.properties.job_properties import OnBadRecord
from recordpublisher.testing import run_virtual

from .map_jobs import WaitingHandler, batch_of_keys, open_and_write, settle
from fakes.batches import batch
from fakes.memory_streams import PROPERTIES, install

# --- Arguments ---


@pytest.mark.parametrize(
    ("name", "value", "valid"),
    [
        ("concurrency", 0, "an integer, at least 1"),
        ("batch_size", True, "an integer, at least 1"),
        ("retries", -1, "an integer, at least 0"),
        ("batch_wait", -0.1, "seconds, at least 0"),
        ("batch_wait", None, "seconds, a text such as 15m or 200ms, or a timedelta"),
        ("retry_for", "long", "seconds, a text such as 15m or 200ms, or a timedelta"),
        ("timeout", 0, "seconds above 0, or None"),
        ("max_age", "long", "seconds, a text such as 15m or 200ms, or a timedelta"),
        ("ordering", "BY_KEY", "NONE, PER_KEY, PER_SHARD"),
        ("on_failure", "IGNORE", "FAIL, SKIP, DEAD_LETTER"),
    ],
)
def test_wrong_arguments_are_named_with_what_is_valid(name, value, valid):
    async def handle(record):
        pass

    with pytest.raises(rp.ConfigurationError) as raised:
        rp.MapSink(handle, **{name: value})
    assert (raised.value.key, raised.value.value, raised.value.valid) == (name, value, valid)


@pytest.mark.parametrize("name", ["timeout", "retry_for", "batch_wait"])
def test_a_number_that_was_probably_meant_in_milliseconds_is_refused_with_both_texts(name):
    async def handle(record):
        pass

    with pytest.raises(rp.ConfigurationError, match="in seconds; write '10000s' or '10000ms'"):
        rp.MapSink(handle, **{name: 10_000})
    assert getattr(rp.MapSink(handle, **{name: "10000s"})._settings, name) == 10_000


def test_an_age_of_an_hour_is_a_number_of_seconds():
    assert rp.MapSink(print, max_age=3600)._settings.max_age == 3600


def test_a_timeout_of_a_plain_function_is_refused():
    with pytest.raises(
        rp.ConfigurationError,
        match="'timeout' needs an async function: a plain function runs in a thread, which cannot be ended",
    ):
        rp.MapSink(print, timeout=1)


def test_what_cannot_be_called_is_refused():
    with pytest.raises(rp.ConfigurationError, match="handler"):
        rp.MapSink("my_module:handle")


# --- Properties (`flink.sink = map`) ---


@pytest.fixture(autouse=True)
def _functions(tmp_path, monkeypatch):
    (tmp_path / "user_handlers.py").write_text(
        "seen = []\n"
        "async def handle(record):\n    seen.append(record.data)\n"
        "def handle_in_thread(record):\n    seen.append(record.data)\n"
        "class Process:\n    def __init__(self, record): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "user_handlers", raising=False)


def properties(function="user_handlers:handle", **more):
    return rp.Properties({f"flink.sink.map.{key}": value for key, value in {"function": function, **more}.items()})


async def test_a_job_calls_the_function_for_each_record(monkeypatch):
    install(monkeypatch, {"a": [b"1", b"2"]}, closed=True)
    async with rp.DataFetcher(["orders"], {**PROPERTIES, "flink.sink": "map", **properties()}) as fetcher:
        await fetcher.run()
    assert sys.modules["user_handlers"].seen == [b"1", b"2"]


def test_without_properties_the_arguments_have_their_defaults():
    assert MapSinkFromProperties(properties())._settings == rp.MapSink(lambda record: None)._settings
    assert MapSinkFromProperties(properties()).destination() == rp.MapSink(lambda record: None).destination()


def test_every_argument_has_a_property():
    given = {
        "concurrency": 3,
        "ordering": "NONE",
        "batch.size": 5,
        "batch.wait": 250,
        "retries": 7,
        "timeout": 1500,
        "max.age": 60_000,
        "on.failure": "SKIP",
        "max.bytes": 1024,
    }
    assert MapSinkFromProperties(properties(**given))._settings == MapSettings(
        concurrency=3,
        ordering=Ordering.NONE,
        batch_size=5,
        batch_wait=0.25,
        retries=7,
        timeout=1.5,
        max_age=60.0,
        on_failure=OnBadRecord.SKIP,
        max_bytes=1024,
    )


@pytest.mark.parametrize(
    ("key", "given"),
    [
        ("function", {"function": "user_handlers:missing"}),
        ("function", {"function": "user_handlers:Process"}),
        ("ordering", {"ordering": "BY_KEY"}),
        ("concurrency", {"concurrency": 0}),
        ("timeout", {"function": "user_handlers:handle_in_thread", "timeout": 100}),
    ],
)
def test_an_invalid_value_names_its_property(key, given):
    with pytest.raises(rp.ConfigurationError) as raised:
        MapSinkFromProperties(properties(**given))
    assert raised.value.key == f"flink.sink.map.{key}"


def test_dead_letters_need_the_jobs_setting_for_bad_records():
    given = properties(**{"on.failure": "DEAD_LETTER"})
    for policy in ("FAIL", "SKIP"):
        with pytest.raises(rp.ConfigurationError, match=f"on.failure.*with flink.deserializer.error={policy} none is"):
            MapSinkFromProperties(given.merged({"flink.deserializer.error": policy}))
    assert MapSinkFromProperties(given.merged({"flink.deserializer.error": "DEAD_LETTER"}))


# --- Memory ---


def test_closing_frees_what_was_not_handled():
    async def job():
        sink = rp.MapSink(WaitingHandler())
        made = batch_of_keys("a", "a", "b")
        left = weakref.ref(made)
        await open_and_write(sink, made)
        del made
        await sink.close()
        return left

    left = run_virtual(job())
    gc.collect()
    assert left() is None


def test_writing_waits_while_too_many_bytes_are_not_handled():
    async def job():
        handler = WaitingHandler()
        sink = rp.MapSink(handler, max_bytes=1)
        await open_and_write(sink, batch_of_keys("a"))
        writing = asyncio.ensure_future(sink.write(batch(b"next")))
        await settle()
        waited = not writing.done()
        handler.open[b"0"].set_result(None)
        await writing
        await sink.close()
        return waited

    assert run_virtual(job())


def test_a_full_sink_has_no_room_until_a_batch_is_handled_and_says_so():
    async def job():
        handler, resumed = WaitingHandler(), []
        sink = rp.MapSink(handler, max_bytes=1)
        await open_and_write(sink, batch_of_keys("a", "b"), resume_writing=lambda: resumed.append(sink.has_room()))
        found = [sink.has_room()]
        for number in (b"0", b"1"):
            handler.open[number].set_result(None)
            await settle()
            found.append(list(resumed))
        await sink.close()
        return found

    assert run_virtual(job()) == [False, [], [True]]


def test_a_full_sink_has_room_for_the_write_that_raises_a_failure():
    async def job():
        resumed = []

        async def fail(record):
            raise ValueError("no")

        sink = rp.MapSink(fail, max_bytes=1, retries=1)
        await open_and_write(sink, batch_of_keys("a"), resume_writing=lambda: resumed.append(sink.has_room()))
        assert not sink.has_room()
        await asyncio.sleep(1)
        with pytest.raises(rp.SinkError, match="2 attempts"):
            await sink.write(batch_of_keys("a"))
        await sink.close()
        return resumed

    assert run_virtual(job()) == [True]


@pytest.mark.parametrize("given", [900, 900.0, "15m", "900 s", timedelta(minutes=15)])
def test_times_are_seconds_texts_or_timedeltas(given):
    sink = rp.MapSink(print, batch_size=2, batch_wait=given, retry_for=given, max_age=given)

    settings = sink._settings
    assert (settings.batch_wait, settings.retry_for, settings.max_age) == (900, 900, 900)
