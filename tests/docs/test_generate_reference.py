"""The generated reference pages are those that the code makes now."""

import functools
import importlib.util

import pytest
import typer

import recordpublisher as rp

from processes.command_line import ROOT


def generator():
    spec = importlib.util.spec_from_file_location("generate_reference", ROOT / "docs/generate_reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = generator()
MAKERS = GENERATOR.pages()


@functools.cache
def page(name: str) -> str:
    """The page as the code makes it now."""
    return MAKERS[name]()


@pytest.mark.parametrize("name", MAKERS)
def test_a_generated_page_is_current(name):
    assert (ROOT / "docs/reference" / name).read_text() == page(name), "run `make docs`"


def test_every_public_name_has_its_place():
    placed = [name for _, names in GENERATOR.AREAS.values() for name in names]

    assert sorted(placed) == sorted(name for name in rp.__all__ if not name.endswith("Error"))


@pytest.mark.parametrize("module", [rp.testing, rp.local], ids=["testing", "local"])
def test_every_name_for_tests_has_its_place(module):
    assert [name for name in module.__all__ if f"### {name}\n" not in page("python/testing.md")] == []


def test_every_fixture_is_on_the_page_with_its_type():
    for fixture in ("kinesis: LocalKinesisThread", "kinesis_stream: LocalStream", "kinesis_properties: dict[str, str]"):
        assert f"- `{fixture}`: " in page("python/testing.md")


def test_every_public_class_has_words_of_its_own():
    classes = {name: vars(thing) for name in rp.__all__ if isinstance(thing := getattr(rp, name), type)}
    assert len(classes) > 30

    # a dataclass without words shows its signature instead
    assert [name for name, own in classes.items() if (own["__doc__"] or f"{name}(").startswith(f"{name}(")] == []


def test_every_command_is_on_the_page():
    from recordpublisher.cli.app import app

    commands = typer.main.get_command(app).commands
    assert len(commands) > 15
    for name, command in commands.items():
        assert f"## recordpublisher {name}\n" in page("command-line.md")
        for below in getattr(command, "commands", {}):
            assert f"## recordpublisher {name} {below}\n" in page("command-line.md")


def test_every_property_is_in_a_table():
    from recordpublisher.publishers.properties.declaration import declared_properties

    assert [one.key for one in declared_properties() if f"| `{one.spelling}` |" not in page("properties.md")] == []


def test_an_option_that_every_command_has_is_told_once():
    assert page("command-line.md").count("Show tracebacks") == 2  # of the program itself, and among the common ones
