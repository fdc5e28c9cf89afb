"""Claims as items of DynamoDB, put only where there is none."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.kinesis import run_sync
from recordpublisher.publishers.properties.properties import Properties

from ..aws_client import RefusedError
from ..ports import BatchId, ClaimStore
from .table import DynamoTable

T = TypeVar("T")
KEY = "metadataLocation"


class DynamoDbClaimStore(ClaimStore):
    """Items of the "job" `<job>/<query>`, named `<batch>-<plan>/<name>`; the first writer wins by a condition.

    Every call has a client of its own: calls come from any thread and process, one or two for each task.
    """

    def __init__(self, location: str, properties: Properties) -> None:
        """Raises: ConfigurationError when the location is not dynamodb://table/job."""
        self._location = location
        self._properties = properties
        self._job = DynamoTable(location, KEY, properties).job

    def put_if_absent(self, batch: BatchId, name: str, claim: bytes) -> bytes:
        """What is stored: the claim given, or the winner's."""

        async def put(table: DynamoTable) -> bytes:
            try:
                await self._put(table, batch.query, _item(batch, name), claim)
            except RefusedError:
                found = await table.get(_item(batch, name), self._of(batch.query))
                return claim if found is None else _content(found)
            return claim

        return self._with_table(put)

    def get(self, batch: BatchId, name: str) -> bytes | None:
        """The stored claim, if any."""

        async def get(table: DynamoTable) -> bytes | None:
            found = await table.get(_item(batch, name), self._of(batch.query))
            return None if found is None else _content(found)

        return self._with_table(get)

    def load(self, batch: BatchId) -> dict[str, bytes]:
        """Every claim of a batch by name."""
        beginning = {":beginning": {"S": _item(batch, "")}}

        async def load(table: DynamoTable) -> dict[str, bytes]:
            found = table.items("begins_with(item, :beginning)", beginning, self._of(batch.query))
            return {_name(item).partition("/")[2]: _content(item) async for item in found}

        return self._with_table(load)

    def purge(self, query: str, before: int) -> None:
        """Remove the items of older batches; numbers have ten digits, so that texts compare as they do."""
        limit = {":limit": {"S": f"{before:010d}"}}

        async def purge(table: DynamoTable) -> None:
            old = [_name(item) async for item in table.items("item < :limit", limit, self._of(query))]
            for item in old:
                await table.delete(item, self._of(query))

        self._with_table(purge)

    def plant_probe(self, query: str, token: str) -> None:
        """Leave the token, by the same conditional put that claims need. Raises: ConfigurationError."""

        async def plant(table: DynamoTable) -> None:
            try:
                await self._put(table, query, f"probe-{token}", b"")
            except RefusedError:
                return

        try:
            self._with_table(plant)
        except Exception as error:
            reason = f"claims cannot be kept there: {error}"
            raise ConfigurationError(
                KEY, self._location, "a DynamoDB table that can be written", reason=reason
            ) from error

    def see_probe(self, query: str, token: str) -> None:
        """Look for the token."""

        async def see(table: DynamoTable) -> Any:
            return await table.get(f"probe-{token}", self._of(query))

        if self._with_table(see) is None:
            reason = "a task cannot see what the driver wrote there"
            raise ConfigurationError(KEY, self._location, "one table for the driver and every executor", reason=reason)

    async def _put(self, table: DynamoTable, query: str, item: str, content: bytes) -> None:
        values = {":content": {"B": content}}
        await table.update(item, "SET content = :content", "attribute_not_exists(content)", values, self._of(query))

    def _of(self, query: str) -> str:
        return f"{self._job}/{query}"

    def _with_table(self, work: Callable[[DynamoTable], Awaitable[T]]) -> T:
        async def run() -> T:
            table = DynamoTable(self._location, KEY, self._properties)
            try:
                return await work(table)
            finally:
                await table.service.close()

        return run_sync(run())


def _item(batch: BatchId, name: str) -> str:
    return f"{batch.batch:010d}-{batch.plan}/{name}"


def _name(item: dict[str, Any]) -> str:
    return str(item["item"]["S"])


def _content(item: dict[str, Any]) -> bytes:
    return bytes(item["content"]["B"])
