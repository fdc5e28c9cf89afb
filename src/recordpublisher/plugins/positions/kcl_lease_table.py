"""KclLeaseTable: reads and writes the KCL's lease table in DynamoDB."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from recordpublisher.publishers.errors import StateError

from ..stores.aws_client import ConditionFailedError
from .dynamodb_table import DynamoDbTable
from .kcl_leases import KclLease, lease_from_item, lease_to_item


class KclLeaseTable(DynamoDbTable):
    """Its name is what the KCL calls the application's name, unless it is told another. The KCL adds an index itself when it starts."""

    CLIENT, KEY = "kcl", "leaseKey"

    async def read(self) -> list[KclLease] | None:
        """Every lease, sorted by key; rows that are no leases are ignored. None when there is no table."""
        items = await self._items()
        if items is None:
            return None
        leases = (lease_from_item(item, self.place) for item in items)
        return sorted((lease for lease in leases if lease is not None), key=lambda lease: lease.key)

    async def write(self, lease: KclLease, seen: KclLease | None) -> None:
        """Put a lease without an owner in the place of the one that was `seen`, or of none.

        Its counter goes one up: a worker that had the lease cannot renew it, nor checkpoint. Raises: StateError when the row has changed.
        """
        condition: dict[str, Any] = {"ConditionExpression": "attribute_not_exists(leaseKey)"}
        if seen is not None:
            condition = {
                "ConditionExpression": "leaseCounter = :seen",
                "ExpressionAttributeValues": {":seen": {"N": str(seen.counter)}},
            }
        written = lease_to_item(replace(lease, counter=0 if seen is None else seen.counter + 1))
        try:
            await self._call("PutItem", Item=written, **condition)
        except ConditionFailedError as error:
            if not await self._has(written):  # otherwise an SDK retry met its own first attempt
                raise StateError(
                    f"the lease {lease.key} in {self.place} was changed meanwhile: is a worker of the KCL alive?"
                ) from error

    async def _has(self, written: dict[str, Any]) -> bool:
        response = await self._call("GetItem", Key={"leaseKey": written["leaseKey"]}, ConsistentRead=True)
        return lease_from_item(response.get("Item", {}), self.place) == lease_from_item(written, self.place)


def renewed_leases(before: Collection[KclLease], after: Collection[KclLease]) -> list[KclLease]:
    """The leases whose counter or owner changed between two readings, and new ones: a worker is alive."""
    known = {lease.key: (lease.counter, lease.owner) for lease in before}
    return [lease for lease in after if known.get(lease.key) != (lease.counter, lease.owner)]
