"""Plugins are found by entry point, and an error in one of them does not affect the others."""

import importlib
import logging
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent, indent
from typing import Any, Literal, NewType, TypeVar

import pytest

from recordpublisher import ConfigurationError, PluginError, Properties, RecordPublisherFactory, Sink, hookimpl
from recordpublisher.consumer.watermark_strategies import BoundedOutOfOrderness
from recordpublisher.plugins.host.build_from_properties import build_deserializer, check_properties
from recordpublisher.plugins.host.plugin_loading import _warn_once, load_registry, warn_of_broken_plugins
from recordpublisher.plugins.host.registry import hidden_by_folder
from recordpublisher.publishers.properties import declaration

KEY = "flink.stream.recordpublisher"
FACTORY = """
    import recordpublisher as rp

    class Factory(rp.RecordPublisherFactory):
        def __init__(self, properties): ...
        async def create(self, shard, starting_position, metrics): ...

    @rp.hookimpl
    def recordpublisher_register_publishers(registry):
        registry.add("{name}", Factory)
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a distribution of one module, with the files that pip would write."""
    monkeypatch.syspath_prepend(str(tmp_path))
    modules = set(sys.modules)

    def install(distribution: str, source: str, version: str = "1.0", entry_point: str | None = None) -> None:
        module = distribution.replace("-", "_")
        (tmp_path / f"{module}.py").write_text(dedent(source))
        info = tmp_path / f"{module}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n")
        (info / "entry_points.txt").write_text(f"[recordpublisher]\n{entry_point or module} = {module}\n")
        importlib.invalidate_caches()

    yield install
    for module in set(sys.modules) - modules:
        if getattr(sys.modules[module], "__file__", None) and str(tmp_path) in str(sys.modules[module].__file__):
            del sys.modules[module]


def status_of(registry, distribution: str):
    return next(status for status in registry.plugins if status.owner.distribution == distribution)


def test_built_ins_are_registered_through_the_same_hooks():
    registry = load_registry()

    assert {"POLLING", "EFO"} <= set(registry.publishers.names())
    assert {"memory", "reactive", "callback", "jsonl", "parquet", "sql"} <= set(registry.sinks.names())
    assert {"FILE", "S3", "DYNAMODB", "SQLITE"} <= set(registry.stores.names())
    assert registry.deserializers.names() == ["avro", "bytes", "glue", "json", "protobuf", "text"]
    assert status_of(registry, "recordpublisher").state == "loaded"


@pytest.mark.parametrize("kind", load_registry().tables())
def test_every_built_in_name_can_be_imported(kind):
    table = load_registry().tables()[kind]

    assert all(callable(table.get(name, key=kind)) for name in table.names())


def test_an_installed_plugin_is_found_by_its_name_ignoring_case(install):
    install("my-publisher", FACTORY.format(name="Mine"))

    found = load_registry().publishers.get("mINE", key=KEY)

    assert issubclass(found, RecordPublisherFactory)
    assert found.__module__ == "my_publisher"


def test_a_plugin_that_is_installed_while_the_process_runs_is_found(install, tmp_path):
    os.utime(tmp_path, (0, 0))
    before = load_registry().publishers.names()
    install("my-publisher", FACTORY.format(name="Later"))

    assert set(load_registry().publishers.names()) - set(before) == {"Later"}


def test_an_unknown_name_is_an_error_that_lists_the_installed_ones(install):
    install("my-publisher", FACTORY.format(name="MINE"))

    with pytest.raises(ConfigurationError, match=r"recordpublisher' is 'KAFKA'.*EFO, MINE, POLLING"):
        load_registry().publishers.get("KAFKA", key=KEY)


def test_the_error_for_an_unknown_name_says_which_plugin_was_not_loaded_and_why(install, monkeypatch):
    install("broken-plugin", "import a_package_that_is_not_there\n", "0.3")
    with pytest.raises(
        ConfigurationError, match=r"plugin 'broken_plugin' of broken-plugin 0.3 was not loaded: ModuleNotF"
    ):
        load_registry().sinks.get("mine", key="flink.sink")

    monkeypatch.setenv("RECORDPUBLISHER_BLOCK_PLUGINS", "broken-plugin")
    with pytest.raises(
        ConfigurationError, match=r"broken-plugin 0.3 was not loaded: named in RECORDPUBLISHER_BLOCK_PLUG"
    ):
        load_registry().sinks.get("mine", key="flink.sink")


