"""The lease table as JSON, without defaults.

An owned shard takes at most 30 bytes (E2), because DynamoDB stores at most 400 KB in an item.
"""

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from recordpublisher.fetcher.shards.shard_state import StoredStarts, start_of, stored_start
from recordpublisher.fetcher.stored_documents import Count, Millis, WorkerName, read_document, unreadable
from recordpublisher.publishers.shards import stream_of

from . import json_documents
from .group_job import GroupJob
from .lease_table import AloneOwner, Lease, LeaseTable

_LONGEST_SHARD_ID = 1_000
"""The most characters of a shard id. Kinesis has ids of at most 128 characters; a plugin's ids may be longer."""


def table_to_bytes(table: LeaseTable) -> bytes:
    """Return the table as JSON. An owned shard is `[index of its owner, epoch]`, and any other shard an object."""
    workers = sorted({lease.owner for lease in table.leases.values() if lease.owner is not None})
    numbers = {worker: number for number, worker in enumerate(workers)}
    leases = {shard: _stored_lease(shard, lease, numbers) for shard, lease in sorted(table.leases.items())}
    drained, by_stream = tuple(sorted(table.drained)), json_documents.by_stream(leases)
    stored = _StoredTable(
        table.version,
        table.writer,
        stored_start(table.start),
        workers,
        by_stream,
        drained,
        table.job,
        table.is_latest,
        table.alone,
    )
    return msgspec.json.encode(stored)


def table_from_bytes(value: bytes, place: str) -> LeaseTable:
    """Read a table that `table_to_bytes` wrote. Raises: StateError, with the place, if it cannot be read."""
    stored = read_document(value, _StoredTable, place, json_documents.FORMAT)
    if any(isinstance(lease, tuple) and lease[0] >= len(stored.workers) for _, lease in stored.by_shard()):
        raise unreadable(place, "a lease has an owner that is not among its workers")
    leases = {shard: _lease_of(shard, lease, stored.workers) for shard, lease in stored.by_shard()}
    for shard, lease in leases.items():
        if len(shard_id := shard.rpartition("/")[2]) > _LONGEST_SHARD_ID:
            raise unreadable(place, f"{shard_id[:80]!r}... is not a shard id: it has {len(shard_id)} characters")
        if shard in lease.children or shard in lease.parents:
            raise unreadable(place, f"{shard} is its own {'child' if shard in lease.children else 'parent'}")
    drained, alone = frozenset(stored.drained), None if stored.alone is None else AloneOwner(*stored.alone)
    start = start_of(stored.start)
    return LeaseTable(stored.version, stored.writer, start, leases, drained, stored.job, stored.latest, alone)


class _StoredLease(msgspec.Struct, omit_defaults=True):
    epoch: Count = 0
    ended: bool = False
    watermark: Millis | None = None
    children: tuple[str, ...] = ()
    parents: tuple[str, ...] = ()
    first: bool = False
    seen: Millis | None = None


class _StoredTable(msgspec.Struct, omit_defaults=True, tag_field="format", tag=json_documents.FORMAT):
    version: Count
    writer: str
    start: StoredStarts
    workers: list[WorkerName]
    leases: dict[str, dict[str, tuple[Count, Count] | _StoredLease]]
    drained: tuple[str, ...] = ()
    job: GroupJob | None = None
    latest: bool = False
    alone: tuple[WorkerName, Count] | None = None

    def by_shard(self) -> Iterator[tuple[str, tuple[int, int] | _StoredLease]]:
        """Return each lease with its `Shard.key`."""
        return json_documents.by_key(self.leases)


def _stored_lease(shard: str, lease: Lease, numbers: Mapping[str, int]) -> tuple[int, int] | _StoredLease:
    if lease.owner is not None:
        return numbers[lease.owner], lease.epoch
    stream = stream_of(shard)
    children = json_documents.short_keys(lease.children, stream)
    parents = json_documents.short_keys(lease.parents, stream)
    return _StoredLease(lease.epoch, lease.ended, lease.watermark, children, parents, lease.is_first, lease.seen_ms)


def _lease_of(shard: str, stored: tuple[int, int] | _StoredLease, workers: Sequence[str]) -> Lease:
    if isinstance(stored, tuple):
        return Lease(workers[stored[0]], stored[1])
    stream = stream_of(shard)
    children = json_documents.long_keys(stored.children, stream)
    parents = json_documents.long_keys(stored.parents, stream)
    return Lease(None, stored.epoch, stored.ended, stored.watermark, children, parents, stored.first, stored.seen)
