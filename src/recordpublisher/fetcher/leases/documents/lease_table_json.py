"""The lease table as JSON, at most 30 bytes for a shard that is owned (E2): DynamoDB stores 400 KB in an item."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from recordpublisher.fetcher.shards.shard_state import start_from_json, start_to_json
from recordpublisher.publishers.errors import StateError

from . import json_documents
from .group_job import GroupJob
from .lease_table import Lease, LeaseTable


def table_to_bytes(table: LeaseTable) -> bytes:
    """As JSON. An owned shard is `[index of its owner, epoch]`, any other an object."""
    workers = sorted(table.owners)
    numbers = {worker: number for number, worker in enumerate(workers)}
    leases = {shard: _lease_to_json(shard, lease, numbers) for shard, lease in sorted(table.leases.items())}
    return json_documents.to_bytes(
        {
            "version": table.version,
            "writer": table.writer,
            "start": start_to_json(table.start),
            "workers": workers,
            **({"drained": sorted(table.drained)} if table.drained else {}),
            **({"job": table.job.to_json()} if table.job is not None else {}),
            "leases": json_documents.by_stream(leases),
        }
    )


def table_from_bytes(value: bytes, place: str) -> LeaseTable:
    """The inverse of `table_to_bytes`. Raises: StateError naming the place."""
    content = json_documents.from_bytes(value, place)
    try:
        workers = content["workers"]
        leases = {
            shard: _lease_from_json(shard, entry, workers) for shard, entry in json_documents.by_key(content["leases"])
        }
        start, drained = start_from_json(content["start"]), frozenset(content.get("drained", ()))
        job = GroupJob.from_json(content["job"]) if "job" in content else None
        return LeaseTable(int(content["version"]), content["writer"], start, leases, drained, job)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise StateError(f"{place} cannot be read: {error!r}") from error


def _lease_to_json(shard: str, lease: Lease, numbers: Mapping[str, int]) -> Any:
    if lease.owner is not None:
        return [numbers[lease.owner], lease.epoch]
    stream = shard.rpartition("/")[0]
    entries = {
        "epoch": lease.epoch or None,
        "ended": lease.ended or None,
        "watermark": lease.watermark,
        "children": json_documents.short_keys(lease.children, stream) or None,
        "parents": json_documents.short_keys(lease.parents, stream) or None,
        "first": lease.is_first or None,
    }
    return {name: value for name, value in entries.items() if value is not None}


def _lease_from_json(shard: str, entry: Any, workers: Sequence[str]) -> Lease:
    if isinstance(entry, list):
        number, epoch = entry
        return Lease(workers[number], epoch)
    stream = shard.rpartition("/")[0]
    return Lease(
        None,
        entry.get("epoch", 0),
        entry.get("ended", False),
        entry.get("watermark"),
        json_documents.long_keys(entry.get("children", ()), stream),
        json_documents.long_keys(entry.get("parents", ()), stream),
        entry.get("first", False),
    )
