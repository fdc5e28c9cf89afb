"""WorkerRecord: what a worker says of itself with each heartbeat (E2, E3)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from recordpublisher.fetcher.stored_documents import Count, Millis, WorkerName, read_document

from . import json_documents

MAX_PARTS = 10_000
"""Of a few shards each: far more than a worker can read."""


class WorkerRecord(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="format", tag=json_documents.FORMAT):
    """The record of one life of a worker. Whoever seals it ends that life: it is never written again.

    - `beat`: the number of the heartbeat; it makes each stored value unique.
    - `is_leaving`: it releases everything and takes nothing.
    - `parts`: how many position parts it has. A part is created before the record names it.
    - `table_version`: the newest version of the lease table that it knows.
    - `released`: the epoch of each shard that it has given up, with its last position stored.
    - `watermark`: the lowest one of its shards; None: one had no record yet. `is_active`: one of them counts.
    - `max_watermark`: the highest one of its shards (W12).
    - `group_watermark`: the highest value of the group that it knows (E8).
    - `loads`: the load level of each shard (`shard_loads.py`); absent: the lowest.
    - `checkpoint_ms`: when it stored its last checkpoint, by its clock (epoch ms); for people, nothing is decided by it.
    - `lease_ms`: its lease duration: it may write to its sink for two thirds of it after this heartbeat (E4).
    - `host`, `pid`: where its process runs. `sent_ms`: when it has sent this heartbeat, by its clock (epoch ms). Both are for people.
    """

    worker: WorkerName
    beat: Count
    is_sealed: bool = msgspec.field(name="sealed", default=False)
    is_leaving: bool = msgspec.field(name="leaving", default=False)
    parts: Annotated[int, msgspec.Meta(ge=0, le=MAX_PARTS)] = 0
    table_version: Count = msgspec.field(name="table", default=0)
    released: json_documents.ByStream = {}
    watermark: Millis | None = None
    is_active: bool = msgspec.field(name="active", default=False)
    max_watermark: Millis | None = msgspec.field(name="maxWatermark", default=None)
    group_watermark: Millis | None = msgspec.field(name="groupWatermark", default=None)
    loads: json_documents.ByStream = {}
    checkpoint_ms: Millis | None = msgspec.field(name="checkpoint", default=None)
    lease_ms: Millis | None = msgspec.field(name="lease", default=None)
    host: Annotated[str, msgspec.Meta(max_length=255)] = ""
    pid: Count = 0
    sent_ms: Millis | None = msgspec.field(name="sent", default=None)

    def has_released(self, shard: str, epoch: int) -> bool:
        """Whether it gave the shard up that it has had since this epoch."""
        return json_documents.number_of(shard, self.released) == epoch

    def load_level(self, shard: str) -> int:
        """The load level that it states for a shard of its own."""
        return json_documents.number_of(shard, self.loads) or 0

    def to_bytes(self) -> bytes:
        """As JSON, without what has its default: at most 1 KB for a worker at rest (E2)."""
        return msgspec.json.encode(self)

    @classmethod
    def from_bytes(cls, value: bytes, place: str) -> WorkerRecord:
        """The inverse of `to_bytes`. Raises: StateError naming the place."""
        return read_document(value, cls, place, json_documents.FORMAT)
