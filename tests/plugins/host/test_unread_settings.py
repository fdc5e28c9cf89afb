"""Settings of a sink or another plugin that the job has not chosen are found, and no others."""

import sys
import types

import pytest

import recordpublisher as rp
from recordpublisher.plugins.host import plugin_loading
from recordpublisher.plugins.host.build_from_properties import check_properties
from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.plugins.host.unread_settings import unread_settings
from recordpublisher.publishers.properties.declaration import PropertyGroup

KEY = "flink.sink.drawers.color"
DEAD_LETTERS = {"flink.deserializer.error": "DEAD_LETTER"}


@pytest.fixture(scope="module")
def shelf():
    """A plugin whose key does not contain the name of its sink, and one that is a subclass of a built-in sink."""
    module = types.ModuleType("shelf_of_settings")
    module.COLOR = PropertyGroup("Shelf").text(KEY, "A colour.")

    class Shelf(rp.MemorySink):
        pass

    class Lines(rp.JsonlSink):
        pass

    Shelf.__module__ = Lines.__module__ = module.__name__
    module.Shelf, module.Lines = Shelf, Lines

    class Plugin:
        @staticmethod
        @rp.hookimpl
        def recordpublisher_register_sinks(registry):
            registry.add("furniture", f"{module.__name__}:Shelf")
            registry.add("lines", f"{module.__name__}:Lines")

    sys.modules[module.__name__] = module
    yield Plugin
    del sys.modules[module.__name__]


def found(shelf, **properties):
    registry, given = (
        load_registry([shelf]),
        rp.Properties({key.replace("__", "."): v for key, v in properties.items()}),
    )
    check_properties(registry, given)
    return unread_settings(registry, given)


def test_a_setting_of_another_sink(shelf):
    assert found(shelf, flink__sink="jsonl", flink__sink__sql__table="rows", flink__sink__jsonl__path="x") == [
        "flink.sink.sql.table has no effect: the sink is jsonl; only sql reads it"
    ]
    assert found(shelf, flink__sink="jsonl", flink__sink__parquet__compression="ZSTD") == [
        "flink.sink.parquet.compression has no effect: the sink is jsonl; only parquet, delta, iceberg read it"
    ]


def test_a_setting_whose_key_does_not_name_its_sink(shelf):
    assert found(shelf, flink__sink="jsonl", **{KEY: "red"}) == [
        f"{KEY} has no effect: the sink is jsonl; only furniture reads it"
    ]
    assert found(shelf, flink__sink="furniture", **{KEY: "red"}) == []


def beside(sink, **properties):
    given = rp.Properties({f"flink.sink.{key.replace('__', '.')}": value for key, value in properties.items()})
    return unread_settings(load_registry(), given, sink)


def test_a_setting_of_the_sink_that_the_program_has_made():
    async def handle(record): ...

    own = "flink.sink.map.{} has no effect: the program makes the sink; pass it to MapSink as an argument"
    assert beside(rp.MapSink(handle), map__timeout="1s", map__on__failure="SKIP") == [
        own.format("timeout"),
        own.format("on.failure"),
    ]
    assert beside(rp.MapSink(handle), sql__table="rows") == [
        "flink.sink.sql.table has no effect: the program makes the sink, a MapSink; only sql reads it"
    ]


def test_what_a_sink_of_a_program_may_have_read_is_not_named(tmp_path):
    async def handle(record): ...

    class Both(rp.MemorySink):
        """It may make other sinks with the properties."""

    path = str(tmp_path)
    assert beside(rp.JsonlSink({"flink.sink.jsonl.path": path}), jsonl__path=path) == []
    assert beside(Both(), jsonl__path=path) == []
    assert beside(rp.MapSink(handle), kinesis__ordering="PER_KEY") == [], "a Producer of the program reads it"


