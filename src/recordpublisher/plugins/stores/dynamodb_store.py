"""The conditional store in DynamoDB (DYNAMODB), with the AWS SDK."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from recordpublisher.fetcher.conditional_store import (
    ConditionalStore,
    ConflictError,
    VersionedValue,
    new_version,
    pause_after_conflict,
)
from recordpublisher.publishers.errors import (
    ConfigurationError,
    ResourceInUseError,
    StateError,
    StoreUnavailableError,
)
from recordpublisher.publishers.properties.properties import Properties

from .aws_store_calls import AwsStoreCalls, ConditionFailedError, NotFoundError
from .back_ends import DYNAMODB, back_end_of
from .object_store import get_side_by_side, refuse_credentials, refuse_query_and_fragment, side_by_side
from .s3_store import _WRITE_ATTEMPTS

T = TypeVar("T")
_CREATE_SECONDS = 60
_ATTRIBUTES = {"#job": "job", "#item": "item", "#version": "version", "#value": "value"}
"""Placeholders for attribute names in expressions. They are needed because some of these names are reserved words of DynamoDB."""


class DynamoDbStore(ConditionalStore):
    """Stores the values of one job as items of a DynamoDB table.

    Many jobs may share the table. The first write creates it if it is missing.

    The key of the table is `job` (text) and `item` (text, the name of the value). An item has at most 400 KB.

    - `key`: the property that contains the URI.

    Raises: ConfigurationError if the URI is not valid or has credentials, or if the AWS credentials are wrong.
    """

    actions: ClassVar = {
        "dynamodb:GetItem": "reads",
        "dynamodb:Query": "lists",
        "dynamodb:UpdateItem": "writes",
        "dynamodb:CreateTable": "creates",
        "dynamodb:DescribeTable": "creates",
        "dynamodb:DeleteItem": "deletes",
    }

    def __init__(self, uri: str, key: str, properties: Properties) -> None:
        refuse_query_and_fragment(key, uri, DYNAMODB.form)
        parts = urlsplit(uri)
        if back_end_of(uri) is not DYNAMODB or not parts.netloc or not parts.path.strip("/"):
            raise ConfigurationError(key, uri, DYNAMODB.form)
        refuse_credentials(key, uri, parts.netloc, DYNAMODB.form)
        self.place = uri
        self._table, self._job = parts.netloc, parts.path.strip("/")
        self._service = AwsStoreCalls("dynamodb", uri, properties)

    async def get(self, name: str) -> VersionedValue | None:
        """Return the value and version of an item, or None if there is none. The read is strongly consistent."""

        def parse(response: dict[str, Any]) -> VersionedValue | None:
            return self._value(response["Item"]) if "Item" in response else None

        try:
            return await self._call("GetItem", parse, Key=self._key(name), ConsistentRead=True)
        except NotFoundError:
            return None

    async def get_all(self, names: Iterable[str]) -> dict[str, VersionedValue]:
        """Return the values of the items, read by concurrent calls. They are not a snapshot of one moment."""
        return await get_side_by_side(self.get, names)

    async def put_if_absent(self, name: str, value: bytes) -> str:
        """Create the item by an update, on the condition that it does not exist. Return its version."""
        for attempt in range(_WRITE_ATTEMPTS):
            try:
                return await self._update(name, value, "attribute_not_exists(#item)", {})
            except ConflictError as error:
                if error.current is not None:
                    raise
                # There is no current value, so the item was deleted after the condition was checked, and its name may be free now.
            await pause_after_conflict(attempt)
        raise StoreUnavailableError(
            f"{name} in {self.place} could not be written: an item of that name exists, but it cannot be read"
        )

    async def compare_and_set(self, name: str, value: bytes, expected: str) -> str:
        """Update the item on the condition that it has the expected version. Return its new version."""
        return await self._update(name, value, "#version = :expected", {":expected": {"S": expected}})

    async def list(self, prefix: str, *, consistent: bool = True) -> dict[str, VersionedValue]:
        """Return the values whose names have the prefix. A query that is not `consistent` costs half."""
        return {name: value async for name, value in self._query(self._value, prefix, consistent=consistent)}

    async def list_versions(self, prefix: str) -> dict[str, str]:
        """Return the version of each name with the prefix, from a query that reads no values."""
        attributes = ("#item", "#version")
        return {name: version async for name, version in self._query(self._version, prefix, attributes)}

    async def list_names(self, prefix: str, before: str | None = None) -> Sequence[str]:
        """Return the names that have the prefix and sort before `before`, from a query that reads no values."""
        names = [name async for name, _ in self._query(lambda item: None, prefix, ("#item",), before)]
        return [name for name in names if before is None or name < before]

    async def delete(self, *names: str) -> None:
        """Delete the items at the same time, each with a call of its own."""
        await side_by_side(self._call("DeleteItem", _nothing, Key=self._key(name)) for name in names)

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
                await self._call("UpdateItem", _nothing, **given)
            except NotFoundError:
                await self._create()
                await self._call("UpdateItem", _nothing, **given)
        except ConditionFailedError as error:
            current = await self.get(name)
            # If the version is ours, the SDK's retry collided with its own first attempt, which had succeeded.
            if current is None or current.version != version:
                raise ConflictError(self.place, name, current) from error
        return version

    async def _query(
        self,
        parse: Callable[[Mapping[str, Any]], T],
        prefix: str,
        attributes: tuple[str, ...] = (),
        before: str | None = None,
        consistent: bool = True,
    ) -> AsyncIterator[tuple[str, T]]:
        """Yield the name of each item of the job, sorted, and the result of `parse` for the item. Yield nothing if there is no table.

        If `before` is given, that name itself may also be yielded.
        """
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

        def parse_page(response: dict[str, Any]) -> tuple[list[tuple[str, T]], dict[str, Any] | None]:
            items = [(_name(item), parse(item)) for item in response["Items"] if _name(item).startswith(prefix)]
            last = response.get("LastEvaluatedKey")
            return items, {"ExclusiveStartKey": last} if last else None

        with contextlib.suppress(NotFoundError):
            async for page in self._service.pages("Query", parse_page, TableName=self._table, **given):
                for name, parsed in page:
                    yield name, parsed

    def _value(self, item: Mapping[str, Any]) -> VersionedValue:
        return VersionedValue(bytes(item["value"]["B"]) if "value" in item else b"", self._version(item))

    def _version(self, item: Mapping[str, Any]) -> str:
        if "version" not in item:
            raise StateError(
                f"{_name(item)} in {self.place} cannot be read, because an earlier version of recordpublisher wrote it; use that version, "
                "or another place"
            )
        return str(item["version"]["S"])

    async def _call(self, api: str, parse: Callable[[dict[str, Any]], T], **parameters: Any) -> T:
        return await self._service.call(api, parse, TableName=self._table, **parameters)

    def _key(self, name: str) -> dict[str, Any]:
        return {"job": {"S": self._job}, "item": {"S": name}}

    async def _create(self) -> None:
        await create_table(self._service, self._table, {"job": "HASH", "item": "RANGE"})


async def create_table(service: AwsStoreCalls, table: str, keys: Mapping[str, str]) -> None:
    """Create a table, and wait until it is ACTIVE. Another process may create it at the same time.

    - `keys`: the attributes of the table's key, which are texts: HASH or RANGE, by the attribute's name.

    Raises: StateError if the table cannot be created, or is not ACTIVE after 60 s.
    """
    try:
        await service.call(
            "CreateTable",
            _nothing,
            TableName=table,
            KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in keys.items()],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in keys],
            BillingMode="PAY_PER_REQUEST",
        )
    except StateError as error:
        if not isinstance(error.__cause__, ResourceInUseError):
            raise
        # Another process is creating the table, so only wait for it.
    for _ in range(_CREATE_SECONDS):
        status = await service.call("DescribeTable", lambda found: found["Table"]["TableStatus"], TableName=table)
        if status == "ACTIVE":
            return
        await asyncio.sleep(1)
    raise StateError(f"the table of {service.place} is not ACTIVE after {_CREATE_SECONDS} s")


def _nothing(response: dict[str, Any]) -> None:
    """Return None, for calls whose response is not needed."""


def _name(item: Mapping[str, Any]) -> str:
    return str(item["item"]["S"])
