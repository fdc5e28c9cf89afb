"""The positions of a few shards of one worker, by shard and epoch, and the document that stores them (E1, E2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, NamedTuple

import msgspec

from ..conditional_store import (
    Count,
    Millis,
    WorkerName,
    document_as,
    read_document,
)
from ..shards.shard_state import ShardState, StoredState
from ..sink import CommitNumber, Staged
from . import document_format


@dataclass(frozen=True, slots=True)
class PositionPart:
    """A part of a worker's positions: one stored document with the positions of some or all of its shards.

    A sealed part is not written again, except when a commit that cannot be published is undone (`CommittingSink.take_back`).

    - `write`: the number of the write, so that no two stored values are equal.
    - `staged`: the staged items that the part commits, if the sink is a `CommittingSink`.
    - `target`: where a `CommittingSink` has the rows (`CommittingSink.target`).
    - `is_alone`: whether the part belongs to a worker that runs alone and has a `CommittingSink`.
    - `pinned_ms`: the time that replaced LATEST (epoch ms). Only stored if `is_alone`.
    - `taken_ms`: the time of the last checkpoint (epoch ms), for people. Only stored if `is_alone`.
    """

    worker: str
    write: int = 1
    is_sealed: bool = False
    positions: Positions = field(default_factory=dict)
    staged: Sequence[Staged] = ()
    target: str = ""
    pinned_ms: int | None = None
    taken_ms: int | None = None
    is_alone: bool = False

    def before_commit(self, first: CommitNumber, place: str) -> Positions:
        """Return the positions that were stored before the commit `first`, which the part names.

        A worker of a group may have acquired a shard after that commit. Then the position from the first commit of the shard is returned.
        For a worker that runs alone, a shard without a position is left out, so it is read from its start again.

        Raises: StateError if the positions cannot be read.
        """
        since = [each for each in self.staged if each.number >= first]
        if self.is_alone:
            return positions_from_json(since[0].before, place)
        known = [*(positions_from_json(each.before, place) for each in since), self.positions]
        return {key: next(each[key] for each in known if key in each) for key in self.positions}

    def to_bytes(self) -> bytes:
        """Return the part as JSON."""
        positions = positions_to_json(self.positions)
        sealed = {"sealed": True} if self.is_sealed else {}
        named = _staged_to_json(self.staged, self.target)
        times = {"pinned": self.pinned_ms, "taken": self.taken_ms, "alone": self.is_alone or None}
        known = {name: value for name, value in times.items() if value is not None}
        content = {"worker": self.worker, "write": self.write, **sealed, **named, **known, "positions": positions}
        return document_format.to_bytes(content)

    @classmethod
    def from_bytes(cls, value: bytes, place: str) -> PositionPart:
        """Read a part that `to_bytes` wrote. Raises: StateError, with the place, if it cannot be read."""
        stored = read_document(value, _StoredPart, place, document_format.FORMAT)
        staged = tuple(each.staged for each in stored.staged)
        positions, times = _by_key(stored.positions), (stored.pinned, stored.taken, stored.alone)
        return cls(stored.worker, stored.write, stored.sealed, positions, staged, stored.target, *times)


class PositionKey(NamedTuple):
    """The key of a position: a shard (`Shard.key`), and the epoch of the lease under which the shard is read.

    A worker may have two positions of the same shard. One belongs to the lease that the worker has released. The other belongs to the lease
    under which it will acquire the shard again, because a worker stores the position of a shard before it acquires the shard.
    """

    shard: str
    epoch: int


@dataclass(frozen=True, slots=True)
class StoredPosition:
    """How far a shard was written to the sink. If the shard has ended, `children` has the parents of each of its children.

    `is_idle` is stored because the next reader of the shard needs it.
    """

    state: ShardState
    children: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    is_idle: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return a plain dict, without values that equal their defaults."""
        children = {"children": self.children} if self.children else {}
        return {**self.state.to_json(), **children, **({"idle": True} if self.is_idle else {})}


Positions = Mapping[PositionKey, StoredPosition]
SHARDS_PER_PART = 16
"""Number of shards in one document with positions (part), for stores such as DynamoDB that bill each write by the size of the whole item.

An item of DynamoDB has at most 400 KB, and a position less than 1 KB. In other stores one part has all positions of a worker.
"""
TIP_REWRITE_MS = 300_000
"""If only the time of the last read at the tip has changed, a position is not written again before the time is this much newer (ms).

The time changes with each read of a shard at rest, but it is only compared with retentions of a day and more.
"""


def is_stored(positions: Positions, stored: Positions) -> bool:
    """Return whether a write can be left out, because the stored positions differ at most in the times of reads at the tip."""
    if positions == stored:
        return True
    return positions.keys() == stored.keys() and all(
        _is_same(each.state, stored[key].state)
        and (each.children, each.is_idle) == (stored[key].children, stored[key].is_idle)
        for key, each in positions.items()
    )


def _is_same(state: ShardState, stored: ShardState) -> bool:
    if state.tip_ms is None or stored.tip_ms is None:
        return state == stored
    # An older time is stored at once: the clock was set back, and a gap would not be noticed with the time in the future.
    is_close = 0 <= state.tip_ms - stored.tip_ms < TIP_REWRITE_MS
    return is_close and replace(state, tip_ms=stored.tip_ms) == stored


def positions_to_json(positions: Positions) -> list[Any]:
    """Return the positions as a plain list, sorted by shard and epoch."""
    return [
        [shard, epoch, stored.to_json()]
        for (shard, epoch), stored in sorted(positions.items(), key=lambda each: each[0])
    ]


def positions_from_json(content: Any, place: str) -> Positions:
    """Read positions that `positions_to_json` wrote. Raises: StateError, with the place, if they cannot be read."""
    return _by_key(document_as(content, list[_Position], place))


class _StoredPosition(StoredState, rename="camel"):
    children: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    idle: bool = False


_Position = tuple[str, Count, _StoredPosition]


def _by_key(positions: Sequence[_Position]) -> Positions:
    return {
        PositionKey(shard, epoch): StoredPosition(stored.state, stored.children, stored.idle)
        for shard, epoch, stored in positions
    }


class _StoredStaged(msgspec.Struct):
    writer: Annotated[str, msgspec.Meta(min_length=1, max_length=400)]
    n: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
    content: dict[str, Any]
    before: Any = None

    @property
    def staged(self) -> Staged:
        return Staged(CommitNumber(self.writer, self.n), self.content, before=self.before)


class _StoredPart(msgspec.Struct, kw_only=True):
    worker: WorkerName
    write: Count
    sealed: bool = False
    pinned: Millis | None = None
    taken: Millis | None = None
    alone: bool = False
    staged: list[_StoredStaged] = []
    target: str = ""
    positions: list[_Position]


def _staged_to_json(staged: Sequence[Staged], target: str) -> dict[str, Any]:
    names = [
        {"writer": each.number.writer, "n": each.number.n, "content": each.content}
        | ({} if each.before is None else {"before": each.before})
        for each in staged
    ]
    return {**({"staged": names} if names else {}), **({"target": target} if target else {})}