SINK_IS_BROKEN = (
    dedent(FACTORY.format(name="DROPBOX"))
    + """

class Tally(rp.Sink):
    def write(self, batch):
        pass


@rp.hookimpl
def recordpublisher_register_sinks(registry):
    registry.add("dropbox", Tally)
"""
)


def test_a_publisher_whose_package_has_a_broken_sink_is_reported_by_what_failed(install):
    install("dropbox", SINK_IS_BROKEN, "0.1")

    with pytest.raises(ConfigurationError) as raised:
        load_registry().publishers.get("dropbox", key=KEY)
    assert (
        f"property '{KEY}' is 'dropbox': plugin 'dropbox' of dropbox 0.1 was not loaded: TypeError: Tally.write must be async"
        in str(raised.value)
    )
    assert "; none of the plugins that were loaded has a publisher of that name" in str(raised.value)


def test_a_plugin_that_cannot_be_imported_is_reported_and_leaves_the_others_alone(install, caplog):
    install("broken-plugin", "import a_package_that_is_not_there\n", "0.3")
    install("my-publisher", FACTORY.format(name="MINE"))

    with caplog.at_level(logging.INFO):
        registry = load_registry()

    assert caplog.text == "", "the error of a name that is missing tells it"
    assert "MINE" in registry.publishers.names()
    assert status_of(registry, "broken-plugin").state == "failed"
    assert "a_package_that_is_not_there" in status_of(registry, "broken-plugin").reason


def test_a_hook_that_raises_claims_nothing(install):
    install("half-plugin", FACTORY.format(name="HALF") + "        raise RuntimeError('no licence')\n")

    registry = load_registry()

    assert "HALF" not in registry.publishers.names()
    reason = status_of(registry, "half-plugin").reason
    assert re.fullmatch(
        r"RuntimeError: no licence at \S+half_plugin.py:11 \(recordpublisher_register_publishers\)", reason
    )


def test_a_misspelt_hook_is_reported(install):
    install("misspelt", FACTORY.format(name="X").replace("register_publishers", "register_publisher"))

    assert "recordpublisher_register_publisher" in status_of(load_registry(), "misspelt").reason


def test_a_plugin_without_a_hook_is_reported(install):
    install("hookless", "import recordpublisher\n")

    reason = "it registers nothing, because no function is marked with @recordpublisher.hookimpl"
    assert status_of(load_registry(), "hookless").reason == f"PluginError: {reason}"
    with pytest.raises(ConfigurationError, match=reason):
        load_registry().publishers.get("QUEUED", key=KEY)


MARKED_HOOK = """
import recordpublisher as rp

@rp.hookimpl
def recordpublisher_register_stores(registry):
    pass

"""


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        ("def recordpublisher_register_sinks(registry):", "is not marked: write @recordpublisher.hookimpl above it"),
        (
            "@rp.hookimpl\ndef recordpublisher_register_sinks():",
            "adds nothing: write `def recordpublisher_register_sinks(registry)`, without a default",
        ),
        (
            "@rp.hookimpl\ndef recordpublisher_register_sinks(registry=None):",
            "adds nothing: write `def recordpublisher_register_sinks(registry)`, without a default",
        ),
        (
            "@rp.hookimpl\nasync def recordpublisher_register_sinks(registry):",
            "would not run: write a plain function, without `async` and `yield`",
        ),
    ],
    ids=["not marked", "no parameter", "a default", "async"],
)
def test_a_hook_that_would_add_nothing_is_reported_with_its_module(install, hook, words):
    install("silent-hook", f"{MARKED_HOOK}{hook}\n    pass\n")

    status = status_of(load_registry(), "silent-hook")

    assert (status.state, status.reason) == (
        "failed",
        f"PluginError: `recordpublisher_register_sinks` in silent_hook {words}",
    )


def test_a_name_claimed_twice_names_both_distributions(install):
    install("first-lines", FACTORY.format(name="LINES"), "1.1")
    install("second-lines", FACTORY.format(name="lines"), "2.2")

    registry = load_registry()

    with pytest.raises(PluginError, match=r"'lines' is registered by first-lines 1\.1 .* and by second-lines 2\.2"):
        registry.publishers.get("LINES", KEY)
    assert registry.publishers.get("POLLING", KEY)


