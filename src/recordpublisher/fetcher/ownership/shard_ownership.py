"""The port that decides which shards a fetcher reads: a fixed part of all shards, or those whose leases its process holds."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, ClassVar

from recordpublisher.publishers.shards import Shard

from ..sink import SinkContext
from ..startup import OpenedJob

StartTask = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
"""Runs the work in a background task of the run; its error ends the run."""


class ShardOwnership(ABC):
    """Adds shards to the table of a fetcher, and removes them.

    The fetcher calls it; methods that an implementation does not need do nothing.

    `has_leases`: shards are added and removed during a run, so there are none at first (E7).
    """

    has_leases: ClassVar[bool] = False

    @abstractmethod
    async def open(self, context: SinkContext) -> OpenedJob:
        """Open the sink, restore state, and list the shards.

        Raises: StateError if stored state cannot be used; DataLossError if records were lost; StreamNotFoundError if a stream does not
        exist; KinesisError if a call fails.
        """

    def start_run(self, start_task: StartTask) -> None:  # noqa: B027 - optional on purpose
        """Called when a run starts, before the first reader does."""

    @abstractmethod
    async def discover(self) -> None:
        """Find shards that are created later, until cancelled (S3)."""

    @abstractmethod
    async def on_look(self) -> None:
        """Called when the list of streams was looked at (S10)."""

    @abstractmethod
    def add_children(self, children: Iterable[Shard]) -> None:
        """Called when the end of a shard named its children, which are known at once, without waiting for a listing (S3)."""

    def reasons_not_ready(self) -> list[str]:
        """Return why nothing is written although shards are read, in plain words."""
        return []

    async def before_stop(self) -> None:  # noqa: B027 - optional on purpose
        """Called when the run was stopped, while records are still read and written."""

    async def after_run(self, *, is_cut_off: bool) -> None:  # noqa: B027 - optional on purpose
        """Called when the run is over; may be called twice. `is_cut_off`: the run was ended by an error or by the drain timeout."""

    @property
    def has_others(self) -> bool:
        """Whether other processes of the job continue to read."""
        return False

    async def close(self) -> None:  # noqa: B027 - optional on purpose
        """Close the resources used to own shards. Called last."""
