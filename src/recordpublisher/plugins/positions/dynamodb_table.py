"""DynamoDbTable: a table of another client's positions, with a row for each shard under one key."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.properties.properties import Properties

from ..stores.aws_client import AwsService, NotFoundError

_CREATE_SECONDS = 60


class DynamoDbTable:
    """Owns its client. Every method raises: StateError, StoreUnavailableError."""

    CLIENT: ClassVar[str]
    """Whose table it is, as in `--from CLIENT:TABLE`."""
    KEY: ClassVar[str]

    def __init__(self, name: str, properties: Properties) -> None:
        """Raises: ConfigurationError."""
        self.place = f"{self.CLIENT}:{name}"
        self._name = name
        self._service = AwsService("dynamodb", self.place, properties)

    async def create(self) -> None:
        """Create the table, and wait until it is ACTIVE."""
        await self._call(
            "CreateTable",
            KeySchema=[{"AttributeName": self.KEY, "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": self.KEY, "AttributeType": "S"}],
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

    async def _items(self) -> list[dict[str, Any]] | None:
        """Every row. None when there is no table."""
        found: list[dict[str, Any]] = []
        page: dict[str, Any] = {}
        while True:
            try:
                response = await self._call("Scan", ConsistentRead=True, **page)
            except NotFoundError:
                return None
            found += response["Items"]
            if "LastEvaluatedKey" not in response:
                return found
            page = {"ExclusiveStartKey": response["LastEvaluatedKey"]}

    async def _call(self, api: str, **parameters: Any) -> dict[str, Any]:
        return await self._service.call(api, TableName=self._name, **parameters)
