"""The port through which a worker's leases use the fetcher: begin, stop and drop shards, and ask how far each was emitted."""

from collections.abc import Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from ..shards.shard_state import ShardState
from .documents.position_part import StoredPosition
from .planning.group_watermark import ShardWatermark


@dataclass(frozen=True, slots=True)
class ReadPositions:
    """The positions that a checkpoint may store.

    - `stored`: the position of each shard.
    - `unfinished`: shards of which the sink has unfinished records. Their position is an older one, or missing if nothing of them was
      flushed since they began.
    - `is_before_commit`: whether the positions are the current ones, and cover what will be staged.
    """

    stored: Mapping[str, StoredPosition]
    unfinished: Collection[str] = ()
    is_before_commit: bool = False


class ShardReaders(Protocol):
    """Reads shards from `begin` until they are stopped or dropped."""

    def begin(self, shard: str, state: ShardState, *, is_taken_over: bool = False) -> None:
        """Read a shard from this state on. `is_taken_over`: another worker has held the shard, and the shard was not idle there."""

    async def stop(self, shards: Collection[str]) -> None:
        """Stop reading these shards, drop their unread records, and wait for the write in progress to end (E5)."""

    def drop(self, shards: Collection[str]) -> None:
        """Forget these shards, because another worker holds them. What is not committed is dropped (E1)."""

    def drop_all(self) -> None:
        """Forget every shard, because the worker has ended."""

    def checkpoint(self, *, may_be_partial: bool = False) -> AbstractAsyncContextManager[ReadPositions]:
        """Provide the position of each shard that was begun and not dropped, once the sink has flushed everything before it (S6).

        `may_be_partial`: the sink need not wait for everything, so the positions may be older ones of the same lease. A `CommittingSink` is
        not flushed: nothing is written while the block runs, and the block stages and commits.
        """

    def watermarks(self) -> Mapping[str, ShardWatermark]:
        """Return the watermark with which each shard counts that was begun and not dropped (W1).

        It is the watermark of the shard's next queued record, or else of its last one.
        """

    @property
    def is_aligned(self) -> bool:
        """Whether shards may have to wait for the watermark of the group."""

    @property
    def is_held(self) -> bool:
        """Whether a shard waits for the watermark of the group to rise."""

    def loads(self) -> Mapping[str, float]:
        """Return the load (bytes per second) of each shard that was read for long enough to know it (E6)."""
