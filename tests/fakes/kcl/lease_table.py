"""A lease table as the KCL's DynamoDBLeaseSerializer writes it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from recordpublisher.plugins.positions.kcl_transfer import KclLease, lease_from_item, lease_to_item
from recordpublisher.publishers.errors import StateError

TRIM_HORIZON, SHARD_END = "TRIM_HORIZON", "SHARD_END"


def lease_item(key: str, checkpoint: str = TRIM_HORIZON, sub: int = 0, **more: Any) -> dict[str, Any]:
    """A row with the attributes that a worker of the KCL 2.x writes. `more` are attributes by name; None leaves one out."""
    item = {
        "leaseKey": {"S": key},
        "leaseOwner": {"S": "worker-1"},
        "leaseCounter": {"N": "17"},
        "ownerSwitchesSinceCheckpoint": {"N": "2"},
        "checkpoint": {"S": checkpoint},
        "checkpointSubSequenceNumber": {"N": str(sub)},
        **more,
    }
    return {name: value for name, value in item.items() if value is not None}


class KclTable:
    """A lease table in memory. Rows are items of DynamoDB; `exists` is False until it is created."""

    place = "kcl:orders-app"

    def __init__(self, *items: dict[str, Any], exists: bool = True) -> None:
        self.exists = exists
        self.rows: dict[str, dict[str, Any]] = {}
        self.put(*items)

    def put(self, *items: dict[str, Any]) -> None:
        """Put rows."""
        self.rows |= {item["leaseKey"]["S"]: item for item in items}

    def checkpoints(self) -> dict[str, tuple[str, int]]:
        """Checkpoint and sub-sequence number by key."""
        rows = {key: row for key, row in self.rows.items() if "checkpoint" in row}
        return {
            key: (row["checkpoint"]["S"], int(row["checkpointSubSequenceNumber"]["N"])) for key, row in rows.items()
        }

    async def read(self) -> list[KclLease] | None:
        """As the real one."""
        leases = (lease_from_item(item, self.place) for item in self.rows.values())
        return [lease for lease in leases if lease is not None] if self.exists else None

    async def write(self, lease: KclLease, seen: KclLease | None) -> None:
        """As the real one."""
        row = self.rows.get(lease.key)
        if (None if row is None else row["leaseCounter"]["N"]) != (None if seen is None else str(seen.counter)):
            raise StateError(f"the lease {lease.key} in {self.place} was changed in the meantime")
        self.put(lease_to_item(replace(lease, counter=0 if seen is None else seen.counter + 1)))

    async def create(self) -> None:
        """As the real one."""
        self.exists = True
