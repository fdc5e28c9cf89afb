"""`flink.sink = map`: the arguments of MapSink as properties."""

import sys

import pytest

import recordpublisher as rp
from recordpublisher.plugins.sinks.map.from_properties import MapSinkFromProperties
from recordpublisher.plugins.sinks.map.ordering import Ordering
from recordpublisher.plugins.sinks.map.settings import MapSettings
from recordpublisher.publishers.properties.groups.bad_records import OnBadRecord

from fakes.memory_streams import PROPERTIES, install


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
