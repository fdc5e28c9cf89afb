"""DynamoDB Streams as a PollingService: the five calls that polling needs."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from contextlib import AsyncExitStack
from typing import Any

from aiobotocore.config import AioConfig
from botocore import xform_name

from ..clock import Clock, SystemClock
from ..errors import DataLossError, FatalKinesisError, StreamNotFoundError
from ..kinesis import (
    ReadResponse,
    RecordDistribution,
    endpoint_of,
    region_of,
    session_with_credentials,
    translate_errors,
)
from ..kinesis.listing import server_time_ms_or_none
from ..positions import PositionType, StartingPosition
from ..properties.groups.polling import DYNAMODB_EMPTY_READS
from ..properties.properties import Properties
from ..records import UserRecord
from ..shards import HashRange, Shard

MOST_RECORDS = 1_000
"""The largest Limit of GetRecords here."""


class DynamoDbStreams:
    """A stream is the name of a table; a record is one change, as JSON. Owns the client.

    A shard iterator holds two numbers that the service does not keep: the time before which changes are skipped, since there is
    no AT_TIMESTAMP here, and the number of empty responses in a row.
    """

    def __init__(self, properties: Properties, clock: Clock | None = None) -> None:
        """Read the properties; nothing is called yet. Raises: ConfigurationError."""
        self._clock = clock or SystemClock()
        self._region, self._endpoint = region_of(properties), endpoint_of(properties)
        self._session = session_with_credentials(properties, self._region)
        self._empty_reads = properties.value(DYNAMODB_EMPTY_READS)
        self._open = AsyncExitStack()
        self._opening = asyncio.Lock()
        self._client: Any = None
        self._arns: dict[str, str] = {}
        self.last_response_ms: int | None = None
        """The service's clock at its last response, in whole seconds (epoch ms)."""

    async def get_shard_iterator(self, shard: Shard, position: StartingPosition) -> str:
        """An iterator at the position. A start by time begins at TRIM_HORIZON and skips what is older."""
        kind, since = position.type.value, 0
        if position.type is PositionType.AT_TIMESTAMP:
            kind, since = "TRIM_HORIZON", (position.timestamp_ms or 0) // 1000
        at = {"SequenceNumber": position.sequence_number} if position.sequence_number else {}
        arn = await self.stream_arn(shard.stream)
        response = await self._call(
            "GetShardIterator", StreamArn=arn, ShardId=shard.shard_id, ShardIteratorType=kind, **at
        )
        return f"{since} 0 {response['ShardIterator']}"

    async def get_records(self, shard: Shard, iterator: str, limit: int) -> ReadResponse:
        """At most 1,000 changes. `millis_behind_latest` is 0 after enough empty responses in a row, else unknown."""
        since, empty, own = iterator.split(" ", 2)
        response = await self._call("GetRecords", ShardIterator=own, Limit=min(limit, MOST_RECORDS))
        changes = response["Records"]
        empty_reads = 0 if changes else int(empty) + 1
        following = response.get("NextShardIterator")
        return ReadResponse(
            [record for record in map(_record, changes) if record.arrival >= int(since)],
            0 if empty_reads >= self._empty_reads else None,
            next_iterator=f"{since} {empty_reads} {following}" if following else None,
        )

    async def list_shards(self, stream: str, after: str | None = None) -> list[Shard]:
        """The shards of the table's newest stream, those after a shard id."""
        arn, shards, last = await self.stream_arn(stream), [], after
        while True:
            start = {"ExclusiveStartShardId": last} if last else {}
            page = (await self._call("DescribeStream", StreamArn=arn, **start))["StreamDescription"]
            shards += [_shard(stream, each) for each in page["Shards"]]
            last = page.get("LastEvaluatedShardId")
            if not last:
                return shards

    async def server_time_ms(self, stream: str) -> int:
        """This machine's clock in whole seconds, as the service tells times."""
        return self._clock.now_ms() // 1000 * 1000

    async def record_distribution(self, stream: str) -> RecordDistribution:
        """A shard has all changes of its items: records are distributed by key."""
        return RecordDistribution(by_key=True)

    async def stream_arn(self, table: str) -> str:
        """The newest stream of a table. Raises: StreamNotFoundError without one."""
        if table not in self._arns:
            streams = (await self._call("ListStreams", TableName=table))["Streams"]
            if not streams:
                raise StreamNotFoundError(table)
            self._arns[table] = max(streams, key=lambda each: each["StreamLabel"])["StreamArn"]
        return self._arns[table]

    async def endpoint_url(self) -> str:
        """Where calls go: as set, else by the rules of the SDK for DynamoDB Streams."""
        return str((await self._opened()).meta.endpoint_url)

    async def close(self) -> None:
        """Close the client."""
        await self._open.aclose()

    async def _call(self, api: str, **fields: Any) -> dict[str, Any]:
        try:
            with translate_errors(api):
                client = await self._opened()
                response: dict[str, Any] = await getattr(client, xform_name(api))(**fields)
                self.last_response_ms = server_time_ms_or_none(response)
                return response
        except FatalKinesisError as error:
            if error.code == "TrimmedDataAccessException":
                raise DataLossError(f"the changes are older than 24 hours: {error}") from error
            raise

    async def _opened(self) -> Any:
        async with self._opening:
            if self._client is None:
                config = AioConfig(retries={"total_max_attempts": 1, "mode": "standard"})  # polling owns retries
                made = self._session.create_client(
                    "dynamodbstreams", region_name=self._region, endpoint_url=self._endpoint, config=config
                )
                self._client = await self._open.enter_async_context(made)
            return self._client


def _record(change: dict[str, Any]) -> UserRecord:
    """A change as a record: its partition key is the item's key, its data the change in DynamoDB's JSON."""
    item = change["dynamodb"]
    arrival = item["ApproximateCreationDateTime"].timestamp()
    data = {**change, "dynamodb": {**item, "ApproximateCreationDateTime": arrival}}
    key = json.dumps(item["Keys"], sort_keys=True, default=_base64)
    return UserRecord(json.dumps(data, default=_base64).encode(), item["SequenceNumber"], arrival, key)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _shard(table: str, described: dict[str, Any]) -> Shard:
    """A shard; it has no hash range here, so its id decides which subtask reads it."""
    place = int.from_bytes(hashlib.md5(described["ShardId"].encode(), usedforsecurity=False).digest(), "big")
    parent = described.get("ParentShardId")
    closed = "EndingSequenceNumber" in described["SequenceNumberRange"]
    return Shard(table, described["ShardId"], (parent,) if parent else (), HashRange(place, place), closed=closed)
