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
    check_document,
    read_document,
)
from ..shards.shard_state import ShardState, StoredState
from ..sink import CommitNumber, Staged
from . import json_documents


class PositionKey(NamedTuple):
    """A shard (`Shard.key`) in an epoch.

    A worker may have two positions of the same shard: the one that it released, and the one that it prepared for a take (E5).
    """

    shard: str
    epoch: int


@dataclass(frozen=True, slots=True)
class StoredPosition:
    """How far a shard was emitted. With the shard's end it has the parents of each child (E7).

    `is_idle` is stored too, for the next reader of the shard (E8).
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
"""Number of shards in a part, for stores such as DynamoDB that bill whole items.

Positions that did not change should not be in the same item as those that did. An item of DynamoDB has at most 400 KB, and a position less
than 1 KB. Other stores have all positions of a worker in one part.
"""
TIP_MS = 300_000
"""The time of a shard's last read at the tip is stored again only after this time (ms).

That time changes with each read of a shard at rest, and is only compared with retentions of a day and more.
"""


def is_stored(positions: Positions, stored: Positions) -> bool:
    """Return whether these positions need no write, because they equal the stored ones except for times of reads at the tip (E2)."""
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
    return state.tip_ms - stored.tip_ms < TIP_MS and replace(state, tip_ms=stored.tip_ms) == stored


def positions_to_json(positions: Positions) -> list[Any]:
    """Return the positions as a plain list, sorted by shard and epoch."""
    return [
        [shard, epoch, stored.to_json()]
        for (shard, epoch), stored in sorted(positions.items(), key=lambda each: each[0])
    ]


def positions_from_json(content: Any, place: str) -> Positions:
    """Read positions that `positions_to_json` wrote. Raises: StateError, with the place, if they cannot be read."""
    return _by_key(check_document(content, list[_Position], place))


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


@dataclass(frozen=True, slots=True)
class PositionPart:
    """A part of a worker's positions. `write` numbers the writes, so that no value is stored twice.

    A sealed part is never written again, except when a commit is taken back. The part of a worker with a `CommittingSink` has two more
    fields:

    - `staged`: the staged items that the part commits.
    - `target`: the target of the sink, where the rows are.

    The part of a worker that runs alone (`is_alone`, with a `CommittingSink`) has the time that replaced LATEST (`pinned_ms`), and the time
    of its checkpoint for people (`taken_ms`, epoch ms).
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

    def before(self, first: CommitNumber, place: str) -> Positions:
        """Return the positions before a commit that the part names.

        A shard that a worker of a group took after that commit has its position in a later commit. A worker that runs alone takes no shards
        later: a shard without a position before the commit begins at its start again.

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
        return json_documents.to_bytes(content)

    @classmethod
    def from_bytes(cls, value: bytes, place: str) -> PositionPart:
        """Read a part that `to_bytes` wrote. Raises: StateError, with the place, if it cannot be read."""
        stored = read_document(value, _StoredPart, place, json_documents.FORMAT)
        staged = tuple(each.staged for each in stored.staged)
        positions, times = _by_key(stored.positions), (stored.pinned, stored.taken, stored.alone)
        return cls(stored.worker, stored.write, stored.sealed, positions, staged, stored.target, *times)


def _staged_to_json(staged: Sequence[Staged], target: str) -> dict[str, Any]:
    """Return the staged items and the target as a plain dict, without empty values."""
    names = [
        {"writer": each.number.writer, "n": each.number.n, "content": each.content}
        | ({} if each.before is None else {"before": each.before})
        for each in staged
    ]
    return {**({"staged": names} if names else {}), **({"target": target} if target else {})}
