"""ShardOwnership: which shards a fetcher reads: a fixed part of all, or those whose leases its process has."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, ClassVar

from recordpublisher.publishers.shards import Shard

from ..sink import SinkContext
from ..startup import OpenedJob

StartTask = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
"""Runs the work in a background task of the run: its error ends the run."""


class ShardOwnership(ABC):
    """Adds shards to the table of a fetcher and takes them away. The fetcher calls it; what a method does not need it leaves out.

    `has_leases`: shards come and go while a run goes on, so there are none at first (E7).
    """

    has_leases: ClassVar[bool] = False

    @abstractmethod
    async def open(self, context: SinkContext) -> OpenedJob:
        """Open the sink, restore, and list the shards. Raises: StateError, DataLossError, StreamNotFoundError, KinesisError."""

    def start_run(self, start_task: StartTask) -> None:  # noqa: B027 - optional on purpose
        """A run starts, before the first reader does."""

    @abstractmethod
    async def discover(self) -> None:
        """Find the shards that come later, until cancelled (S3)."""

    @abstractmethod
    async def on_look(self) -> None:
        """The list of streams was looked at (S10)."""

    @abstractmethod
    def add_children(self, children: Iterable[Shard]) -> None:
        """The end of a shard named its children: they are known at once, without waiting for a listing (S3)."""

    def monitored(self, listed: Iterable[Shard]) -> Mapping[str, tuple[Shard, int]]:
        """The listed shards that this subtask monitors for others, by key, each with its owner (A2)."""
        return {}

    def reasons_not_ready(self) -> list[str]:
        """Why nothing is written although shards are read, in plain words."""
        return []

    async def before_stop(self) -> None:  # noqa: B027 - optional on purpose
        """The run was stopped; records are still read and written."""

    async def after_run(self, *, is_cut_off: bool) -> None:  # noqa: B027 - optional on purpose
        """The run is over. `is_cut_off`: by an error or the drain time-out. Also called twice."""

    @property
    def has_others(self) -> bool:
        """Whether other processes of the job read on."""
        return False

    async def close(self) -> None:  # noqa: B027 - optional on purpose
        """Close what is used to own shards. Called last."""
