"""KclLease: a row of the KCL's lease table, as versions 1.x to 3.x write it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.shards import HashRange

SHARD_END, TRIM_HORIZON, LATEST, AT_TIMESTAMP = "SHARD_END", "TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"
NO_SEQUENCE_NUMBER = (SHARD_END, TRIM_HORIZON, LATEST, AT_TIMESTAMP)
WHOLE_AGGREGATE = 2**31 - 1
"""The sub-sequence number that stands for a whole record: higher than that of any sub-record.

The KCL numbers sub-records from 0, and a record that is no aggregate has 0. It reads from the record of its checkpoint on, and drops
what is not above the checkpoint. So 0 would repeat the other sub-records of an aggregate.
"""


@dataclass(frozen=True, slots=True)
class KclLease:
    """The lease of one shard.

    - `checkpoint`: the last processed sequence number, or one of `NO_SEQUENCE_NUMBER`; `sub_sequence`: the last processed sub-record of it.
    - `counter`: a living worker adds one every few seconds. `owner`: the worker that has the lease.
    - `stream_id`: `account:stream:epoch` in a table of several streams, else None: then the table does not name the stream.
    - `has_pending`: a checkpoint was prepared and never completed; the KCL reads from the completed one.
    """

    shard_id: str
    checkpoint: str
    sub_sequence: int = 0
    counter: int = 0
    owner: str | None = None
    stream_id: str | None = None
    parents: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    hash_range: HashRange | None = None
    has_pending: bool = False

    @property
    def key(self) -> str:
        """The primary key of the row."""
        return self.shard_id if self.stream_id is None else f"{self.stream_id}:{self.shard_id}"

    @property
    def stream(self) -> str | None:
        """The stream's name; None where the table does not name it."""
        return None if self.stream_id is None else self.stream_id.split(":")[1]

    @property
    def has_ended(self) -> bool:
        """Whether the shard was read to its end."""
        return self.checkpoint == SHARD_END

    @property
    def progress(self) -> tuple[int, int, int]:
        """A sort key: a start, then a sequence number with its sub-sequence number, then the end."""
        if self.checkpoint in NO_SEQUENCE_NUMBER:
            return (2 if self.has_ended else 0, 0, 0)
        return (1, int(self.checkpoint), self.sub_sequence)

    def __str__(self) -> str:
        return self.checkpoint if self.checkpoint in NO_SEQUENCE_NUMBER else f"{self.checkpoint}/{self.sub_sequence}"


def lease_from_item(item: Mapping[str, Any], place: str) -> KclLease | None:
    """Read a row. None: it is no lease but another entity, which KCL 3.5 and later keep in the same table. Raises: StateError."""
    if "S" in item.get("entityType", {}) and item["entityType"]["S"] != "LEASE":
        return None
    try:
        key, checkpoint = item["leaseKey"]["S"], item["checkpoint"]["S"]
        stream_id, shard_id = _text(item, "streamName"), _text(item, "shardId") or key
        start, end = _text(item, "startingHashKey"), _text(item, "endingHashKey")
        lease = KclLease(
            shard_id=shard_id,
            checkpoint=checkpoint,
            sub_sequence=int(item.get("checkpointSubSequenceNumber", {"N": "0"})["N"]),
            counter=int(item["leaseCounter"]["N"]),
            owner=_text(item, "leaseOwner"),
            stream_id=stream_id,
            parents=tuple(sorted(item.get("parentShardId", {"SS": []})["SS"])),
            children=tuple(sorted(item.get("childShardIds", {"SS": []})["SS"])),
            hash_range=HashRange.parse(start, end) if start and end else None,
            has_pending="pendingCheckpoint" in item,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise StateError(f"a row of {place} is not a lease of the KCL: {error!r} in {str(item)[:300]}") from error
    if lease.key != key or (stream_id is not None and stream_id.count(":") != 2):
        raise StateError(f"a row of {place} is not a lease of the KCL: key {key!r}, stream {stream_id!r}")
    if checkpoint not in NO_SEQUENCE_NUMBER and not (checkpoint.isascii() and checkpoint.isdecimal()):
        raise StateError(f"the lease {key} in {place} has the checkpoint {checkpoint!r}, which is no sequence number")
    return lease


def lease_to_item(lease: KclLease) -> dict[str, Any]:
    """The row of a lease without an owner: the next worker takes it."""
    item: dict[str, Any] = {
        "leaseKey": {"S": lease.key},
        "leaseCounter": {"N": str(lease.counter)},
        "ownerSwitchesSinceCheckpoint": {"N": "0"},
        "checkpoint": {"S": lease.checkpoint},
        "checkpointSubSequenceNumber": {"N": str(lease.sub_sequence)},
        "entityType": {"S": "LEASE"},
    }
    if lease.parents:
        item["parentShardId"] = {"SS": list(lease.parents)}
    if lease.children:
        item["childShardIds"] = {"SS": list(lease.children)}
    if lease.hash_range is not None:
        item["startingHashKey"] = {"S": str(lease.hash_range.start)}
        item["endingHashKey"] = {"S": str(lease.hash_range.end)}
    if lease.stream_id is not None:
        item |= {"streamName": {"S": lease.stream_id}, "shardId": {"S": lease.shard_id}}
    return item


def _text(item: Mapping[str, Any], name: str) -> str | None:
    found = item.get(name, {}).get("S")
    return None if found is None else str(found)
