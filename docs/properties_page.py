"""The reference page of properties, from their declarations."""

from __future__ import annotations

from typing import Any

from recordpublisher.cli.commands.properties import all_properties, default_text, grouped, valid_text
from recordpublisher.publishers.properties.declaration import Property

_INTRODUCTION = """# Properties

Written by `make docs`: change the declarations in the code, not this page.

A property has one key, compared without case. A job's properties are a mapping in Python, options in Spark, or a Java properties
file (`Properties.from_file`). In Python they are keyword arguments, too: the key without `flink.` or `aws.`, with `_` for each dot
(`rp.consume("orders", request_timeout="10s")`). Where a table names a shorter one, both are accepted. A value that does not parse is a
`ConfigurationError` that names key, value and what is valid; an unknown key is a warning with the nearest known key, also without its
prefix (`initpos`, `region`). Only keys of another name space (`my.own.key`) are ignored.

Defaults are those of FLIP-128 for its keys, and those of the Flink connector for all others. Where the connector's default differs, it is
given in parentheses.
"""


def page() -> str:
    """The whole page in Markdown, one table for each group."""
    tables = [f"## {group}\n\n{_table(members)}" for group, members in grouped(all_properties()).items()]
    return "\n".join([_INTRODUCTION, *tables])


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
