"""ShardReaders: what a worker's leases need from the fetcher: begin, stop and drop shards, and say how far each was emitted."""

from collections.abc import Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from ..shards.shard_state import ShardState
from .documents.position_part import StoredPosition
from .planning.group_watermark import ShardWatermark


@dataclass(frozen=True, slots=True)
class ReadPositions:
    """What a checkpoint may store of each shard. `unfinished`: the shards of which the sink has more: their position is an older one, or
    missing if nothing of theirs was flushed since they began. `is_before_commit`: they are those of now, and cover what will be staged."""

    stored: Mapping[str, StoredPosition]
    unfinished: Collection[str] = ()
    is_before_commit: bool = False


class ShardReaders(Protocol):
    """Reads the shards that it was told to begin, until they are stopped or dropped."""

    def begin(self, shard: str, state: ShardState, *, is_taken_over: bool = False) -> None:
        """Read a shard from this state on. `is_taken_over`: another worker has had it, and the shard was not idle there."""

    async def stop(self, shards: Collection[str]) -> None:
        """Read these shards no more, and drop what is unread. Returns when the write that was going on has ended (E5)."""

    def drop(self, shards: Collection[str]) -> None:
        """Forget these shards: another worker has them. What is not committed is dropped (E1)."""

    def drop_all(self) -> None:
        """Forget every shard, because the worker has ended."""

    def checkpoint(self, *, may_be_partial: bool = False) -> AbstractAsyncContextManager[ReadPositions]:
        """The position of each shard that was begun and not dropped, once the sink has flushed everything before it (S6).

        `may_be_partial`: the sink need not wait for everything: the positions may be older ones, of the same lease.
        With a sink that commits nothing is flushed, and nothing is written while the block runs: the block stages and commits.
        """

    def watermarks(self) -> Mapping[str, ShardWatermark]:
        """With what each shard counts that was begun and not dropped: the watermark of its next queued record, or its last one (W1)."""

    @property
    def is_held(self) -> bool:
        """Whether a shard waits for the watermark of the group to rise."""

    def loads(self) -> Mapping[str, float]:
        """Bytes per second of each shard that was read for long enough to tell (E6)."""