@pytest.mark.parametrize(
    ("first", "second", "advice"),
    [
        (("one", "same"), ("two", "same"), "RECORDPUBLISHER_BLOCK_PLUGINS=one or RECORDPUBLISHER_BLOCK_PLUGINS=two"),
        (("same", "same"), ("two", "same"), "RECORDPUBLISHER_BLOCK_PLUGINS=two"),
        (("one", "a"), ("two", "b"), "RECORDPUBLISHER_BLOCK_PLUGINS=a or RECORDPUBLISHER_BLOCK_PLUGINS=b"),
        (("one", "Two"), ("two", "one"), ""),
    ],
    ids=["one entry point", "a package named like it", "two entry points", "each named like the other"],
)
def test_the_advice_about_a_name_claimed_twice_blocks_only_one_of_them(install, monkeypatch, first, second, advice):
    install(first[0], FACTORY.format(name="LINES"), entry_point=first[1])
    install(second[0], FACTORY.format(name="LINES"), entry_point=second[1])
    (message,) = load_registry().publishers.clashes()

    assert message.endswith(f"; uninstall one{advice and ', or block it with '}{advice or ', or rename one'}")
    for name in re.findall(r"PLUGINS=(\S+)", message):
        monkeypatch.setenv("RECORDPUBLISHER_BLOCK_PLUGINS", name)
        assert load_registry().publishers.get("LINES", KEY)


def test_a_clash_with_a_built_in_does_not_advise_to_block_the_built_ins(install):
    install("taker", FACTORY.format(name="polling"), entry_point="mine")

    (message,) = load_registry().publishers.clashes()

    assert message.endswith("; uninstall the second, or block it with RECORDPUBLISHER_BLOCK_PLUGINS=mine")


def test_a_blocked_name_that_is_not_a_plugin_is_one_warning(install, monkeypatch, caplog):
    _warn_once.cache_clear()
    install("globex-http", FACTORY.format(name="LINES"))
    monkeypatch.setenv("RECORDPUBLISHER_BLOCK_PLUGINS", "globex-htp, globex-http, x")

    for _ in range(2):
        warn_of_broken_plugins(load_registry())

    assert caplog.messages == [
        "RECORDPUBLISHER_BLOCK_PLUGINS names 'globex-htp', but no plugin of that name is installed; did you mean 'globex-http'?",
        "RECORDPUBLISHER_BLOCK_PLUGINS names 'x', but no plugin of that name is installed",
    ]


def test_a_plugin_that_fails_or_clashes_is_one_warning_for_jobs_that_do_not_use_it(install, caplog):
    _warn_once.cache_clear()
    install("first-lines", FACTORY.format(name="LINES"), "1.1")
    install("second-lines", FACTORY.format(name="lines"), "2.2")
    install("rude", "import rp_missing_module")

    for _ in range(3):
        warn_of_broken_plugins(load_registry())

    assert [line for line in caplog.messages if "of rude 1.0 was not loaded" in line] == caplog.messages[:1]
    assert "registered by first-lines 1.1" in caplog.messages[1]
    assert len(caplog.messages) == 2


def test_a_plugin_that_declares_a_key_of_ours_fails_alone(install, monkeypatch):
    monkeypatch.setattr(declaration, "_declared", dict(declaration._declared))
    declares = "    from recordpublisher.publishers.properties import text\n    text('flink.stream.initpos', 'Mine.')\n"
    install("rude", declares + FACTORY.format(name="RUDE"))

    registry = load_registry()

    assert "declared already" in status_of(registry, "rude").reason
    Properties({"flink.stream.initpos": "LATEST"}).check()


def test_a_folder_that_hides_a_package_is_named(tmp_path, monkeypatch):
    (tmp_path / "rp_hidden").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError) as raised:
        importlib.import_module("rp_hidden.plugin")
    assert f"the folder {tmp_path / 'rp_hidden'} hides the package" in hidden_by_folder(raised.value)
    assert hidden_by_folder(ImportError("x", name="json.nothing")) == ""


def test_the_name_of_a_built_in_cannot_be_taken(install):
    install("my-polling", FACTORY.format(name="polling"))

    with pytest.raises(PluginError, match=r"registered by recordpublisher .* and by my-polling 1\.0"):
        load_registry().publishers.get("POLLING", KEY)


