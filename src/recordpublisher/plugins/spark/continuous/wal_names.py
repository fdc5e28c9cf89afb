"""The names of everything in a write-ahead log; numbers have so many digits that names sort as numbers do."""

from __future__ import annotations

import re

IDENTITY = "wal/id"
QUERY = "wal/query"
ENTRIES = "entries/"
FILES = "files/"
VERSION_1_IDENTITY = "spool/id"
"""What a location of format version 1 has instead."""
_NUMBERED = re.compile(r"(?:entries|files)/(\d{10})(?:-[0-9a-f]+)?$")


def entry_name(number: int) -> str:
    """An entry of the log."""
    return f"{ENTRIES}{number:010d}"


def file_name(number: int, writer: str) -> str:
    """The file of rows of an entry. The writer's token is in the name, so that two writers never share a file."""
    return f"{FILES}{number:010d}-{writer}"


def number_of(name: str) -> int | None:
    """The number of the entry that a name belongs to; None: the name is none of ours."""
    found = _NUMBERED.match(name)
    return None if found is None else int(found.group(1))
