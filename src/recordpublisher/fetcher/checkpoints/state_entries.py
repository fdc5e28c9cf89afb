"""StateEntry: what a conditional store has of one subtask of a fixed number (STATIC): its snapshot, with the generation (S6)."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import msgspec

from ..conditional_store import ConditionalStore
from ..sink import State
from ..stored_documents import Count, read_document
from .assignment_kinds import SUBTASK_PREFIX

FORMAT = 2


@dataclass(frozen=True, slots=True)
class StateEntry:
    """The stored entry of a subtask. `checkpoint` counts the writes of a generation, so that no value is ever written twice."""

    generation: int = 0
    checkpoint: int = 0
    snapshot: State | None = None

    def to_bytes(self) -> bytes:
        """As JSON."""
        content = {
            "format": FORMAT,
            "generation": self.generation,
            "checkpoint": self.checkpoint,
            "snapshot": self.snapshot,
        }
        return json.dumps(content).encode()

    @classmethod
    def from_bytes(cls, content: bytes, place: str) -> StateEntry:
        """Read what `to_bytes` wrote. Raises: StateError naming the place."""
        stored = read_document(content, _StoredEntry, f"the stored state {place}", FORMAT)
        return cls(stored.generation, stored.checkpoint, stored.snapshot)


class _StoredEntry(msgspec.Struct):
    generation: Count
    checkpoint: Count
    snapshot: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry, and the store's version of it."""

    entry: StateEntry
    version: str


def entry_name(subtask: int) -> str:
    """The name of a subtask's entry."""
    return f"{SUBTASK_PREFIX}{subtask}"


async def read_entries(store: ConditionalStore) -> dict[str, StoredEntry]:
    """Every entry by name, in the order of the subtasks. Raises: StateError naming the entry that cannot be read."""
    stored = await store.list(SUBTASK_PREFIX)
    entries = {
        name: StoredEntry(StateEntry.from_bytes(value.value, f"{name} in {store.place}"), value.version)
        for name, value in stored.items()
    }
    return dict(sorted(entries.items(), key=lambda each: (len(each[0]), each[0])))


async def write_entry(store: ConditionalStore, name: str, entry: StateEntry, expected: str | None) -> str:
    """Write an entry; returns its new version. Raises: ConflictError when another one than the expected is stored."""
    if expected is None:
        return await store.put_if_absent(name, entry.to_bytes())
    return await store.compare_and_set(name, entry.to_bytes(), expected)
