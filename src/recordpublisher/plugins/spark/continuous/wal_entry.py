"""Entries of the write-ahead log: their format and names, and how they are read and put.

An entry has a file of rows and the position after them, stored as one object: both become part of the log, or neither does.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from recordpublisher.fetcher.sink import State
from recordpublisher.plugins.stores.write_once_store import WriteOnceStore
from recordpublisher.publishers.errors import StateError

from .wal_identity import START_ANEW

ENTRIES = "entries/"
FILES = "files/"
_NUMBERED = re.compile(r"(?:entries|files)/(\d{10})(?:-[0-9a-f]+)?$")
UNREADABLE = (KeyError, TypeError, ValueError, AttributeError)
AT_ONCE = 16
"""How many entries are read at once."""


@dataclass(frozen=True, slots=True)
class WalEntry:
    """`state` is the fetcher's snapshot after all rows so far. `file` has `rows` rows with `payload` bytes of data (None: no rows).

    `writer` identifies the start of the fetcher that wrote the entry. `watermark`: the global one, epoch ms; `written_ms`: by the writer's
    clock.
    """

    writer: str
    written_ms: int
    state: State
    file: str | None = None
    rows: int = 0
    payload: int = 0
    watermark: int | None = None

    def to_bytes(self) -> bytes:
        """The stored form."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}  # not asdict: it copies the whole state
        return json.dumps(plain).encode()

    @classmethod
    def from_bytes(cls, stored: bytes) -> WalEntry:
        """The inverse of `to_bytes`. Raises: StateError for other content."""
        try:
            return cls(**json.loads(stored))
        except UNREADABLE as error:
            raise StateError(f"an entry of the write-ahead log cannot be read: {stored[:200]!r}: {error}") from error


def entry_name(number: int) -> str:
    """The name of an entry. Numbers have ten digits, so that names sort as numbers do."""
    return f"{ENTRIES}{number:010d}"


def file_name(number: int, writer: str) -> str:
    """The name of an entry's file of rows. It has the writer's token, so that two writers never write the same file."""
    return f"{FILES}{number:010d}-{writer}"


def number_of(name: str) -> int | None:
    """The number of the entry that a name belongs to; None for any other name."""
    found = _NUMBERED.match(name)
    return None if found is None else int(found.group(1))


async def entry_numbers(store: WriteOnceStore) -> list[int]:
    """The numbers of the listed entries, in order."""
    return [number for name in await store.names(ENTRIES) if (number := number_of(name)) is not None]


async def last_entry(store: WriteOnceStore) -> tuple[int, WalEntry] | None:
    """The last entry and its number; None when the log is empty. Raises: StateError."""
    while numbers := await entry_numbers(store):
        stored = await store.get(entry_name(numbers[-1]))
        if stored is not None:  # otherwise it was purged since the listing, and there are newer ones
            return numbers[-1], WalEntry.from_bytes(stored)
    return None


async def read_entry(store: WriteOnceStore, number: int) -> WalEntry:
    """Read an entry. Raises: StateError, also when it does not exist."""
    stored = await store.get(entry_name(number))
    if stored is None:
        raise StateError(f"{entry_name(number)} of the write-ahead log is gone")
    return WalEntry.from_bytes(stored)


async def read_entries_without_state(store: WriteOnceStore, numbers: Sequence[int]) -> dict[int, WalEntry]:
    """Read many entries, some concurrently. Their states, each with all shards, are dropped: readers need none. Raises: StateError."""
    found: dict[int, WalEntry] = {}
    for start in range(0, len(numbers), AT_ONCE):
        part = numbers[start : start + AT_ONCE]
        read = await asyncio.gather(*(read_entry(store, number) for number in part))
        found.update((number, replace(entry, state={})) for number, entry in zip(part, read, strict=True))
    return found


async def put_entry(store: WriteOnceStore, number: int, entry: WalEntry) -> WalEntry:
    """Put an entry unless the number is taken; returns the stored one: this entry, or that of the writer who was first."""
    content = entry.to_bytes()
    stored = await store.put_if_absent(entry_name(number), content)
    return entry if stored == content else WalEntry.from_bytes(stored)


class UnreadEntries:
    """Owns the entries that the query has not read yet, each fetched from the store once."""

    def __init__(self, store: WriteOnceStore) -> None:
        self._store = store
        self._fetched: dict[int, WalEntry] = {}

    async def after(self, read: int) -> dict[int, WalEntry]:
        """The entries after number `read`, in order and without a gap. Raises: StateError when one was deleted.

        A listing may miss an entry that was put while it was made. The entries after such a gap are returned by a later call.
        """
        listed = {number for number in await entry_numbers(self._store) if number > read}
        end = read
        while end + 1 in listed:
            end += 1
        # Entries are put one after the other. If a later one is listed, the listing missed the next one, or it was deleted.
        if any(number > end for number in listed):
            await check_entry(self._store, end + 1)
        numbers = range(read + 1, end + 1)
        missing = [number for number in numbers if number not in self._fetched]
        self._fetched |= await read_entries_without_state(self._store, missing)
        return {number: self._fetched[number] for number in numbers}

    def forget(self, read: int) -> None:
        """Drop the entries up to number `read`."""
        self._fetched = {number: entry for number, entry in self._fetched.items() if number > read}


async def check_entry(store: WriteOnceStore, number: int) -> None:
    """Raises: StateError when the log does not have an entry that the query needs: it would wait for it forever."""
    if await store.get(entry_name(number)) is None:
        raise StateError(
            f"{entry_name(number)} of the write-ahead log is gone: the checkpoint is older than what the log keeps "
            "(minBatchesToRetain), or files were removed by hand or by a lifecycle rule. Their rows are lost for this query: "
            f"{START_ANEW}"
        )