@pytest.mark.parametrize("named", ["second-lines", "Second_Lines", "x, extra-entry"])
def test_a_blocked_plugin_is_not_even_imported(install, monkeypatch, named):
    install("first-lines", FACTORY.format(name="LINES"))
    install("second-lines", FACTORY.format(name="LINES"), entry_point="extra-entry")
    monkeypatch.setenv("RECORDPUBLISHER_BLOCK_PLUGINS", named)

    registry = load_registry()

    assert registry.publishers.get("LINES", key=KEY).__module__ == "first_lines"
    assert status_of(registry, "second-lines").state == "blocked"
    assert "second_lines" not in sys.modules


def test_a_class_of_another_kind_is_refused():
    class Sinkish:
        @hookimpl
        def recordpublisher_register_sinks(self, registry):
            registry.add("odd", dict)

    registry = load_registry([Sinkish()])

    assert "odd" not in registry.sinks.names()
    assert "which is not a subclass of Sink" in registry.plugins[-1].reason


def test_a_class_given_by_its_path_is_imported_at_its_first_use(install):
    install("lazy-one", FACTORY.format(name="LAZY").replace("Factory)\n", '"lazy_one_impl:Factory")\n'))
    registry = load_registry()

    with pytest.raises(PluginError, match=r"'LAZY' of lazy-one 1\.0 cannot be imported from lazy_one_impl:Factory"):
        registry.publishers.get("LAZY", key=KEY)


def test_every_kind_of_class_has_its_hook():
    class Everything:
        pass

    class AnySink(Sink):
        async def write(self, batch): ...

    provided = {
        "sinks": AnySink,
        "deserializers": dict,
        "watermark_strategies": BoundedOutOfOrderness,
    }
    for kind, cls in provided.items():
        setattr(Everything, f"recordpublisher_register_{kind}", _adder(cls))

    registry = load_registry([Everything()])

    assert all("thing" in registry.tables()[kind].names() for kind in provided)


def _adder(cls, name="thing"):
    @hookimpl
    def add(self, registry):
        registry.add(name, cls)

    return add


def test_what_the_properties_name_is_imported_so_that_its_own_properties_are_known(install):
    lazy = """
        import recordpublisher as rp

        @rp.hookimpl
        def recordpublisher_register_sinks(registry):
            registry.add("{0}", "{1}:Sink")
    """
    install("lazy-sink", lazy.format("lazy", "lazy_target"))
    install("broken-sink", lazy.format("broken", "there.is.none"))
    registry = load_registry()
    assert "lazy_target" not in sys.modules
    install("lazy-target", "import recordpublisher as rp\nclass Sink(rp.Sink):\n    async def write(self, batch): ...")
    registry.import_chosen(Properties({"flink.sink": "LAZY", "flink.streams": "broken"}))
    assert "lazy_target" in sys.modules


def test_each_name_of_a_list_is_imported_so_that_its_own_properties_are_known(install):
    lazy = """
        import recordpublisher as rp

        @rp.hookimpl
        def recordpublisher_register_metrics_exporters(registry):
            registry.add("listed", "listed_target:Exporter")
    """
    install("lazy-exporter", lazy)
    registry = load_registry()
    install("listed-target", "import recordpublisher as rp\nclass Exporter(rp.MetricsExporter): ...")
    registry.import_chosen(Properties({"flink.metrics.exporters": "prometheus, Listed"}))
    assert "listed_target" in sys.modules


def test_a_plugin_that_exits_when_it_is_imported_is_listed_as_failed(install):
    install("exiting", "import sys\nsys.exit(0)\n")

    status = status_of(load_registry(), "exiting")

    assert status.state == "failed"
    assert "sys.exit(0)" in status.reason


@pytest.mark.parametrize("place", [Path(), b"lib", None])
def test_a_place_that_imports_skip_does_not_end_the_search(monkeypatch, place):
    monkeypatch.setattr(sys, "path", [*sys.path, place])

    assert status_of(load_registry(), "recordpublisher").state == "loaded"


def test_a_name_that_one_plugin_registers_twice_is_not_blamed_on_two(install):
    install("twice", FACTORY.format(name="LINES") + '        registry.add("lines", Factory)\n')
    with pytest.raises(
        PluginError, match=r"'lines' is registered twice by twice .*, as 'LINES' and 'lines', which are one name"
    ):
        load_registry().publishers.get("LINES", KEY)


def test_a_misspelt_name_is_told_the_nearest(install):
    with pytest.raises(ConfigurationError, match="did you mean 'POLLING'"):
        load_registry().publishers.get("poling", KEY)


