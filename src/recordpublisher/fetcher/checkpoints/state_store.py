"""StateStore: the port behind which snapshots are stored. SubtaskCheckpoints: one subtask's use of it, fenced by generation (S6)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NoReturn

from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.properties.groups.discovery_and_state import SHARD_ASSIGNMENT, STATE_URI
from recordpublisher.publishers.properties.groups.job import JOB_NAME

from ..sink import State

ANOTHER_PLACE = f"another {STATE_URI.key} (in a database: or another {JOB_NAME.key})"
"""What a job needs that shall not share the positions of another one."""
SUBTASK_PREFIX = "subtask-"
"""What the names of the entries of a fixed number of subtasks begin with, in a conditional store."""


def refuse_assignment(place: str, stored: str, given: str) -> NoReturn:
    """Raises: StateError for positions of the other kind of assignment (E10)."""
    raise StateError(
        f"{place} has the positions of a job with {SHARD_ASSIGNMENT.key}={stored}, and {given} does not go on from these. Use "
        f"{ANOTHER_PLACE}; to take the positions along, `recordpublisher positions show JOB --json > positions.jsonl` writes them into a "
        "file, and `recordpublisher positions import JOB --from file:positions.jsonl` reads them there"
    )


class StateStore(ABC):
    """Stores one snapshot for each subtask of a job. Built as `StateStore(properties)`."""

    @abstractmethod
    async def load(self) -> list[State]:
        """Every stored snapshot of the job; an empty list at the first start. Raises: StateError when one is unreadable."""

    @abstractmethod
    async def open_generation(self, subtask: int) -> int:
        """Take a generation higher than any before. From then on, `store` by an earlier start of this subtask raises FencedError."""

    @abstractmethod
    async def store(self, subtask: int, generation: int, state: State) -> None:
        """Store a snapshot if `generation` is still the subtask's newest. Raises: FencedError when it is not."""

    async def fence_subtasks_from(self, first: int) -> None:  # noqa: B027 - optional on purpose
        """Give the stored subtasks `first` and above a newer generation, without changing their snapshots.

        They are those of an earlier start with more subtasks. If one of them still runs, its next `store` raises FencedError. A store
        without this method lets it go on: its positions are too old to be used, but its sink gets the records twice.
        """

    async def close(self) -> None:  # noqa: B027 - optional on purpose
        """Release what the store holds. Called once, when the job closes."""


class SubtaskCheckpoints:
    """The checkpoints of one subtask. Owns the generation of this start."""

    def __init__(self, store: StateStore, subtask: int, parallelism: int) -> None:
        self._store = store
        self._subtask = subtask
        self._parallelism = parallelism
        self._generation = 0

    async def open(self) -> tuple[int, list[State]]:
        """Take the next generation, fence subtasks that this start does not have, and load what is stored. Raises: StateError."""
        self._generation = await self._store.open_generation(self._subtask)
        await self._store.fence_subtasks_from(self._parallelism)
        return self._generation, await self._store.load()

    async def load(self) -> list[State]:
        """What every subtask of the job has stored. Raises: StateError."""
        return await self._store.load()

    async def store(self, state: dict[str, Any]) -> None:
        """Store a snapshot. Raises: FencedError when a newer generation owns the state."""
        await self._store.store(self._subtask, self._generation, state)

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()
