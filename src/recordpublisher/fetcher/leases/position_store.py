"""PositionStore: where the workers of a group keep their positions: in parts (here), or in a sink together with its rows."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import replace

from recordpublisher.publishers.errors import StoreUnavailableError

from ..conditional_store import ConflictError
from .documents.group_store import MAX_ATTEMPTS, GroupStore
from .documents.position_part import PositionKey, PositionPart, Positions, StoredPosition, is_stored
from .documents.worker_record import WorkerRecord


class PositionStore(ABC):
    """The positions of this worker, and how it reads those of others.

    Every write is conditional: it fails for a worker that was sealed or deleted (E1). What was sealed never changes, but when a commit is
    taken back.
    """

    @property
    def parts(self) -> int:
        """How many parts the worker's record must name."""
        return 0

    async def join(self) -> None:  # noqa: B027 - optional on purpose
        """Prepare for the first commit."""

    async def settle(self) -> None:  # noqa: B027 - optional on purpose
        """Decide what became of a commit without an answer, before the next one is made. Raises: FencedError, StateError."""

    async def stage(self) -> None:  # noqa: B027 - optional on purpose
        """Stage what the sink was given, for the next checkpoint. Raises: StateError, errors of the sink."""

    @abstractmethod
    async def commit(self, positions: Positions, *, is_checkpoint: bool = False) -> None:
        """Store all positions of this worker. When it returns they are found by whoever seals it.

        `is_checkpoint`: they cover what was staged, and commit it. Raises: FencedError, StateError.
        """

    async def publish(self) -> None:  # noqa: B027 - optional on purpose
        """Make visible what is committed. Raises: StateError."""

    @abstractmethod
    async def read(self, record: WorkerRecord) -> Positions:
        """The positions of a worker, read consistently."""

    @abstractmethod
    async def seal(self, record: WorkerRecord) -> Positions:
        """Seal the positions of a worker whose record is sealed, then read them."""

    async def delete(self, worker: str) -> bool:
        """Delete the positions of a sealed worker that the lease table does not name; parts may go with the worker's record.

        Return whether the record can go, too; False: this is called again. Raises: StoreUnavailableError, StateError.
        """
        return True


class PartPositionStore(PositionStore):
    """Positions in parts of a few shards each (E2): only parts that changed are written.

    Owns in which part each position is, and what each part contains. `name_parts` writes the worker's record.
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
        """The parts that exist for certain."""
        return sum(part.stored is not None for part in self._parts)

    async def commit(self, positions: Positions, *, is_checkpoint: bool = False) -> None:
        """Write each part that changed. New parts are created before the record names them (E3)."""
        self._place(positions)
        for part in self._parts:
            await part.write({key: positions[key] for key in part.keys})
        if self._named < self.parts:
            named = self.parts
            await self._name_parts()
            self._named = named

    async def read(self, record: WorkerRecord) -> Positions:
        """Read every part that the record names."""
        return await read_parts(self._group, record)

    async def seal(self, record: WorkerRecord) -> Positions:
        """Seal every part that the record names; a part that changes meanwhile is sealed as it is then."""
        return await seal_parts(self._group, record)

    def _place(self, positions: Positions) -> None:
        """Keep each position in its part, so that a part changes only with its own positions."""
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


async def read_parts(group: GroupStore, record: WorkerRecord) -> Positions:
    """The positions in every part that a record names, read consistently."""
    found: dict[PositionKey, StoredPosition] = {}
    for number in range(record.parts):
        part = await group.read_part(record.worker, number)
        found |= {} if part is None else part.document.positions
    return found


async def read_positions(group: GroupStore, entries: GroupStore | None, record: WorkerRecord) -> Positions:
    """The positions of a worker, in its parts, and in the one that commits for a sink where that has its own entries."""
    own = None if entries is None else await entries.read_part(record.worker, 0)
    return {**await read_parts(group, record), **({} if own is None else own.document.positions)}


async def seal_parts(group: GroupStore, record: WorkerRecord) -> Positions:
    """Seal every part that a record names, then read them."""
    found: dict[PositionKey, StoredPosition] = {}
    for number in range(record.parts):
        part = await seal_part(group, record.worker, number)
        found |= {} if part is None else part.positions
    return found


async def seal_part(group: GroupStore, worker: str, number: int) -> PositionPart | None:
    """Seal one part, and return it; None: there is none."""
    for _ in range(MAX_ATTEMPTS):
        part = await group.read_part(worker, number)
        if part is None or part.document.is_sealed:
            return None if part is None else part.document
        sealed = replace(part.document, write=part.document.write + 1, is_sealed=True)
        with contextlib.suppress(ConflictError):
            await group.seal_part(sealed, number, part.version)
            return sealed
    raise StoreUnavailableError(f"part {number} of {worker} was written {MAX_ATTEMPTS} times while it was sealed")


class _OwnPart:
    """Owns the positions of one part: which ones it has, and which are stored for certain (None: it may not exist)."""

    def __init__(self, group: GroupStore, worker: str, number: int) -> None:
        self.keys: set[PositionKey] = set()
        self.stored: Positions | None = None
        self._worker = worker
        self._document = group.own_part(worker, number)
        self._writes = 0
        self._is_certain = False

    async def write(self, positions: Positions) -> None:
        if self._is_certain and self.stored is not None and is_stored(positions, self.stored):
            return
        self._is_certain = False
        self._writes += 1
        await self._document.write(PositionPart(self._worker, self._writes, False, positions))
        self.stored, self._is_certain = positions, True
