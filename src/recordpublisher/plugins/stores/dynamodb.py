"""DynamoDbStore: a conditional store of items in one table that many jobs may share; the table is created when it is missing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from recordpublisher.fetcher.conditional_store import ConditionalStore, ConflictError, VersionedValue, new_version
from recordpublisher.publishers.errors import ConfigurationError, StateError
from recordpublisher.publishers.properties.properties import Properties

from .aws_client import AwsService, ConditionFailedError, NotFoundError, get_side_by_side, side_by_side

_CREATE_SECONDS = 60
_ATTRIBUTES = {"#job": "job", "#item": "item", "#version": "version", "#value": "value"}
"""Placeholders for attribute names in expressions: some of these names are reserved words of DynamoDB."""


class DynamoDbStore(ConditionalStore):
    """Owns the client of a table with the key `job` (text) and `item` (text, the name); all calls are about one job.

    An item has at most 400 KB.
    """

    def __init__(self, uri: str, key: str, properties: Properties) -> None:
        """`key` is the property that has the URI. Raises: ConfigurationError."""
        parts = urlsplit(uri)
        if parts.scheme != "dynamodb" or not parts.netloc or not parts.path.strip("/"):
            raise ConfigurationError(key, uri, "dynamodb://table/job")
        self.place = uri
        self._table, self._job = parts.netloc, parts.path.strip("/")
        self._service = AwsService("dynamodb", uri, properties)

    async def get(self, name: str) -> VersionedValue | None:
        """Read an item consistently."""
        try:
            response = await self._call("GetItem", Key=self._key(name), ConsistentRead=True)
        except NotFoundError:
            return None
        return self._value(response["Item"]) if "Item" in response else None

    async def get_all(self, names: Iterable[str]) -> dict[str, VersionedValue]:
        """Read the items side by side."""
        return await get_side_by_side(self.get, names)

    async def put_if_absent(self, name: str, value: bytes) -> str:
        """Update on the condition that there is no item."""
        while True:
            try:
                return await self._update(name, value, "attribute_not_exists(#item)", {})
            except ConflictError as error:
                if error.current is not None:  # otherwise it was deleted meanwhile
                    raise

    async def compare_and_set(self, name: str, value: bytes, expected: str) -> str:
        """Update on the condition that the item has the version."""
        return await self._update(name, value, "#version = :expected", {":expected": {"S": expected}})

    async def list(self, prefix: str, *, consistent: bool = True) -> dict[str, VersionedValue]:
        """Query the job's items; an inconsistent query costs half."""
        return {_name(item): self._value(item) async for item in self._query(prefix, consistent=consistent)}

    async def list_versions(self, prefix: str) -> dict[str, str]:
        """Query without the values."""
        return {_name(item): self._version(item) async for item in self._query(prefix, ("#item", "#version"))}

    async def list_names(self, prefix: str, before: str | None = None) -> Sequence[str]:
        """Query the keys."""
        found = [_name(item) async for item in self._query(prefix, ("#item",), before)]
        return [name for name in found if before is None or name < before]

    async def delete(self, *names: str) -> None:
        """Delete one by one, side by side."""
        await side_by_side(self._call("DeleteItem", Key=self._key(name)) for name in names)

    async def close(self) -> None:
        """Close the client."""
        await self._service.close()

    async def _update(self, name: str, value: bytes, condition: str, values: Mapping[str, Any]) -> str:
        version = new_version()
        names = {alias: _ATTRIBUTES[alias] for alias in ("#version", "#value")}
        names |= {"#item": "item"} if "#item" in condition else {}
        given = {
            "Key": self._key(name),
            "UpdateExpression": "SET #version = :version, #value = :value",
            "ConditionExpression": condition,
            "ExpressionAttributeNames": names,
            "ExpressionAttributeValues": {":version": {"S": version}, ":value": {"B": value}, **values},
        }
        try:
            try:
                await self._call("UpdateItem", **given)
            except NotFoundError:
                await self._create()
                await self._call("UpdateItem", **given)
        except ConditionFailedError as error:
            current = await self.get(name)
            if current is None or current.version != version:  # otherwise an SDK retry met its own first attempt
                raise ConflictError(self.place, name, current) from error
        return version

    async def _query(
        self, prefix: str, attributes: tuple[str, ...] = (), before: str | None = None, consistent: bool = True
    ) -> AsyncIterator[dict[str, Any]]:
        """The job's items, sorted by name; none when there is no table. With `before`, that name itself may be among them."""
        conditions, values = ["#job = :job"], {":job": {"S": self._job}}
        if before is not None and before < prefix:
            return
        if before is not None:
            conditions.append("#item BETWEEN :prefix AND :before" if prefix else "#item < :before")
            values[":before"] = {"S": before}
        elif prefix:
            conditions.append("begins_with(#item, :prefix)")
        if prefix:
            values[":prefix"] = {"S": prefix}
        aliases = {"#job", *(("#item",) if len(conditions) > 1 else ()), *attributes}
        given: dict[str, Any] = {
            "KeyConditionExpression": " AND ".join(conditions),
            "ExpressionAttributeNames": {alias: _ATTRIBUTES[alias] for alias in aliases},
            "ExpressionAttributeValues": values,
            "ConsistentRead": consistent,
            **({"ProjectionExpression": ", ".join(attributes)} if attributes else {}),
        }
        while True:
            try:
                response = await self._call("Query", **given)
            except NotFoundError:
                return
            for item in response["Items"]:
                if _name(item).startswith(prefix):
                    yield item
            if "LastEvaluatedKey" not in response:
                return
            given["ExclusiveStartKey"] = response["LastEvaluatedKey"]

    def _value(self, item: Mapping[str, Any]) -> VersionedValue:
        return VersionedValue(bytes(item["value"]["B"]) if "value" in item else b"", self._version(item))

    def _version(self, item: Mapping[str, Any]) -> str:
        if "version" not in item:
            raise StateError(
                f"{_name(item)} in {self.place} cannot be read: an earlier version of recordpublisher wrote it"
            )
        return str(item["version"]["S"])

    async def _call(self, api: str, **parameters: Any) -> dict[str, Any]:
        return await self._service.call(api, TableName=self._table, **parameters)

    def _key(self, name: str) -> dict[str, Any]:
        return {"job": {"S": self._job}, "item": {"S": name}}

    async def _create(self) -> None:
        keys = ("job", "HASH"), ("item", "RANGE")
        try:
            await self._call(
                "CreateTable",
                KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in keys],
                AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name, _ in keys],
                BillingMode="PAY_PER_REQUEST",
            )
        except StateError as error:
            if "ResourceInUseException" not in str(error):  # another process is creating it
                raise
        for _ in range(_CREATE_SECONDS):
            if (await self._call("DescribeTable"))["Table"]["TableStatus"] == "ACTIVE":
                return
            await asyncio.sleep(1)
        raise StateError(f"the table of {self.place} is not ACTIVE after {_CREATE_SECONDS} s")


def _name(item: Mapping[str, Any]) -> str:
    return str(item["item"]["S"])
