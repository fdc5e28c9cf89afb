"""WorkerPositions: how a sink that keeps positions keeps those of the workers of a group (ELASTIC assignment)."""

from __future__ import annotations  # the reference and help() show types by their names

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any

State = Mapping[str, Any]


class WorkerPositions(ABC):
    """One entry for each worker: its positions, and whether it is sealed. What was sealed never changes (E1, E3).

    A sink for dead letters has entries as well, of one process each, whose positions are empty.

    A worker is one life of a process. A process that others have sealed goes on as another worker, with the same sink object.
    All methods may be called while the sink waits in `write`; `commit` is never called twice at a time.
    """

    @abstractmethod
    async def join(self, worker: str) -> None:
        """Create the entry of a new worker: that of this process from now on. What was written before and not committed is dropped.

        Nothing happens if the entry exists: the answer of an earlier attempt was lost. An attempt that is carried out late, when the worker
        was forgotten, must not let it commit.
        """

    @abstractmethod
    async def commit(self, positions: State, shards: Collection[str] | None) -> None:
        """Store positions, in one transaction with what was written of these shards (`Shard.key`; None: of all). The rest waits on.

        Raises: FencedError when the entry is sealed or deleted: then nothing is stored, neither rows nor positions.
        """

    @abstractmethod
    async def read(self, worker: str) -> State | None:
        """The positions of any worker, as its last commit left them; None before its first one, or without an entry."""

    @abstractmethod
    async def seal(self, worker: str) -> State | None:
        """Seal the entry of any worker, then return its positions. A commit under way is in them, or fails.

        A process that is stopped within a commit must not block this for long.
        """

    @abstractmethod
    async def forget(self, worker: str) -> None:
        """Delete the entry of a sealed worker, and what it has left behind."""
