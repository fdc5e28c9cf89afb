"""PositionPart: the positions of at most a few shards of one worker, by shard and epoch (E1, E2)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.errors import StateError

from . import json_documents


class PositionKey(NamedTuple):
    """A shard (`Shard.key`) in an epoch. A worker may have two positions of a shard: the one it released, and the one it prepared (E5)."""

    shard: str
    epoch: int


@dataclass(frozen=True, slots=True)
class StoredPosition:
    """How far a shard was emitted; with its end, the parents of each child (E7). `is_idle` travels with it (E8)."""

    state: ShardState
    children: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    is_idle: bool = False

    def to_json(self) -> dict[str, Any]:
        """A plain dict, without what has its default."""
        children = {"children": self.children} if self.children else {}
        return {**self.state.to_json(), **children, **({"idle": True} if self.is_idle else {})}

    @classmethod
    def from_json(cls, entries: Mapping[str, Any]) -> StoredPosition:
        """The inverse of `to_json`."""
        children = {child: tuple(parents) for child, parents in entries.get("children", {}).items()}
        return cls(ShardState.from_json(entries), children, entries.get("idle", False))


Positions = Mapping[PositionKey, StoredPosition]


@dataclass(frozen=True, slots=True)
class PositionPart:
    """A part of a worker's positions. `write` numbers the writes, so that no value is stored twice. A sealed one is never written again."""

    worker: str
    write: int = 1
    is_sealed: bool = False
    positions: Positions = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """As JSON."""
        positions = [
            [shard, epoch, stored.to_json()]
            for (shard, epoch), stored in sorted(self.positions.items(), key=lambda each: each[0])
        ]
        sealed = {"sealed": True} if self.is_sealed else {}
        return json_documents.to_bytes({"worker": self.worker, "write": self.write, **sealed, "positions": positions})

    @classmethod
    def from_bytes(cls, value: bytes, place: str) -> PositionPart:
        """The inverse of `to_bytes`. Raises: StateError naming the place."""
        content = json_documents.from_bytes(value, place)
        try:
            positions = {
                PositionKey(shard, epoch): StoredPosition.from_json(stored)
                for shard, epoch, stored in content["positions"]
            }
            return cls(content["worker"], content["write"], content.get("sealed", False), positions)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StateError(f"{place} cannot be read: {error!r}") from error
