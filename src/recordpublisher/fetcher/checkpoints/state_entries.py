"""StateEntry: what a conditional store has of one subtask of a fixed number (STATIC): its snapshot, with the generation (S6)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from ..committing_sink import CommitNumber, Staged
from ..conditional_store import ConditionalStore, Stored
from ..sink import State
from ..stored_documents import Count, read_document
from .assignment_kinds import SUBTASK_PREFIX

FORMAT = 2


@dataclass(frozen=True, slots=True)
class StateEntry:
    """The stored entry of a subtask. `checkpoint` counts the writes of a generation, so that no value is ever written twice.

    Of a sink that commits by it: `staged`, what it names to be published; `target`, what the rows are in; `writer`, a random part of the
    writer's name: whoever deletes the entries begins with new numbers. `job`: `flink.job.name` of the last start that had one.
    """

    generation: int = 0
    checkpoint: int = 0
    snapshot: State | None = None
    staged: Sequence[Staged] = ()
    target: str = ""
    writer: str = ""
    job: str = ""

    def to_bytes(self) -> bytes:
        """As JSON."""
        content = {
            "format": FORMAT,
            "generation": self.generation,
            "checkpoint": self.checkpoint,
            "snapshot": self.snapshot,
            **staged_to_json(self.staged, self.target),
            **({"writer": self.writer} if self.writer else {}),
            **({"job": self.job} if self.job else {}),
        }
        return json.dumps(content).encode()

    @classmethod
    def from_bytes(cls, content: bytes, place: str) -> StateEntry:
        """Read what `to_bytes` wrote. Raises: StateError naming the place."""
        stored = read_document(content, _StoredEntry, f"the stored state {place}", FORMAT)
        staged = tuple(each.staged for each in stored.staged)
        return cls(
            stored.generation, stored.checkpoint, stored.snapshot, staged, stored.target, stored.writer, stored.job
        )


class StoredStaged(msgspec.Struct):
    """`Staged` as an entry has it."""

    writer: Annotated[str, msgspec.Meta(min_length=1, max_length=400)]
    n: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
    content: dict[str, Any]

    @property
    def staged(self) -> Staged:
        """What `publish` gets."""
        return Staged(CommitNumber(self.writer, self.n), self.content)


class NamesStaged(msgspec.Struct, kw_only=True):
    """What every entry has that commits for a sink: what `staged_to_json` gives."""

    staged: list[StoredStaged] = []
    target: str = ""


def staged_to_json(staged: Sequence[Staged], target: str) -> dict[str, Any]:
    """A plain dict, without what is empty."""
    names = [{"writer": each.number.writer, "n": each.number.n, "content": each.content} for each in staged]
    return {**({"staged": names} if names else {}), **({"target": target} if target else {})}


class _StoredEntry(NamesStaged, kw_only=True):
    writer: str = ""
    job: str = ""
    generation: Count
    checkpoint: Count
    snapshot: dict[str, Any] | None


def entry_name(subtask: int) -> str:
    """The name of a subtask's entry."""
    return f"{SUBTASK_PREFIX}{subtask}"


async def read_entries(store: ConditionalStore) -> dict[str, Stored[StateEntry]]:
    """Every entry by name, in the order of the subtasks. Raises: StateError naming the entry that cannot be read."""
    stored = await store.list(SUBTASK_PREFIX)
    entries = {
        name: Stored(StateEntry.from_bytes(value.value, f"{name} in {store.place}"), value.version)
        for name, value in stored.items()
    }
    return dict(sorted(entries.items(), key=lambda each: (len(each[0]), each[0])))
