"""`recordpublisher properties`: every property, as text or as the reference page."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Annotated, Any

import typer

from recordpublisher.plugins.host.manager import load_registry
from recordpublisher.publishers.errors import PluginError, RecordPublisherError
from recordpublisher.publishers.properties.declaration import Property, declared_properties

from ..output import json_text, styled


def properties(
    word: Annotated[
        str | None, typer.Argument(metavar="WORD", help="Only properties with this in their key, group or meaning.")
    ] = None,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the reference page instead.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line for each property.")] = False,
) -> None:
    """List every property, also of installed plugins: key, default, valid values, meaning.

    Example: recordpublisher properties watermark
    """
    _import_declarations()
    found = [one for one in declared_properties() if word is None or _contains(one, word.lower())]
    if not found:
        raise RecordPublisherError(f"no property has {word!r} in its key, group or meaning")
    if markdown:
        typer.echo(reference_page(found), nl=False)
        return
    if as_json:
        for one in found:
            typer.echo(json_text(_fields(one)))
        return
    for group, members in grouped(found).items():
        typer.echo("\n".join([group, *map(_paragraph, members)]))


def _contains(declared: Property[Any], word: str) -> bool:
    texts = (declared.spelling, *declared.aliases, declared.group, declared.sentence)
    return any(word in text.lower() for text in texts)


def _fields(declared: Property[Any]) -> dict[str, Any]:
    return {
        "key": declared.spelling,
        "aliases": declared.aliases,
        "group": declared.group,
        "meaning": declared.sentence,
        "default": declared.default,
        "unit": declared.unit,
        "valid": declared.valid,
        "connector_default": declared.connector or None,
    }


def _import_declarations() -> None:
    """Classes declare their properties when they are imported; one whose extra is missing is skipped."""
    from recordpublisher.plugins.spark import options  # noqa: F401
    from recordpublisher.plugins.spark.writer import write_options  # noqa: F401

    for table in load_registry().tables().values():
        for name in table.names():
            with contextlib.suppress(PluginError):
                table.get(name, key="")


def _paragraph(declared: Property[Any]) -> str:
    key = styled(declared.spelling, bold=True)
    return f"  {key}\n      {declared.sentence}\n      default: {default_text(declared)}; valid: {valid_text(declared)}"


_INTRODUCTION = """# Properties

Written by `recordpublisher properties --markdown`: change the declarations in the code, not this page.

A property has one key, compared without case. A job's properties are a mapping in Python, options in Spark, or a Java properties
file (`Properties.from_file`). In Python they are keyword arguments, too: the key without `flink.` or `aws.`, with `_` for each dot
(`rp.consume("orders", request_timeout="10s")`). Where a table names a shorter one, both are accepted. A value that does not parse is a
`ConfigurationError` that names key, value and what is valid; an unknown key is a warning with the nearest known key, also without its
prefix (`initpos`, `region`). Only keys of another name space (`my.own.key`) are ignored.

Defaults are those of FLIP-128 for its keys, and those of the Flink connector for all others. Where the connector's default differs, it is
given in parentheses.
"""


def reference_page(declared: Iterable[Property[Any]]) -> str:
    """The whole page in Markdown, one table for each group."""
    tables = [f"## {group}\n\n{_table(members)}" for group, members in grouped(declared).items()]
    return "\n".join([_INTRODUCTION, *tables])


def grouped(declared: Iterable[Property[Any]]) -> dict[str, list[Property[Any]]]:
    """The properties by group; groups and properties in the order of declaration."""
    groups: dict[str, list[Property[Any]]] = {}
    for one in declared:
        groups.setdefault(one.group or "Others", []).append(one)
    return groups


def default_text(declared: Property[Any]) -> str:
    """The default with its unit, as text."""
    if declared.default is None:
        return "not set"
    shown = str(declared.default).lower() if isinstance(declared.default, bool) else str(declared.default)
    return f"{shown} {declared.unit}".strip()


def valid_text(declared: Property[Any]) -> str:
    """The valid values, with the unit where the default does not show it."""
    return f"{declared.valid} ({declared.unit})" if declared.unit and declared.default is None else declared.valid


def _table(members: list[Property[Any]]) -> str:
    head = "| Key | Default | Valid | Meaning |\n|---|---|---|---|\n"
    return head + "".join(
        f"| `{one.spelling}` | {_default(one)} | {_cell(valid_text(one))} | {_meaning(one)} |\n" for one in members
    )


def _default(declared: Property[Any]) -> str:
    elsewhere = f" (connector: {_cell(declared.connector)})" if declared.connector else ""
    return _cell(default_text(declared)) + elsewhere


def _meaning(declared: Property[Any]) -> str:
    also = "".join(f" Also spelt `{alias}`." for alias in declared.aliases if f"`{alias}`" not in declared.sentence)
    keyword = f" Keyword argument: `{declared.argument}`." if declared.argument else ""
    return _cell(declared.sentence) + also + keyword


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
