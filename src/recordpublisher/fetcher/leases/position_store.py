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
from .group_store import GroupStore
from .position_documents import PositionKey, PositionPart, Positions, StoredPosition, is_stored
from .worker_record import WorkerRecord

if TYPE_CHECKING:
    from .group_watermark import ShardWatermark
from .group_store import read_parts
from .sealing import seal_parts


class PositionStore(ABC):
    """Stores the positions of this worker, and reads those of other workers.

    Every write is conditional: it fails if the worker was declared dead (sealed) or deleted (E1). A sealed part never changes,
    except when a commit is taken back.

    - `pinned_ms`, `taken_ms`: the values that the next write stores in the part of a worker that runs alone (`PositionPart`).
    """

    pinned_ms: int | None = None
    taken_ms: int | None = None

    def set_times(self, pinned_ms: int | None, taken_ms: int | None) -> None:
        """Set two values that the next write stores: the time that replaced LATEST, and the time of the checkpoint (ms since the epoch)."""
        self.pinned_ms, self.taken_ms = pinned_ms, taken_ms

    @property
    def entries(self) -> GroupStore | None:
        """The store of parts that are kept next to the rows of a sink, or None if parts are in the group's store."""
        return None

    @property
    def parts(self) -> int:
        """Number of parts that the worker's record must name."""
        return 0

    async def join(self) -> None:  # noqa: B027 - optional on purpose
        """Prepare for the first commit."""

    async def settle(self) -> None:  # noqa: B027 - optional on purpose
        """Find out the outcome of a commit without an answer, before the next commit.

        Raises: FencedError if another process has replaced the positions, or sealed them against further writes; StateError if
        the outcome cannot be found.
        """

    async def stage(self) -> None:  # noqa: B027 - optional on purpose
        """Let the sink stage its records for the next checkpoint. Raises: StateError if they cannot be staged; the errors of the sink."""

    @abstractmethod
    async def commit(self, positions: Positions, *, is_checkpoint: bool = False) -> bool:
        """Store all positions of this worker. When this returns, any process that declares the worker dead (seals it) finds them.

        Return whether something was written, because the positions had changed.

        `is_checkpoint`: whether the positions cover the staged records, so that this write commits them. Raises: FencedError if
        the worker was declared dead; StateError if the positions cannot be stored.
        """

    async def publish(self) -> None:  # noqa: B027 - optional on purpose
        """Make the committed rows visible. Raises: StateError if that is not possible."""

    @abstractmethod
    async def read(self, record: WorkerRecord) -> Positions:
        """Return the positions of a worker, read consistently."""

    @abstractmethod
    async def seal(self, record: WorkerRecord) -> Positions:
        """Seal the positions of a worker declared dead (whose record is sealed) against further writes, and return them."""

    async def delete(self, worker: str) -> bool:
        """Delete the positions of a sealed worker that the lease table does not name.

        Parts may be deleted with the worker's record instead.

        Return whether the record can be deleted as well. If False, this is called again. Raises: StoreUnavailableError if the store cannot
        be reached now; StateError if waiting does not help.
        """
        return True


class PartPositionStore(PositionStore):
    """Stores positions in parts of a few shards each (E2), and writes only the parts that changed.

    Owns in which part each position is, and what each part contains. `name_parts` writes the worker's record, which states the
    number of parts.
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
        """Number of parts that certainly exist."""
        return sum(part.stored is not None for part in self._parts)

    async def commit(self, positions: Positions, *, is_checkpoint: bool = False) -> bool:
        """Write each part that changed. New parts are created before the record names them (E3)."""
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
        """Read every part that the record names."""
        return await read_parts(self._group, record)

    async def seal(self, record: WorkerRecord) -> Positions:
        """Seal every part that the record names, so that its worker can no longer write it.

        If a part changes before that, its newest version is sealed.
        """
        return await seal_parts(self._group, record)

    def _place(self, positions: Positions) -> None:
        """Assign each position to a part, so that a part changes only with its own positions."""
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
    """Owns the positions of one part: which positions it has, and which of them are certainly stored.

    `stored` is None if the part may not exist.
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


# The port through which a worker's leases use the fetcher: begin, stop and drop shards, and ask how far each was
# emitted.


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
        """Begin to read a shard from this state. `is_taken_over`: whether another worker has held the shard, and it was not idle there."""

    async def stop(self, shards: Collection[str]) -> None:
        """Stop reading these shards, drop their unread records, and wait for the write in progress to end (E5)."""

    def drop(self, shards: Collection[str]) -> None:
        """Forget these shards, because another worker holds them. Their records that are not committed are dropped (E1)."""

    def drop_all(self) -> None:
        """Forget every shard, because the worker has ended."""

    def checkpoint(self, *, may_be_partial: bool = False) -> AbstractAsyncContextManager[ReadPositions]:
        """Provide the position of each shard that was begun and not dropped, once the sink has flushed everything before it (S6).

        `may_be_partial`: the sink need not wait for everything, so the positions may be older ones of the same lease. A `CommittingSink` is
        not flushed: nothing is written while the block runs, and the block stages and commits.
        """

    def watermarks(self) -> Mapping[str, ShardWatermark]:
        """Return the watermark of each shard that was begun and not dropped, as it counts for the group (W1).

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
