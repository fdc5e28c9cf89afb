"""KclLeaseTable: reads and writes the KCL's lease table in DynamoDB."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.properties.properties import Properties

from ..stores.aws_client import AwsService, ConditionFailedError, NotFoundError
from .kcl_leases import KclLease, lease_from_item, lease_to_item

_CREATE_SECONDS = 60


class KclLeaseTable:
    """Owns its client. The table's name is what the KCL calls the application's name, unless the KCL is told another.

    Every method raises: StateError, StoreUnavailableError.
    """

    def __init__(self, name: str, properties: Properties) -> None:
        """Raises: ConfigurationError."""
        self.place = f"kcl:{name}"
        self._name = name
        self._service = AwsService("dynamodb", self.place, properties)

    async def read(self) -> list[KclLease] | None:
        """Every lease, sorted by key; rows that are no leases are ignored. None when there is no table."""
        leases: list[KclLease] = []
        page: dict[str, Any] = {}
        while True:
            try:
                response = await self._call("Scan", ConsistentRead=True, **page)
            except NotFoundError:
                return None
            parsed = (lease_from_item(item, self.place) for item in response["Items"])
            leases += (lease for lease in parsed if lease is not None)
            if "LastEvaluatedKey" not in response:
                return sorted(leases, key=lambda lease: lease.key)
            page = {"ExclusiveStartKey": response["LastEvaluatedKey"]}

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

    async def create(self) -> None:
        """Create the table, and wait until it is ACTIVE. The KCL adds an index itself when it starts."""
        await self._call(
            "CreateTable",
            KeySchema=[{"AttributeName": "leaseKey", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "leaseKey", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        for _ in range(_CREATE_SECONDS):
            if (await self._call("DescribeTable"))["Table"]["TableStatus"] == "ACTIVE":
                return
            await asyncio.sleep(1)
        raise StateError(f"the table of {self.place} is not ACTIVE after {_CREATE_SECONDS} s")

    async def close(self) -> None:
        """Close the client."""
        await self._service.close()

    async def _has(self, written: dict[str, Any]) -> bool:
        response = await self._call("GetItem", Key={"leaseKey": written["leaseKey"]}, ConsistentRead=True)
        return lease_from_item(response.get("Item", {}), self.place) == lease_from_item(written, self.place)

    async def _call(self, api: str, **parameters: Any) -> dict[str, Any]:
        return await self._service.call(api, TableName=self._name, **parameters)
