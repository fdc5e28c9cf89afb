"""WorkerRecord: what a worker says of itself with each heartbeat (E2, E3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import msgspec

from recordpublisher.fetcher.stored_documents import Count, Millis, WorkerName, read_document

from . import json_documents

MAX_PARTS = 10_000
"""Of a few shards each: far more than a worker can read."""


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """The record of one life of a worker. Whoever seals it ends that life: it is never written again.

    - `beat`: the number of the heartbeat; it makes each stored value unique.
    - `is_leaving`: it releases everything and takes nothing.
    - `parts`: how many position parts it has. A part is created before the record names it.
    - `table_version`: the newest version of the lease table that it knows.
    - `released`: the epoch of each shard that it has given up, with its last position stored.
    - `watermark`: the lowest one of its shards; None: one had no record yet. `is_idle`: none of them counts.
    - `group_watermark`: the highest value of the group that it knows (E8).
    - `checkpoint_ms`: when it stored its last checkpoint, by its clock (epoch ms); for people, nothing is decided by it.
    - `loads`: the load level of each shard (`shard_loads.py`); absent: the lowest.
    - `lease_ms`: its lease duration: it may write to its sink for two thirds of it after this heartbeat (E4).
    """

    worker: str
    beat: int = 1
    is_sealed: bool = False
    is_leaving: bool = False
    parts: int = 0
    table_version: int = 0
    released: Mapping[str, int] = field(default_factory=dict)
    watermark: int | None = None
    is_idle: bool = True
    group_watermark: int | None = None
    loads: Mapping[str, int] = field(default_factory=dict)
    checkpoint_ms: int | None = None
    lease_ms: int | None = None

    def has_released(self, shard: str, epoch: int) -> bool:
        """Whether it gave the shard up that it has had since this epoch."""
        return self.released.get(shard) == epoch

    def to_bytes(self) -> bytes:
        """As JSON, without what has its default: at most 1 KB for a worker at rest (E2)."""
        entries = {
            "worker": self.worker,
            "beat": self.beat,
            "sealed": self.is_sealed or None,
            "leaving": self.is_leaving or None,
            "parts": self.parts or None,
            "table": self.table_version or None,
            "released": json_documents.by_stream(self.released) or None,
            "watermark": self.watermark,
            "active": not self.is_idle or None,
            "groupWatermark": self.group_watermark,
            "loads": json_documents.by_stream(self.loads) or None,
            "checkpoint": self.checkpoint_ms,
            "lease": self.lease_ms,
        }
        return json_documents.to_bytes({name: value for name, value in entries.items() if value is not None})

    @classmethod
    def from_bytes(cls, value: bytes, place: str) -> WorkerRecord:
        """The inverse of `to_bytes`. Raises: StateError naming the place."""
        stored = read_document(value, _StoredRecord, place, json_documents.FORMAT)
        return cls(
            stored.worker,
            stored.beat,
            stored.sealed,
            stored.leaving,
            stored.parts,
            stored.table,
            dict(json_documents.by_key(stored.released)),
            stored.watermark,
            not stored.active,
            stored.group_watermark,
            dict(json_documents.by_key(stored.loads)),
            stored.checkpoint,
            stored.lease,
        )


_ByStream = dict[str, dict[str, Count]]
"""A number for each shard, by stream and short id."""


class _StoredRecord(msgspec.Struct, rename="camel"):
    worker: WorkerName
    beat: Count
    sealed: bool = False
    leaving: bool = False
    parts: Annotated[int, msgspec.Meta(ge=0, le=MAX_PARTS)] = 0
    table: Count = 0
    released: _ByStream = {}
    watermark: Millis | None = None
    active: bool = False
    group_watermark: Millis | None = None
    loads: _ByStream = {}
    checkpoint: Millis | None = None
    lease: Millis | None = None
