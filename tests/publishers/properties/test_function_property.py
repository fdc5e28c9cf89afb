"""What a property names as module:name: a dot in place of the colon is told with what was meant."""

import sys

import pytest

import recordpublisher as rp
from recordpublisher.cli.execution import exit_code
from recordpublisher.plugins.host.build_from_properties import build_deserializer
from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.publishers.properties.config_fields import imported


@pytest.mark.parametrize(
    ("path", "meant"), [("shop.Order", "shop:Order"), ("my.shop.Order", "my.shop:Order"), ("a", "a:name")]
)
def test_a_name_without_a_colon_is_told_with_what_was_meant(path, meant):
    with pytest.raises(
        rp.ConfigurationError, match=f"{path}': the colon before the name is missing: write {meant}. Valid"
    ):
        imported(path, "flink.sink.map.function", "module:function")


def test_a_deserializer_with_a_dot_is_a_module_and_a_name():
    with pytest.raises(rp.ConfigurationError, match=r"flink.deserializer.*write shop:Order. Valid"):
        build_deserializer(load_registry(), rp.Properties({"flink.deserializer": "shop.Order"}))


def test_a_module_that_exits_when_it_is_imported_is_an_error(tmp_path, monkeypatch):
    (tmp_path / "exiting_shop.py").write_text("import sys\nsys.exit(0)\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    with pytest.raises(rp.ConfigurationError, match=r"sys\.exit\(0\)"):
        imported("exiting_shop:handle", "flink.sink.map.function", "module:function")


@pytest.mark.parametrize(
    ("line", "may_pass"),
    [
        ("raise ConnectionRefusedError(111, 'Connection refused')", True),
        ("class OperationalError(Exception): pass\nraise OperationalError('the database starts')", True),
        ("import no_such_module", False),
        ("handle = 1 / 0", False),
        ("handle = unknown", False),
        ("raise ValueError('a wrong setting')", False),
        ("def handel(record): pass", False),
    ],
)
def test_a_module_that_cannot_reach_a_service_while_it_is_imported_may_be_valid_at_the_next_start(
    tmp_path, monkeypatch, line, may_pass
):
    (tmp_path / "away_shop.py").write_text(line)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "away_shop", raising=False)
    with pytest.raises(rp.ConfigurationError) as raised:
        imported("away_shop:handle", "flink.sink.map.function", "module:function")
    assert raised.value.may_pass is may_pass
    assert exit_code(raised.value.renamed("JOB")) == (1 if may_pass else 2)
