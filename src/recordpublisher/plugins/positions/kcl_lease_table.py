"""The KCL's lease table in DynamoDB: the format of a lease, and the class that reads and writes the table."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import HashRange, Shard

from ..stores.aws_stores import ConditionFailedError, NotFoundError, StoreService, create_table

SHARD_END, TRIM_HORIZON, LATEST, AT_TIMESTAMP = "SHARD_END", "TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"
NO_SEQUENCE_NUMBER = (SHARD_END, TRIM_HORIZON, LATEST, AT_TIMESTAMP)
WHOLE_AGGREGATE = 2**31 - 1
"""The sub-sequence number that stands for a whole record. It is higher than the number of any sub-record.

The KCL numbers sub-records from 0, and a record that is not an aggregate has 0. The KCL reads from the record of its checkpoint on, and
drops records that are not above the checkpoint. So 0 would repeat the other sub-records of an aggregate.
"""


@dataclass(frozen=True, slots=True)
class KclLease:
    """The lease of one shard.

    - `checkpoint`: the last processed sequence number, or one of `NO_SEQUENCE_NUMBER`.
    - `sub_sequence`: the last processed sub-record of that record.
    - `counter`: a number that a running worker increases every few seconds. `owner`: the worker that has the lease.
    - `stream_id`: `account:stream:epoch` in a table of several streams. None if the table does not name the stream.
    - `has_pending`: whether a checkpoint was prepared and never completed. The KCL reads from the completed checkpoint.
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
        """Name of the stream; None if the table does not name it."""
        return None if self.stream_id is None else self.stream_id.split(":")[1]

    @property
    def has_ended(self) -> bool:
        """Whether the shard was read to its end."""
        return self.checkpoint == SHARD_END

    @property
    def progress(self) -> tuple[int, int, int]:
        """Sort key of the progress: a start, then a sequence number with its sub-sequence number, then the end."""
        if self.checkpoint in NO_SEQUENCE_NUMBER:
            return (2 if self.has_ended else 0, 0, 0)
        return (1, int(self.checkpoint), self.sub_sequence)

    def __str__(self) -> str:
        return self.checkpoint if self.checkpoint in NO_SEQUENCE_NUMBER else f"{self.checkpoint}/{self.sub_sequence}"


def check_hash_range(lease: KclLease, shard: Shard) -> None:
    """Check that the lease is not of a shard with the same id in another stream. Raises: StateError if their hash ranges differ."""
    if lease.hash_range is not None and lease.hash_range != shard.hash_range:
        raise StateError(
            f"the lease {lease.key} has the hash keys {lease.hash_range.start} to {lease.hash_range.end}, and the shard of {shard.stream} "
            f"{shard.hash_range.start} to {shard.hash_range.end}: the table belongs to another stream"
        )


def lease_from_item(item: Mapping[str, Any], place: str) -> KclLease | None:
    """Return the lease in a row, or None if the row is another entity, which KCL 3.5 and later keep in the same table.

    Raises: StateError if the row is not a valid lease.
    """
    if "S" in item.get("entityType", {}) and item["entityType"]["S"] != "LEASE":
        return None
    row = _text(item, "leaseKey")
    if row is not None and "checkpoint" not in item and "shardId-" not in row:
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
        remedy = "delete it, or have the KCL write it again, and import then"
        raise StateError(
            f"the row {row} of {place} is not a lease of the KCL: {error!r} in {str(item)[:300]}: {remedy}"
        ) from error
    if lease.key != key or (stream_id is not None and stream_id.count(":") != 2):
        raise StateError(f"a row of {place} is not a lease of the KCL: key {key!r}, stream {stream_id!r}")
    if checkpoint not in NO_SEQUENCE_NUMBER and not (checkpoint.isascii() and checkpoint.isdecimal()):
        raise StateError(
            f"the lease {key} in {place} has the checkpoint {checkpoint!r}, which is not a sequence number"
        )
    return lease


def lease_to_item(lease: KclLease) -> dict[str, Any]:
    """Return the row of a lease without an owner, so that the next worker takes it."""
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


class KclLeaseTable:
    """Owns the client of a lease table. The KCL names the table like its application, unless it is configured otherwise.

    Every method raises: StoreUnavailableError if DynamoDB does not answer; StateError for other failures.

    Raises: ConfigurationError if credentials or region are invalid.
    """

    def __init__(self, name: str, properties: Properties) -> None:
        self.place = f"kcl:{name}"
        self._name = name
        self._service = StoreService("dynamodb", self.place, properties)

    async def read(self) -> list[KclLease] | None:
        """Return every lease, sorted by key, or None if there is no table. Rows that are not leases are ignored."""
        leases: list[KclLease] = []
        try:
            async for items in self._service.pages("Scan", _parse_page, TableName=self._name, ConsistentRead=True):
                parsed = (lease_from_item(item, self.place) for item in items)
                leases += (lease for lease in parsed if lease is not None)
        except NotFoundError:
            return None
        return sorted(leases, key=lambda lease: lease.key)

    async def write(self, lease: KclLease, seen: KclLease | None) -> None:
        """Write a lease without an owner. It replaces the lease `seen`, or is new if that is None.

        Its counter increases by one, so a worker that had the lease can neither renew it nor checkpoint. Raises: StateError if the row has
        changed.
        """
        condition: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(leaseKey)"}
        if seen is not None:
            condition = {
                "ConditionExpression": "leaseCounter = :seen",
                "ExpressionAttributeValues": {":seen": {"N": str(seen.counter)}},
            }
        written = lease_to_item(replace(lease, counter=0 if seen is None else seen.counter + 1))
        try:
            await self._service.call("PutItem", lambda _: None, TableName=self._name, Item=written, **condition)
        except ConditionFailedError as error:
            # If it has, the SDK's retry met its own first attempt, which had succeeded.
            if not await self._has(written):
                raise StateError(
                    f"the lease {lease.key} in {self.place} was changed in the meantime; is a worker of the KCL running?"
                ) from error

    async def create(self) -> None:
        """Create the table, and wait until it is ACTIVE. The KCL adds an index itself when it starts."""
        await create_table(self._service, self._name, {"leaseKey": "HASH"})

    async def close(self) -> None:
        """Close the client."""
        await self._service.close()

    async def _has(self, written: dict[str, Any]) -> bool:
        where = {"TableName": self._name, "Key": {"leaseKey": written["leaseKey"]}, "ConsistentRead": True}
        stored: dict[str, Any] = await self._service.call("GetItem", lambda response: response.get("Item", {}), **where)
        return bool(stored) and lease_from_item(stored, self.place) == lease_from_item(written, self.place)


def _parse_page(response: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    last = response.get("LastEvaluatedKey")
    return response["Items"], {"ExclusiveStartKey": last} if last else None
