"""The record in which a worker reports about itself with each heartbeat (E2, E3)."""

from __future__ import annotations

import socket
from typing import Annotated

import msgspec

from ..conditional_store import (
    Count,
    Millis,
    WorkerName,
    read_document,
)
from . import document_format

HOST = socket.gethostname()[:255]
"""The name of this host in the records of its workers."""
MAX_HANDLER = 200
"""The most characters of a handler's name in a record."""
MAX_PARTS = 10_000
"""The most parts (documents with positions of a few shards each) of one worker. It is far more than a worker can use."""


class WorkerRecord(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="format", tag=document_format.FORMAT):
    """The stored document in which a worker reports about itself. Each heartbeat writes it again.

    - `beat`: the number of the heartbeat, which makes each stored value unique.
    - `is_sealed`: whether a process has declared the worker dead (sealed it). The worker can then no longer write this document.
    - `is_leaving`: whether the worker is about to leave. It then releases all shards and acquires none.
    - `parts`: number of the documents with its positions (`PositionPart`). A part is created before the record names it.
    - `table_version`: the newest version of the lease table that the worker knows.
    - `released`: the epoch of each shard that the worker has released. The shard's last position is stored.
    - `watermark`: the lowest watermark of its shards; None if one of them had no record yet.
    - `is_active`: whether at least one of its shards counts for the watermark.
    - `max_watermark`: the highest watermark of its shards.
    - `group_watermark`: the highest watermark of the group that the worker knows.
    - `loads`: the load level of each shard (`planning.py`); a missing shard has the lowest level.
    - `checkpoint_ms`: when the worker stored its last checkpoint, by its clock (epoch ms). Only shown to people.
    - `lease_ms`: the worker's lease duration. It may write to its sink for two thirds of that time after this heartbeat.
    - `is_alone`: whether the worker runs alone. Such a worker sends no heartbeats, and its leases have no deadline.
    - `host`, `pid`: where the worker's process runs. Only shown to people.
    - `handler`: the name of the user's function that its sink calls; "" if it calls none. Only shown to people.
    - `sent_ms`: when the worker sent this heartbeat, by its clock (epoch ms). Only shown to people.
    - `is_held`: whether alignment holds back a shard of the worker, or has lately done so. If so, other workers send a heartbeat within a
      second after their watermark has changed.
    - `replaced_ms`: when a worker that runs alone replaced another one that may have been running, by its clock (epoch ms). Else None.
    """

    worker: WorkerName
    beat: Count
    is_sealed: bool = msgspec.field(name="sealed", default=False)
    is_leaving: bool = msgspec.field(name="leaving", default=False)
    parts: Annotated[int, msgspec.Meta(ge=0, le=MAX_PARTS)] = 0
    table_version: Count = msgspec.field(name="table", default=0)
    released: document_format.ByStream = {}
    watermark: Millis | None = None
    is_active: bool = msgspec.field(name="active", default=False)
    max_watermark: Millis | None = msgspec.field(name="maxWatermark", default=None)
    group_watermark: Millis | None = msgspec.field(name="groupWatermark", default=None)
    loads: document_format.ByStream = {}
    checkpoint_ms: Millis | None = msgspec.field(name="checkpoint", default=None)
    lease_ms: Millis | None = msgspec.field(name="lease", default=None)
    is_alone: bool = msgspec.field(name="alone", default=False)
    host: Annotated[str, msgspec.Meta(max_length=255)] = ""
    handler: Annotated[str, msgspec.Meta(max_length=MAX_HANDLER)] = ""
    pid: Count = 0
    sent_ms: Millis | None = msgspec.field(name="sent", default=None)
    is_held: bool = msgspec.field(name="held", default=False)
    replaced_ms: Millis | None = msgspec.field(name="replaced", default=None)

    def has_released(self, shard: str, epoch: int) -> bool:
        """Return whether the worker has released a shard. `epoch`: the number of the lease with which it acquired the shard."""
        return document_format.number_of(shard, self.released) == epoch

    def load_level(self, shard: str) -> int:
        """Return the load level that the worker states for one of its shards."""
        return document_format.number_of(shard, self.loads) or 0

    def to_bytes(self) -> bytes:
        """Return the record as JSON, without fields that have their default. It has at most 1 KB for a worker at rest."""
        return msgspec.json.encode(self)

    @classmethod
    def from_bytes(cls, value: bytes, place: str) -> WorkerRecord:
        """Return the record that `to_bytes` wrote as `value`. Raises: StateError, which names `place`, if it cannot be read."""
        return read_document(value, cls, place, document_format.FORMAT)
