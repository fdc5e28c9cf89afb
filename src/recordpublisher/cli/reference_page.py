"""The reference page of properties, made from their declarations (C1)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from recordpublisher.publishers.properties.properties import Property

_INTRODUCTION = """# Properties

Written by `recordpublisher properties --markdown`: change the declarations in the code, not this page.

A property has one key, compared without case. A job's properties are a mapping in Python, options in Spark, or a Java properties
file (`Properties.from_file`). A value that does not parse is a `ConfigurationError` that names key, value and what is valid; an
unknown key that begins with `flink.` or `aws.` is a warning with the nearest known key.

Defaults: FLIP-128's for its keys, the Flink connector's for all others; where the connector's default differs, it stands behind ours.
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


def default_words(declared: Property[Any]) -> str:
    """The default with its unit, as text."""
    if declared.default is None:
        return "not set"
    shown = str(declared.default).lower() if isinstance(declared.default, bool) else str(declared.default)
    return f"{shown} {declared.unit}".strip()


def valid_words(declared: Property[Any]) -> str:
    """What is valid, with the unit where the default does not show it."""
    return f"{declared.valid} ({declared.unit})" if declared.unit and declared.default is None else declared.valid


def _table(members: list[Property[Any]]) -> str:
    head = "| Key | Default | Valid | Meaning |\n|---|---|---|---|\n"
    return head + "".join(
        f"| `{one.spelling}` | {_default(one)} | {_cell(valid_words(one))} | {_meaning(one)} |\n" for one in members
    )


def _default(declared: Property[Any]) -> str:
    elsewhere = f" (connector: {_cell(declared.connector)})" if declared.connector else ""
    return _cell(default_words(declared)) + elsewhere


def _meaning(declared: Property[Any]) -> str:
    also = "".join(f" Also spelt `{alias}`." for alias in declared.aliases)
    return _cell(declared.sentence) + also


def _cell(words: str) -> str:
    return words.replace("|", "\\|")