def test_a_hook_that_blocks_is_logged_with_its_line(install, caplog, monkeypatch):
    monkeypatch.setattr("recordpublisher.publishers.user_code.SLOW_SECONDS", 0.02)
    install("sleepy", "    import time\n    time.sleep(0.2)\n" + FACTORY.format(name="SLEEPY"))
    load_registry()
    (line,) = {line for line in caplog.messages if "has not returned" in line}
    assert line.startswith("the import or a hook of sleepy ")
    assert "sleepy.py:2" in line


def test_a_class_whose_making_blocks_is_logged_with_its_line(install, caplog, monkeypatch):
    monkeypatch.setattr("recordpublisher.publishers.user_code.SLOW_SECONDS", 0.02)
    install("sleepy", FACTORY.format(name="SLEEPY").replace(": ...", ": __import__('time').sleep(0.2)", 1))
    load_registry().publishers.make("SLEEPY", KEY, Properties())
    (line,) = [line for line in caplog.messages if "has not returned" in line]
    assert line.startswith("`Factory.__init__` has not returned for 0 s: it is at ")
    assert "sleepy.py:5 (__init__)" in line


def test_a_misspelt_hook_is_told_the_nearest(install):
    install("misspelt", FACTORY.format(name="LINES").replace("_publishers(", "_publisher("))
    assert "did you mean recordpublisher_register_publishers?" in status_of(load_registry(), "misspelt").reason


def test_a_plugin_object_that_cannot_be_hashed_is_loaded_and_spoils_no_later_one(install, tmp_path):
    source = FACTORY.replace("def recordpublisher_register_publishers(registry)", "def {hook}(self, registry)").format(
        name="FIRST", hook="recordpublisher_register_publishers"
    )
    start, mark, hook = dedent(source).partition("@rp.hookimpl")
    class_lines = (
        f"@dataclasses.dataclass\nclass Plugin:\n    kind: str = ''\n{indent(mark + hook, '    ')}\nplugin = Plugin()\n"
    )
    install("a-first", f"import dataclasses\n{start}{class_lines}")
    (tmp_path / "a_first-1.0.dist-info" / "entry_points.txt").write_text("[recordpublisher]\nfirst = a_first:plugin\n")
    install("my-publisher", FACTORY.format(name="MINE"))

    assert {"FIRST", "MINE"} <= set(load_registry().publishers.names())


def test_two_entry_points_of_one_object_register_its_names_once(install, tmp_path):
    install("my-publisher", FACTORY.format(name="MINE"))
    points = tmp_path / "my_publisher-1.0.dist-info" / "entry_points.txt"
    points.write_text("[recordpublisher]\none = my_publisher\ntwo = my_publisher\n")

    registry = load_registry()

    assert registry.publishers.get("MINE", KEY)
    assert [each.state for each in registry.plugins if each.owner.plugin in ("one", "two")] == ["loaded", "failed"]


def test_a_distribution_that_lost_its_metadata_does_not_end_the_search(install, tmp_path):
    install("a-first", FACTORY.format(name="FIRST"))
    (tmp_path / "a_first-1.0.dist-info" / "METADATA").unlink()
    install("my-publisher", FACTORY.format(name="MINE"))

    assert {"FIRST", "MINE"} <= set(load_registry().publishers.names())


@pytest.mark.parametrize("raised", ["asyncio.CancelledError()", "GeneratorExit()"])
def test_a_plugin_whose_import_raises_no_exception_is_listed_as_failed(install, raised):
    """Such as the error of `pytest.importorskip`, which is no Exception either."""
    install("a-first", f"import asyncio\nraise {raised}\n")
    install("my-publisher", FACTORY.format(name="MINE"))

    registry = load_registry()

    assert raised[:-2].rpartition(".")[2] in status_of(registry, "a-first").reason
    assert status_of(registry, "my-publisher").state == "loaded"


def test_a_class_that_raises_cancelled_error_when_it_is_made_is_named(install):
    source = FACTORY.replace(
        "def __init__(self, properties): ...", "def __init__(self, properties):\n            raise Stop"
    )
    install("my-publisher", f"from asyncio import CancelledError as Stop\n{dedent(source.format(name='MINE'))}")

    with pytest.raises(PluginError, match=r"'MINE' of my-publisher 1\.0 could not be made: .*CancelledError"):
        load_registry().publishers.make("MINE", KEY, Properties({}))


