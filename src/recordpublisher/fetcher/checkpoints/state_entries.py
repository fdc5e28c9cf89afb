"""The entry of one subtask of a fixed number (STATIC) in a conditional store: its snapshot with the generation (S6)."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
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

    - `staged`: the staged items of a `CommittingSink` that the entry commits.
    - `target`: the target of that sink, where the rows are.
    - `life`: the name of the start that owns the entry (`life_name`).
    - `job`: `flink.job.name` of the last start that had one.
    """

    generation: int = 0
    checkpoint: int = 0
    snapshot: State | None = None
    staged: Sequence[Staged] = ()
    target: str = ""
    life: str = ""
    job: str = ""

    def to_bytes(self) -> bytes:
        """Return the entry as JSON."""
        content = {
            "format": FORMAT,
            "generation": self.generation,
            "checkpoint": self.checkpoint,
            "snapshot": self.snapshot,
            **staged_to_json(self.staged, self.target),
            **({"life": self.life} if self.life else {}),
            **({"job": self.job} if self.job else {}),
        }
        return json.dumps(content).encode()

    @classmethod
    def from_bytes(cls, content: bytes, place: str) -> StateEntry:
        """Read an entry that `to_bytes` wrote. Raises: StateError, with the place, if it cannot be read."""
        stored = read_document(content, _StoredEntry, f"the stored state {place}", FORMAT)
        staged = tuple(each.staged for each in stored.staged)
        return cls(
            stored.generation, stored.checkpoint, stored.snapshot, staged, stored.target, stored.life, stored.job
        )


class StoredStaged(msgspec.Struct):
    """`Staged` in the format of an entry."""

    writer: Annotated[str, msgspec.Meta(min_length=1, max_length=400)]
    n: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
    content: dict[str, Any]
    before: Any = None

    @property
    def staged(self) -> Staged:
        """The value that `publish` receives."""
        return Staged(CommitNumber(self.writer, self.n), self.content, before=self.before)


class NamesStaged(msgspec.Struct, kw_only=True):
    """The fields that every entry of a `CommittingSink` has; `staged_to_json` writes them."""

    staged: list[StoredStaged] = []
    target: str = ""


def staged_to_json(staged: Sequence[Staged], target: str) -> dict[str, Any]:
    """Return the staged items and the target as a plain dict, without empty values."""
    names = [
        {"writer": each.number.writer, "n": each.number.n, "content": each.content}
        | ({} if each.before is None else {"before": each.before})
        for each in staged
    ]
    return {**({"staged": names} if names else {}), **({"target": target} if target else {})}


class _StoredEntry(NamesStaged, kw_only=True):
    life: str = ""
    job: str = ""
    generation: Count
    checkpoint: Count
    snapshot: dict[str, Any] | None


def entry_name(subtask: int) -> str:
    """Return the name of a subtask's entry."""
    return f"{SUBTASK_PREFIX}{subtask}"


def life_name(job: str, subtask: int, generation: int, former: str) -> str:
    """Return a new name for a start of a subtask. No other start has it, because its last part is random.

    `former` is the name of the previous start. The third part of the name is taken from it, so it is the same for all starts with these
    positions.
    """
    _, _, origin, _, _ = parsed if (parsed := parsed_life(former)) else ("", 0, secrets.token_hex(4), 0, "")
    return f"{job_part(job)}.{subtask}.{origin}.{generation}.{secrets.token_hex(8)}"


def parsed_life(life: str) -> tuple[str, int, str, int, str] | None:
    """Return job, subtask, origin of the positions, generation, and the random part; None for the life of a worker in a group."""
    parts = life.split(".")
    if len(parts) != 5 or not (parts[1].isdecimal() and parts[3].isdecimal()):
        return None
    return parts[0], int(parts[1]), parts[2], int(parts[3]), parts[4]


def job_part(job: str) -> str:
    """Return the prefix of the names of a job's lives. Two jobs never have the same prefix."""
    safe = re.sub(r"[^A-Za-z0-9_-]", "_", job)[:100]
    return safe if safe == job else f"{safe}-{hashlib.sha256(job.encode()).hexdigest()[:12]}"


async def read_entries(store: ConditionalStore) -> dict[str, Stored[StateEntry]]:
    """Return every entry by name, in the order of the subtasks. Raises: StateError, with the name, if an entry cannot be read."""
    stored = await store.list(SUBTASK_PREFIX)
    entries = {
        name: Stored(StateEntry.from_bytes(value.value, f"{name} in {store.place}"), value.version)
        for name, value in stored.items()
    }
    return dict(sorted(entries.items(), key=lambda each: (len(each[0]), each[0])))
