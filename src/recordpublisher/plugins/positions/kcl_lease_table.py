"""KclLeaseTable: reads and writes the KCL's lease table in DynamoDB."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.properties.properties import Properties

from ..stores.dynamodb import create_table
from ..stores.store_service import ConditionFailedError, NotFoundError, StoreService
from .kcl_leases import KclLease, lease_from_item, lease_to_item


class KclLeaseTable:
    """Owns its client. The table's name is what the KCL calls the application's name, unless the KCL is told another.

    Every method raises: StateError, StoreUnavailableError.
    """

    def __init__(self, name: str, properties: Properties) -> None:
        """Raises: ConfigurationError."""
        self.place = f"kcl:{name}"
        self._name = name
        self._service = StoreService("dynamodb", self.place, properties)

    async def read(self) -> list[KclLease] | None:
        """Every lease, sorted by key; rows that are no leases are ignored. None when there is no table."""
        leases: list[KclLease] = []
        try:
            async for items in self._service.pages("Scan", _parse_page, TableName=self._name, ConsistentRead=True):
                parsed = (lease_from_item(item, self.place) for item in items)
                leases += (lease for lease in parsed if lease is not None)
        except NotFoundError:
            return None
        return sorted(leases, key=lambda lease: lease.key)

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
            await self._service.call("PutItem", lambda _: None, TableName=self._name, Item=written, **condition)
        except ConditionFailedError as error:
            if not await self._has(written):  # otherwise an SDK retry met its own first attempt
                raise StateError(
                    f"the lease {lease.key} in {self.place} was changed meanwhile: is a worker of the KCL alive?"
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
