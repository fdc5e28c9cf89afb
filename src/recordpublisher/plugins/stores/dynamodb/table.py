"""DynamoTable: items of jobs in one table that many may share; made when it is missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from recordpublisher.publishers.errors import ConfigurationError, StateError
from recordpublisher.publishers.properties.properties import Properties, mask_passwords

from ..aws_client import AwsService, MissingError

_CREATE_SECONDS = 60


class DynamoTable:
    """Owns the client of a table with the key `job` (text) and `item` (text); all calls here are about one job."""

    def __init__(self, uri: str, key: str, properties: Properties) -> None:
        """`key` is the property that the URI stood at. Raises: ConfigurationError."""
        parts = urlsplit(uri)
        if parts.scheme != "dynamodb" or not parts.netloc or not parts.path.strip("/"):
            raise ConfigurationError(key, mask_passwords(uri), "dynamodb://table/job")
        self._table, self.job = parts.netloc, parts.path.strip("/")
        self.service = AwsService("dynamodb", uri, properties)

    async def get(self, item: str, job: str | None = None) -> dict[str, Any] | None:
        """An item as it is now. Raises: StateError."""
        try:
            answer = await self._call("GetItem", Key=self._key(item, job), ConsistentRead=True)
        except MissingError:
            return None
        found: dict[str, Any] | None = answer.get("Item")
        return found

    async def update(
        self, item: str, change: str, condition: str, values: Mapping[str, Any], job: str | None = None
    ) -> None:
        """Change an item if the condition holds; the table is made when it is missing. Raises: RefusedError, StateError."""
        given = {
            "Key": self._key(item, job),
            "UpdateExpression": change,
            "ConditionExpression": condition,
            "ExpressionAttributeValues": values,
        }
        try:
            await self._call("UpdateItem", **given)
        except MissingError:
            await self._create()
            await self._call("UpdateItem", **given)

    async def delete(self, item: str, job: str | None = None) -> None:
        """Forget an item."""
        await self._call("DeleteItem", Key=self._key(item, job))

    async def items(
        self, condition: str = "", values: Mapping[str, Any] | None = None, job: str | None = None
    ) -> AsyncIterator[dict[str, Any]]:
        """The job's items for which a condition on the key `item` holds; none when there is no table."""
        start: dict[str, Any] = {}
        while True:
            try:
                answer = await self._call(
                    "Query",
                    KeyConditionExpression="job = :job" + (f" AND {condition}" if condition else ""),
                    ExpressionAttributeValues={":job": {"S": job or self.job}, **(values or {})},
                    ConsistentRead=True,
                    **start,
                )
            except MissingError:
                return
            for found in answer["Items"]:
                yield found
            if "LastEvaluatedKey" not in answer:
                return
            start = {"ExclusiveStartKey": answer["LastEvaluatedKey"]}

    async def _call(self, api: str, **parameters: Any) -> dict[str, Any]:
        return await self.service.call(api, TableName=self._table, **parameters)

    def _key(self, item: str, job: str | None) -> dict[str, Any]:
        return {"job": {"S": job or self.job}, "item": {"S": item}}

    async def _create(self) -> None:
        names = ("job", "HASH"), ("item", "RANGE")
        try:
            await self._call(
                "CreateTable",
                KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in names],
                AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name, _ in names],
                BillingMode="PAY_PER_REQUEST",
            )
        except StateError as error:
            if "ResourceInUseException" not in str(error):  # another subtask makes it
                raise
        for _ in range(_CREATE_SECONDS):
            if (await self._call("DescribeTable"))["Table"]["TableStatus"] == "ACTIVE":
                return
            await asyncio.sleep(1)
        raise StateError(f"the table of {self.service.place} is not ACTIVE after {_CREATE_SECONDS} s")
