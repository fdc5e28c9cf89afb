"""The port through which the fetcher uses the worker of a job that runs alone (`fetcher/elastic/alone_worker.py`)."""

from typing import Any, Protocol

from ..sink import State
from .commits import CommitCounts


class AloneJob(Protocol):
    """Takes every shard, and stores the positions: by `store`, or for a `CommittingSink` by `settle`, `commit` and `publish`."""

    @property
    def counts(self) -> CommitCounts | None:
        """Numbers on the commits of a `CommittingSink`; None for other sinks."""

    async def open(self) -> tuple[int, list[State]]:
        """Take every shard, and return the epoch and the stored snapshots."""

    async def store(self, state: State) -> None:
        """Store a snapshot."""

    async def settle(self) -> None:
        """Repeat a commit without an answer."""

    async def commit(self, state: dict[str, Any], records: int = 0) -> None:
        """Stage what was written, and commit it with this snapshot."""

    async def publish(self) -> None:
        """Make visible what is committed."""

    async def close(self) -> None:
        """Close the stores."""