@pytest.mark.timeout(60)
@pytest.mark.parametrize("place", ["module", "hook"])
def test_plugins_that_wrap_a_publisher_while_they_are_loaded_do_not_load_each_other_for_ever(install, place):
    wrap = 'Made = publisher_class("POLLING")\n'
    hook = "@rp.hookimpl\ndef recordpublisher_register_publishers(registry):\n    {}    registry.add('{}', Made)\n"
    for name in ("ONE", "TWO", "THREE"):
        lines = hook.format(wrap if place == "hook" else "", name)
        start = wrap if place == "module" else ""
        imports = (
            "import recordpublisher as rp\nfrom recordpublisher.plugins.host.plugin_loading import publisher_class\n"
        )
        install(f"wrapper-{name.lower()}", imports + start + lines)

    registry = load_registry()

    assert {"ONE", "TWO", "THREE"} <= set(registry.publishers.names())


@pytest.mark.parametrize("kind", ["sinks", "deserializers", "stores"])
@pytest.mark.parametrize("name", ["my:name", "my,name", "my name", "a/b"])
def test_a_name_that_no_property_could_give_is_refused(kind, name):
    plugin = type("Odd", (), {f"recordpublisher_register_{kind}": _adder("there:Thing", name)})()

    assert f"'{name}' cannot be a name" in load_registry([plugin]).plugins[-1].reason


@pytest.mark.parametrize("name", ["my_store", "x", "3d", "größe", "-ab"])
def test_a_store_needs_a_name_that_is_a_scheme(name):
    plugin = type("Odd", (), {"recordpublisher_register_stores": _adder("there:Store", name)})()

    assert f"'{name}' cannot be the scheme of a URI" in load_registry([plugin]).plugins[-1].reason


@pytest.mark.parametrize("name", ["S3A", "postgres", "gs"])
def test_a_store_that_a_built_in_one_would_replace_is_refused(name):
    plugin = type("Odd", (), {"recordpublisher_register_stores": _adder("there:Store", name)})()

    assert f"'{name}' is a scheme of the built-in store" in load_registry([plugin]).plugins[-1].reason


class Pairs:
    def __init__(self, properties):
        pass

    def values(self, batch):
        return [{} for _ in batch]


@pytest.mark.parametrize("makes", ["dict", {"id": int}, (int, str)])
def test_what_a_deserializer_says_to_make_is_a_type(makes):
    made = type("Made", (Pairs,), {"makes": makes})
    plugin = type("Odd", (), {"recordpublisher_register_deserializers": _adder(made, "pairs")})()

    with pytest.raises(PluginError, match=r"`Made\.makes` is .*, which is not a type"):
        build_deserializer(load_registry([plugin]), Properties({"flink.deserializer": "pairs"}))


class OfAnotherModule:
    field: "Missing"  # noqa: F821 - as a name that is imported for a type checker only


@dataclass
class Order:
    id: int


@dataclass
class Refund:
    id: int


def test_a_deserializer_may_make_any_type():
    """Also types for which no sink can have columns, because a handler takes them."""
    unions = Order | Refund, Pairs | int, NewType("Number", int), TypeVar("Value"), Literal[1.5]
    for makes in (dict, dict[str, int] | None, Pairs, Any, None, dataclass(OfAnotherModule), *unions):
        made = type("Made", (Pairs,), {"makes": makes})
        plugin = type("Good", (), {"recordpublisher_register_deserializers": _adder(made, "pairs")})()
        build_deserializer(load_registry([plugin]), Properties({"flink.deserializer": "pairs"}))


FAR_SINK = """
import recordpublisher as rp

@rp.hookimpl
def recordpublisher_register_sinks(registry):
    registry.add("jsonlx", "far_target:Sink")
"""


def test_a_wrong_value_is_told_although_a_chosen_plugin_cannot_be_imported(install):
    """The plugin cannot have declared it, and a command such as lag does not need the plugin."""
    install("far-sink", FAR_SINK)
    given = Properties({"flink.sink": "jsonlx", "flink.job.drain.timeout": "soon"})

    with pytest.raises(ConfigurationError, match=r"'flink.job.drain.timeout' is 'soon'"):
        check_properties(load_registry(), given)


def test_a_chosen_plugin_that_cannot_be_imported_is_named_before_its_property_is_called_misspelt(install):
    install("far-sink", FAR_SINK)
    given = Properties({"flink.sink": "jsonlx", "flink.sink.jsonlx.path": "rows"})

    with pytest.raises(PluginError, match="cannot be imported from far_target:Sink"):
        check_properties(load_registry(), given)
