"""The conformance table: what the tests of Flink's connector require, and our tests that require it. The data are in *.toml here."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FILES = ("shard_consumer", "fan_out", "fetcher", "proxy", "config", "new_source")
"""In the order of the page."""
SAME, DIFFERS, NOT_HERE = "same", "differs on purpose", "does not apply"
TITLES = {
    "shard_consumer": "Legacy connector: a shard, polling, positions, batches",
    "fan_out": "Legacy connector: enhanced fan-out",
    "fetcher": "Legacy connector: data fetcher, state, watermarks",
    "proxy": "Legacy connector: calls to the service",
    "config": "Legacy connector: configuration of the consumer",
    "new_source": "New connector (FLIP-27): subscription, splits, readers",
}
NOTE = """Written by `make docs` from `tests/conformance`: change the data there, not this page.

Every behaviour that the tests of Flink's Kinesis connector require, in our words, with our tests that require it. If this library
differs, the reason is given; `does not apply` means that the feature does not exist here. A test checks that `make test` runs every test
of this table and never skips it.

Flink's test is given by its name, or in quotes by its subject if the name is not known. Sources: the branches v5.1 (legacy) and main (new)
of `apache/flink-connector-aws`, without the tests of producers and sinks, Java serialisers, table factories, and Flink's base classes for
AWS."""


@dataclass(frozen=True)
class Row:
    """One behaviour: Flink's class and test, what it requires, our tests (ids below `tests/`), and why we differ or have none."""

    owner: str
    name: str
    says: str
    tests: tuple[str, ...]
    differs: str | None
    not_here: str | None

    @property
    def status(self) -> str:
        """Same, differs on purpose, does not apply."""
        return NOT_HERE if self.not_here else DIFFERS if self.differs else SAME


def rows(file: str) -> Iterator[Row]:
    """The rows of one data file."""
    tables = tomllib.loads((Path(__file__).parent / f"{file}.toml").read_text(encoding="utf-8"))
    files = tables.pop("files")
    for owner, behaviours in tables.items():
        for name, said in behaviours.items():
            tests = tuple(_expanded(each, files) for each in said.pop("by", ()))
            row = Row(owner, name, said.pop("says"), tests, said.pop("differs", None), said.pop("not_here", None))
            assert not said, f"{owner}.{name}: {said}"
            yield row


def all_rows() -> list[Row]:
    """The whole table."""
    return [row for file in FILES for row in rows(file)]


def markdown() -> str:
    """The table as a page."""
    counts = Counter(row.status for row in all_rows())
    summary = ", ".join(f"{counts[status]} {status}" for status in (SAME, DIFFERS, NOT_HERE))
    parts = ["# Conformance with Flink's connector", NOTE, f"{counts.total()} behaviours: {summary}; none missing."]
    for file in FILES:
        parts.append(f"## {TITLES[file]}")
        for owner in dict.fromkeys(row.owner for row in rows(file)):
            parts.append(f"### {owner.removesuffix('-new')}")
            lines = ["| Flink's test | requires | here | our tests |", "|---|---|---|---|"]
            parts.append("\n".join(lines + [_line(row) for row in rows(file) if row.owner == owner]))
    return "\n\n".join(parts) + "\n"


def _expanded(test: str, files: dict[str, str]) -> str:
    """An id with its full path, from `alias::test` or `alias[parameter]`."""
    alias = test.partition("::")[0].partition("[")[0]
    return files[alias] + test.removeprefix(alias)


def _line(row: Row) -> str:
    name = f"`{row.name}`" if " " not in row.name and row.name.isascii() else f"“{row.name}”"
    reason = row.not_here or row.differs
    here = row.status if reason is None else f"{row.status}: {reason}"
    return f"| {name} | {row.says} | {here} | {'<br>'.join(f'`{each}`' for each in row.tests)} |"
