"""C2: options may be properties that plugins declare, also in a class that is imported at its first use."""

import pytest

from recordpublisher import ConfigurationError
from recordpublisher.plugins.spark.options.spark_options import SparkOptions
from recordpublisher.plugins.spark.write_options import WriteOptions

PLUGIN = """
import recordpublisher as rp

@rp.hookimpl
def recordpublisher_register_sinks(registry):
    registry.add("{name}", "{name}_sink:Sink")
"""
SINK = """
import recordpublisher as rp
from recordpublisher.publishers.properties import integer

ROWS = integer("flink.sink.{name}.rows", "Rows in a write.", 100, 1, group="{name}")

class Sink(rp.Sink):
    def __init__(self, properties): ...
    async def write(self, batch): ...
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a plugin with a lazy sink of this name."""
    monkeypatch.syspath_prepend(tmp_path)

    def of(name, sink=SINK):
        (tmp_path / f"{name}.py").write_text(PLUGIN.format(name=name))
        (tmp_path / f"{name}_sink.py").write_text(sink.format(name=name))
        info = tmp_path / f"{name}-0.3.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.3\n")
        (info / "entry_points.txt").write_text(f"[recordpublisher]\n{name} = {name}\n")

    return of


@pytest.mark.parametrize("kind", [SparkOptions, WriteOptions])
def test_a_property_of_a_plugin_is_known_and_its_value_is_checked(install, kind):
    name = f"rack{kind.__name__.lower()}"
    install(name)

    with pytest.raises(ConfigurationError, match=rf"'flink\.sink\.{name}\.rows' is '0'\. Valid: a whole number"):
        kind.parse({"stream": "orders", "aws.region": "eu-west-1", f"flink.sink.{name}.rows": "0"})


@pytest.mark.parametrize("kind", [SparkOptions, WriteOptions])
def test_a_key_that_may_be_of_a_plugin_that_was_not_imported_is_refused_with_that_reason(install, kind):
    name = f"broken{kind.__name__.lower()}"
    install(name, "import a_package_that_is_not_there")

    with pytest.raises(ConfigurationError, match=r"no such property.* A plugin that was not imported may declare it"):
        kind.parse({"stream": "orders", "aws.region": "eu-west-1", f"flink.sink.{name}.rows": "1"})
