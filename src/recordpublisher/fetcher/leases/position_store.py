"""Stores the positions of a group's workers: in documents of the group's store (parts), or in a sink together with its rows.

`ShardReaders` is the port through which a worker's leases use the fetcher: begin, stop and drop shards, and ask how far each was read.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from ..shards.shard_state import ShardState
from ..sink import RevocationReason
from .group_store import GroupStore
from .position_documents import PositionKey, PositionPart, Positions, StoredPosition, is_stored
from .worker_record import WorkerRecord

if TYPE_CHECKING:
    from .group_watermark import ShardWatermark
from .group_store import read_parts
from .worker_sealing import seal_parts


class PositionStore(ABC):
    """Stores the positions of this worker, and reads those of other workers.

    Positions are in parts: documents with the positions of some of a worker's shards (`PositionPart`). Every write is conditional: it fails
    if the worker was sealed (declared dead) or deleted. A sealed part is not written again, except when a commit that cannot be
    published is undone.

    - `pinned_ms`, `taken_ms`: values that the next write stores in the part of a worker that runs alone (see `PositionPart`).
    """

    pinned_ms: int | None = None
    taken_ms: int | None = None

    def set_times(self, pinned_ms: int | None, taken_ms: int | None) -> None:
        """Set two values that the next write stores: the time that replaced LATEST, and the time of the checkpoint (epoch ms)."""
        self.pinned_ms, self.taken_ms = pinned_ms, taken_ms

    @property
    def entries(self) -> GroupStore | None:
        """The sink's store, if positions are stored next to its rows. None if they are in the group's store."""
        return None

    @property
    def parts(self) -> int:
        """Number of documents with positions (parts) that the worker's record must name."""
        return 0

    async def join(self) -> None:  # noqa: B027 - optional on purpose
        """Create the documents that the worker's record will name. Called before the first write of the record."""

    async def settle(self) -> None:  # noqa: B027 - optional on purpose
        """Find out the outcome of a commit that got no answer, before the next commit.

        Raises: FencedError if another process has replaced the positions, or sealed them against further writes; StateError if the outcome
        cannot be found out.
        """

    async def stage(self) -> None:  # noqa: B027 - optional on purpose
        """Let a `CommittingSink` make its written records durable, so that the next checkpoint commits them. Do nothing for other sinks.

        Raises: StateError if the records cannot be staged; the errors of the sink.
        """

    @abstractmethod
    async def commit(self, positions: Positions, *, is_checkpoint: bool = False) -> bool:
        """Store all positions of this worker. Return whether anything was written.

        When this returns, a process that seals this worker (declares it dead) finds these positions.

        `is_checkpoint`: whether the positions cover the staged records, so that this write commits them.

        Raises: FencedError if the worker was sealed; StateError if the positions cannot be stored.
        """

    async def publish(self) -> None:  # noqa: B027 - optional on purpose
        """Make the committed rows visible; do nothing if the sink does not commit. Raises: StateError if that is not possible."""

    @abstractmethod
    async def read(self, record: WorkerRecord) -> Positions:
        """Return the positions of a worker, read consistently.

        `record`: the worker's record, which names the parts.
        """

    @abstractmethod
    async def seal(self, record: WorkerRecord) -> Positions:
        """Seal the positions of a dead worker, so that it can no longer write them, and return them.

        `record`: the worker's record, which is sealed already.
        """

    async def delete(self, worker: str) -> bool:
        """Delete the positions of a sealed worker that no lease names. Return whether the worker's record can be deleted as well.

        If the result is False, call this again later. Some documents with positions (parts) may be left. `GroupStore.delete_worker` deletes
        them with the record.

        Raises: StoreUnavailableError if the store cannot be reached now; StateError if waiting does not help.
        """
        return True