def test_a_start_warns_of_settings_of_the_sink_that_the_program_has_made(caplog, tmp_path):
    async def handle(record): ...

    given = {"flink.sink.map.timeout": "1s", "flink.sink.jsonl.path": str(tmp_path), "aws.region": "eu-west-1"}
    rp.DataFetcher("orders", given, sink=rp.MapSink(handle), job_name="shop")
    # Another job of the program may read the same properties, so the settings of other sinks are left to `doctor`.
    assert [line for line in caplog.messages if "no effect" in line] == [
        "flink.sink.map.timeout has no effect: the program makes the sink; pass it to MapSink as an argument"
    ]


def test_a_setting_of_another_dead_letter_sink_or_exporter(shelf):
    given = {
        **DEAD_LETTERS,
        "flink.deadletter.sink": "jsonl",
        "flink.deadletter.parquet.path": "x",
        "flink.deadletter.jsonl.path": "x",
    }
    assert found(shelf, **given, flink__metrics__prometheus__address="127.0.0.1:0") == [
        "flink.deadletter.parquet.path has no effect: the sink is jsonl; only parquet reads it",
        "flink.metrics.prometheus.address has no effect: flink.metrics.exporters is not set; only prometheus reads it",
    ]


@pytest.mark.parametrize(
    "given",
    [
        {"flink.sink.kinesis.ordering": "PER_KEY"},  # the program makes the sink
        {"flink.sink": "delta", "flink.sink.parquet.compression": "ZSTD", "flink.sink.delta.uri": "x"},
        {"flink.sink": "lines", "flink.sink.jsonl.path": "x"},
        {
            "flink.sink": "JSONL",
            "flink.sink.jsonl.path": "x",
            "flink.sink.archive": "true",
            "flink.sink.buffer.bytes": 9,
        },
        {"flink.metrics.exporters": "cloudwatch, prometheus", "flink.metrics.prometheus.address": "127.0.0.1:0"},
        {"flink.sink": "missing", "flink.sink.buffer.bytes": 9},
        {"flink.sink": "furniture", **DEAD_LETTERS, "flink.deadletter.sink": "memory", KEY: "red"},
        {"flink.sink": "memory", **DEAD_LETTERS, "flink.deadletter.sink": "furniture", KEY: "red"},
        {**DEAD_LETTERS, "flink.deadletter.sink": "memory", KEY: "red"},  # the program makes the sink
        {"flink.metrics.interval": 9000},
    ],
    ids=" ".join,
)
def test_what_is_read_is_not_named(shelf, given):
    assert found(shelf, **given) == []


@pytest.mark.parametrize("policy", ["FAIL", "SKIP"])
def test_a_dead_letter_sink_of_a_job_that_makes_no_dead_letters(shelf, policy):
    told = f"flink.deadletter.sink has no effect: flink.deserializer.error is {policy}; with DEAD_LETTER bad records go to that sink"
    given = {"flink.deadletter.sink": "memory", "flink.deserializer.error": policy}
    assert found(shelf, **given) == [told]


@pytest.mark.parametrize("make", [rp.KinesisSink, rp.Producer])
def test_a_sink_of_a_program_knows_the_settings_that_an_installed_plugin_declares(make, tmp_path, monkeypatch, caplog):
    """A program may give it the file of a job. The plugin's module declares its settings when it is imported."""
    (tmp_path / "lazy_shelf.py").write_text(
        "import recordpublisher as rp\n"
        "from recordpublisher.publishers.properties import text\n"
        f"COLOR = text('flink.sink.lazy-{make.__name__}.color', 'A colour.')\n"
        "class Shelf(rp.MemorySink): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "lazy_shelf", raising=False)

    class Plugin:
        @staticmethod
        @rp.hookimpl
        def recordpublisher_register_sinks(registry):
            registry.add(f"lazy-{make.__name__}", "lazy_shelf:Shelf")

    monkeypatch.setattr(plugin_loading, "load_registry", lambda: load_registry([Plugin]))
    make("orders", {"aws.region": "eu-west-1", f"flink.sink.lazy-{make.__name__}.color": "red"})
    assert "unknown property" not in caplog.text
