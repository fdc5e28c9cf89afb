"""The conformance table: what the tests of Flink's connector require, and our tests that require it. The data are in *.toml here."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

FILES = ("shard_consumer", "fan_out", "fetcher", "proxy", "config", "new_source")
SAME, DIFFERS, NOT_HERE = "same", "differs on purpose", "does not apply"


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


def _expanded(test: str, files: dict[str, str]) -> str:
    """An id with its full path, from `alias::test` or `alias[parameter]`."""
    alias = test.partition("::")[0].partition("[")[0]
    return files[alias] + test.removeprefix(alias)
