"""An entry of the write-ahead log: rows and the position behind them, stored as one object. Both become part of the log or neither does."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from recordpublisher.fetcher.sink import State
from recordpublisher.plugins.stores.write_once_store import ObjectStore
from recordpublisher.publishers.errors import StateError

from .wal_names import ENTRIES, entry_name, number_of

UNREADABLE = (KeyError, TypeError, ValueError, AttributeError)
AT_ONCE = 16
"""How many entries are read at once."""


@dataclass(frozen=True, slots=True)
class WalEntry:
    """`state` is the fetcher's snapshot behind all rows so far. `file` has `rows` rows with `payload` bytes of data (None: no rows).

    `writer` is the token of the start of the fetcher that wrote the entry. `watermark`: the global one, epoch ms; `written_ms`: by the
    writer's clock.
    """

    writer: str
    written_ms: int
    state: State
    file: str | None = None
    rows: int = 0
    payload: int = 0
    watermark: int | None = None

    def to_bytes(self) -> bytes:
        """As stored."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}  # not asdict: it copies the whole state
        return json.dumps(plain).encode()

    @classmethod
    def from_bytes(cls, stored: bytes) -> WalEntry:
        """The inverse of `to_bytes`. Raises: StateError when it does not fit."""
        try:
            return cls(**json.loads(stored))
        except UNREADABLE as error:
            raise StateError(f"an entry of the write-ahead log cannot be read: {stored[:200]!r}: {error}") from error


async def entry_numbers(store: ObjectStore) -> list[int]:
    """The numbers of the entries that are listed now, in order."""
    return [number for name in await store.names(ENTRIES) if (number := number_of(name)) is not None]


async def last_entry(store: ObjectStore) -> tuple[int, WalEntry] | None:
    """Where the log ends now, with the number; None: it is empty. Raises: StateError."""
    while numbers := await entry_numbers(store):
        stored = await store.get(entry_name(numbers[-1]))
        if stored is not None:  # else others have appended since the listing, and this one was purged
            return numbers[-1], WalEntry.from_bytes(stored)
    return None


async def read_entry(store: ObjectStore, number: int) -> WalEntry:
    """An entry that is there. Raises: StateError."""
    stored = await store.get(entry_name(number))
    if stored is None:
        raise StateError(f"{entry_name(number)} of the write-ahead log is gone")
    return WalEntry.from_bytes(stored)


async def read_entries_without_state(store: ObjectStore, numbers: Sequence[int]) -> dict[int, WalEntry]:
    """Many entries, some at once. Their states are dropped: each has one of all shards, and nobody needs them here. Raises: StateError."""
    found: dict[int, WalEntry] = {}
    for start in range(0, len(numbers), AT_ONCE):
        part = numbers[start : start + AT_ONCE]
        read = await asyncio.gather(*(read_entry(store, number) for number in part))
        found.update((number, replace(entry, state={})) for number, entry in zip(part, read, strict=True))
    return found


async def put_entry(store: ObjectStore, number: int, entry: WalEntry) -> WalEntry:
    """Put an entry if there is none of that number; returns what stands there: the given one, or that of a writer who was first."""
    content = entry.to_bytes()
    stored = await store.put_if_absent(entry_name(number), content)
    return entry if stored == content else WalEntry.from_bytes(stored)
