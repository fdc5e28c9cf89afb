"""`import recordpublisher as rp`: every name is there, and nothing heavy comes with it."""

import inspect
import re
import subprocess
import sys
from importlib import import_module

import pytest

import recordpublisher as rp

from processes.command_line import ROOT, process_environment

HEAVY = {
    "aiobotocore",
    "boto3",
    "botocore",
    "aiohttp",
    "reactivex",
    "pyspark",
    "pyarrow",
    "pandas",
    "typer",
    "rich",
    "pluggy",
}


@pytest.mark.parametrize("name", rp.__all__)
def test_every_public_name_resolves(name):
    assert getattr(rp, name) is not None


def test_every_public_name_is_listed_once():
    assert len(rp.__all__) == len(set(rp.__all__))
    assert set(dir(rp)) == {*rp.__all__, "__version__"}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'KinesisSnik'"):
        _ = rp.KinesisSnik


def test_every_error_is_public():
    from recordpublisher.publishers import errors

    public = {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}

    assert public <= set(rp.__all__)


def test_importing_the_package_imports_nothing_else():
    script = "import recordpublisher, sys; print(*(name for name in sys.modules if name.startswith('recordpublisher')))"

    assert printed(script) == "recordpublisher"


def test_what_authors_of_plugins_import_is_not_heavy():
    assert (
        modules_after("from recordpublisher import Sink, RecordPublisher, Properties, ConditionalStore, Record") & HEAVY
        == set()
    )


def test_the_ports_start_without_the_aws_sdk():
    assert modules_after("import recordpublisher.publishers.kinesis.ports") & HEAVY == set()


@pytest.mark.slow
def test_the_commands_start_without_the_aws_sdk():
    every = "import typer; from recordpublisher.cli.app import app; [*typer.main.get_command(app).commands.values()]"

    assert modules_after(every) & HEAVY == {"typer", "pluggy"}


def test_loading_the_registry_leaves_the_built_ins_unimported():
    loaded = modules_after("from recordpublisher.plugins.host.plugin_loading import load_registry; load_registry()")

    assert loaded & HEAVY == {"pluggy"}


def test_spark_is_there_on_access():
    assert rp.spark.__name__ == "recordpublisher.plugins.spark"


def test_the_endpoint_and_the_helpers_for_tests_are_there_on_access():
    assert (
        printed("import recordpublisher as rp; print(rp.local.in_memory.__name__, rp.testing.record.__name__)")
        == "in_memory record"
    )


def test_without_pyspark_the_error_names_the_extra(monkeypatch):
    monkeypatch.delitem(vars(rp), "spark", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(ImportError, match=r"pip install .*\[spark\]'"):
        _ = rp.spark


def test_the_version_is_the_distributions():
    from importlib.metadata import version

    assert rp.__version__ == version("recordpublisher")


def modules_after(statement: str) -> set[str]:
    script = f"{statement}; import sys; print(*(name for name in sys.modules if '.' not in name))"
    return set(printed(script).split())


def printed(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], env=process_environment(), capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


PUBLIC_MODULES = {
    "recordpublisher",
    "recordpublisher.local",
    "recordpublisher.plugins.spark",
    "recordpublisher.publishers.fanout",
    "recordpublisher.publishers.kinesis",
    "recordpublisher.publishers.polling",
    "recordpublisher.publishers.properties",
    "recordpublisher.testing",
}
"""What users and authors of plugins import from. Everything else may move without notice."""


@pytest.mark.parametrize("module", sorted(PUBLIC_MODULES))
def test_a_public_module_lists_its_names(module):
    if module == "recordpublisher.plugins.spark":
        pytest.importorskip("pyspark", exc_type=ImportError)
    public = import_module(module)

    assert public.__doc__
    assert [name for name in public.__all__ if not hasattr(public, name)] == []


def test_the_architecture_page_lists_the_public_modules():
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text(encoding="utf-8")
    table = page.partition("## Public modules")[2].partition("\n## ")[0]

    assert set(re.findall(r"`(recordpublisher[\w.]*)`", table)) == PUBLIC_MODULES


def test_pages_and_examples_import_from_public_modules_only():
    files = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.py")]
    imports = re.compile(r"^\s*(?:from (recordpublisher[\w.]*) import|import (recordpublisher[\w.]*))", re.MULTILINE)
    used = {
        name for file in files for pair in imports.findall(file.read_text(encoding="utf-8")) for name in pair if name
    }

    assert used
    assert used - PUBLIC_MODULES == set()


def public_things():
    """Every public name with its value: names of the package, of `testing` and of `local`, and the hooks."""
    modules = [rp, import_module("recordpublisher.testing"), import_module("recordpublisher.local")]
    for module in modules:
        yield from ((f"{module.__name__}.{name}", getattr(module, name)) for name in module.__all__)
    hooks = vars(import_module("recordpublisher.plugins.host.hookspecs"))
    yield from ((name, hook) for name, hook in hooks.items() if "_register_" in name)


def documented(name, thing):
    """Yield the docstrings that `help` shows of a public name, also those that a class inherits from another class of ours."""
    yield name, inspect.getdoc(thing) or ""
    if inspect.isclass(thing):
        of_ours = [base for base in thing.__mro__ if base.__module__.startswith("recordpublisher")]
        for member in {member for base in of_ours for member in vars(base) if not member.startswith("_")}:
            found = inspect.getattr_static(thing, member)
            if callable(found) or isinstance(found, property | classmethod | staticmethod):
                yield f"{name}.{member}", inspect.getdoc(found) or ""


def test_docstrings_for_users_have_no_ids_of_rules():
    ids = set(re.findall(r"\*\*([A-Z]\d+a?)\*\*", (ROOT / "RULES.md").read_text())) - {"S3"}  # S3 is also a service
    cited = re.compile(rf"\b(?:{'|'.join(ids)})\b|\(S3\)|, S3\)")
    texts = [each for named in public_things() for each in documented(*named)]

    assert len(texts) > 700
    assert sorted({name for name, text in texts if cited.search(text)}) == []