class PartPositionStore(PositionStore):
    """Stores positions in the group's store, in parts of a few shards each. Only parts that changed are written.

    `name_parts`: writes the worker's record, which states the number of parts.
    """

    def __init__(
        self, group: GroupStore, worker: str, shards_per_part: int, name_parts: Callable[[], Awaitable[object]]
    ) -> None:
        self._group = group
        self._worker = worker
        self._shards_per_part = shards_per_part
        self._name_parts = name_parts
        self._parts: list[_OwnPart] = []
        self._named = 0

    @property
    def parts(self) -> int:
        """Number of documents with positions (parts) that are certainly stored."""
        return sum(part.stored is not None for part in self._parts)

    async def commit(self, positions: Positions, *, is_checkpoint: bool = False) -> bool:
        """Write each document (part) whose positions have changed. A new part is created before the worker's record names it."""
        self._place(positions)
        is_written = False
        for part in self._parts:
            is_written |= await part.write({key: positions[key] for key in part.keys}, self.pinned_ms, self.taken_ms)
        if self._named < self.parts:
            named = self.parts
            await self._name_parts()
            self._named = named
        return is_written

    async def read(self, record: WorkerRecord) -> Positions:
        """Return the positions in all documents that the worker's record names."""
        return await read_parts(self._group, record)

    async def seal(self, record: WorkerRecord) -> Positions:
        """Seal every part that the worker's record names, so that the worker can write none of them again, and return the positions.

        If a part changes just before it is sealed, the newer version is sealed.
        """
        return await seal_parts(self._group, record)

    def _place(self, positions: Positions) -> None:
        """Assign each position to a part. A position stays in its part, so that a checkpoint of a few shards writes few parts."""
        for part in self._parts:
            part.keys.intersection_update(positions)
        placed = {key for part in self._parts for key in part.keys}
        for key in sorted(positions.keys() - placed):
            self._part_with_room().keys.add(key)

    def _part_with_room(self) -> _OwnPart:
        for part in self._parts:
            if len(part.keys) < self._shards_per_part:
                return part
        self._parts.append(_OwnPart(self._group, self._worker, len(self._parts)))
        return self._parts[-1]


class _OwnPart:
    """Writes one part. Keeps which shards are in the part, and which positions are certainly stored.

    `stored` is None until a write of the part has succeeded.
    """

    def __init__(self, group: GroupStore, worker: str, number: int) -> None:
        self.keys: set[PositionKey] = set()
        self.stored: Positions | None = None
        self._worker = worker
        self._document = group.own_part(worker, number)
        self._writes = 0
        self._is_certain = False

    async def write(self, positions: Positions, pinned_ms: int | None, taken_ms: int | None) -> bool:
        if self._is_certain and self.stored is not None and is_stored(positions, self.stored):
            return False
        self._is_certain = False
        self._writes += 1
        part = PositionPart(self._worker, self._writes, False, positions, pinned_ms=pinned_ms, taken_ms=taken_ms)
        await self._document.write(part)
        self.stored, self._is_certain = positions, True
        return True


# ShardReaders is the port through which a worker uses the fetcher: to begin, stop and drop shards, and to ask how far each was emitted.


@dataclass(frozen=True, slots=True)
class CheckpointPositions:
    """The positions that a checkpoint may store.

    - `stored`: the position of each shard.
    - `unfinished`: shards of which the sink has records to finish. `stored` has an older position for such a shard, or none if nothing was
      flushed since the shard was begun.
    - `is_before_commit`: whether the positions cover records that the sink has not staged yet, and that will be committed with them.
    """

    stored: Mapping[str, StoredPosition]
    unfinished: Collection[str] = ()
    is_before_commit: bool = False


class ShardReaders(Protocol):
    """The part of the fetcher that a worker of a group uses. It reads each shard from `begin` until `stop` or `drop`."""

    def begin(self, shard: str, state: ShardState, *, is_taken_over: bool = False) -> None:
        """Begin to read a shard from this state.

        `is_taken_over`: whether another worker has held the shard, and the shard was not idle there.
        """

    async def stop(self, shards: Collection[str]) -> None:
        """Stop reading these shards, drop their records that were not written yet, and wait for the write in progress."""

    def drop(self, shards: Mapping[str, RevocationReason]) -> None:
        """Forget these shards, for these reasons, because the lease table no longer gives them to this worker.

        Their records that are not committed are dropped.
        """

    def has_unfinished(self, shards: Collection[str]) -> bool:
        """Return whether any record of these shards is not written yet, or not finished by the sink. Their streams were deleted."""

    def drop_all(self) -> None:
        """Forget every shard, because the worker was replaced or has failed."""

    def checkpoint(self, *, may_be_partial: bool = False) -> AbstractAsyncContextManager[CheckpointPositions]:
        """Flush the sink, and provide for each shard the position up to which everything is flushed.

        Shards that were begun and not dropped are included. With `may_be_partial` the sink need not finish everything, so a position may be
        an older one of the same lease.

        A `CommittingSink` is not flushed. Instead no write runs while the `async with` block of the caller stages and commits.
        """

    def watermarks(self) -> Mapping[str, ShardWatermark]:
        """Return the watermark with which each shard counts for the group, for shards that were begun and not dropped.

        It is the watermark of the shard's next queued record, or else of its last one.
        """

    @property
    def is_aligned(self) -> bool:
        """Whether the job uses alignment, so that a shard may have to wait for the watermark of the group."""

    @property
    def is_held(self) -> bool:
        """Whether a shard waits for the watermark of the group to rise."""

    def loads(self) -> Mapping[str, float]:
        """Return the load of each shard that was read for at least a minute (bytes per second)."""
