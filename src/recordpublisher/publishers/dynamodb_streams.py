"""Reads DynamoDB Streams, the changes of a table, by polling: the factory, the calls that polling needs, and the records."""

import base64
import hashlib
import json
import logging
from collections.abc import Callable, Mapping
from itertools import dropwhile
from typing import Any, TypeVar

from .base import Checks, check_clock
from .clock import Clock, SystemClock
from .errors import DataLossError, FatalKinesisError, ResourceNotFoundError, StreamNotFoundError
from .kinesis.client import server_time_ms_or_none
from .kinesis.endpoints import endpoint_of
from .kinesis.ports import ReadResponse, RecordDistribution
from .kinesis.sdk.aws_service import AwsService, OpenClient
from .log_fields import log_extra
from .polling.publisher import PollingRecordPublisherFactory
from .positions import PositionType, StartingPosition
from .properties.properties import Properties
from .properties.reading_properties import LIST_SHARDS_RETRIES
from .records import UserRecord
from .retry import call_with_retries
from .safe_text import counted
from .shards import HashRange, Shard

log = logging.getLogger("recordpublisher.discovery")
T = TypeVar("T")
MOST_RECORDS = 1_000
"""The largest Limit of GetRecords of DynamoDB Streams."""
EMPTY_READS_AT_TIP = 10
"""Number of empty responses in a row after which a shard counts as read to its tip. The service does not report a reader's lag."""


class DynamoDbStreams:
    """Makes the calls of DynamoDB Streams, through a client that it owns. The constructor makes no call.

    A stream is given as the name of a table, and a record is one change of the table, as JSON. This class adds two numbers to each shard
    iterator, because the service does not keep them:

    - the time before which changes are skipped, because DynamoDB Streams has no AT_TIMESTAMP,
    - the number of empty responses in a row.

    Raises: ConfigurationError if a property is invalid.
    """

    def __init__(
        self, properties: Properties, clock: Clock | None = None, open_client: OpenClient | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self._service = AwsService("dynamodbstreams", properties, endpoint_of(properties), open_client=open_client)
        self._arns: dict[str, list[str]] = {}
        """The ARNs of each table's streams, the newest last. A stream can be read for a day after it was disabled."""
        self._arn_of: dict[tuple[str, str], str] = {}
        """The ARN of the stream of each listed shard, by table and shard id."""
        self._disabled: set[str] = set()
        """The ARNs of the disabled streams about which a warning was logged."""
        self.last_response_ms: int | None = None
        """The time of the service's clock in its last response (epoch ms, in whole seconds), or None before the first response."""

    async def get_shard_iterator(self, shard: Shard, position: StartingPosition) -> str:
        """Return an iterator at the position. A start at a time begins at TRIM_HORIZON, and older changes are skipped."""
        kind, since = position.type.value, 0
        if position.type is PositionType.AT_TIMESTAMP:
            kind, since = "TRIM_HORIZON", (position.timestamp_ms or 0) // 1000
        at = {"SequenceNumber": position.sequence_number} if position.sequence_number else {}
        arn = self._arn_of.get((shard.stream, shard.shard_id)) or await self.stream_arn(shard.stream)
        where = {"StreamArn": arn, "ShardId": shard.shard_id, "ShardIteratorType": kind, **at}
        own: str = await self._call("GetShardIterator", lambda response: response["ShardIterator"], **where)
        return f"{since} 0 {own}"

    async def get_records(self, shard: Shard, iterator: str, limit: int) -> ReadResponse:
        """Return at most 1,000 changes. `millis_behind_latest` is 0 after `EMPTY_READS_AT_TIP` empty responses in a row, else None."""
        since, empty, own = iterator.split(" ", 2)

        def parse(response: dict[str, Any]) -> tuple[list[UserRecord], str | None]:
            following = response.get("NextShardIterator")
            if following is not None and not isinstance(following, str):
                raise TypeError(f"the next shard iterator is not a text: {following!r}")
            return [*map(record_of_change, response["Records"])], following

        read, following = await self._call("GetRecords", parse, ShardIterator=own, Limit=min(limit, MOST_RECORDS))
        empty_reads = 0 if read else int(empty) + 1
        # Only changes before the first one of that time are skipped. Times are approximate, so a later change may have an older time.
        records = list(dropwhile(lambda record: record.arrival < int(since), read))
        since = "0" if records else since
        return ReadResponse(
            records,
            0 if empty_reads >= EMPTY_READS_AT_TIP else None,
            next_iterator=f"{since} {empty_reads} {following}" if following else None,
        )

    async def list_shards(self, stream: str) -> list[Shard]:
        """Return the shards of the table's streams.

        To change its view, a table's stream is disabled and enabled again. The table then has a new stream. Both streams are listed as long
        as the service has the older one, because the job may have positions in it.
        """
        newest = await self.stream_arn(stream)
        listed, is_enabled = await self._shards_of(stream, newest)
        if not is_enabled:
            found = await self._listed_arns(stream)
            self._arns[stream] = [*(arn for arn in self._arns[stream] if arn not in found), *found]
            self._tell_if_disabled(stream, newest)
        for arn in self._arns[stream]:
            if arn != newest:
                more, _ = await self._shards_of(stream, arn)
                listed = [*more, *listed]
        return listed

    def _tell_if_disabled(self, table: str, arn: str) -> None:
        """Log once that a table's newest stream (`arn`) is disabled.

        The job does not end, because changing a stream's view also disables it.
        """
        if self._arns[table][-1] == arn and arn not in self._disabled:
            self._disabled.add(arn)
            words = "the stream of table %s is disabled: the job reads its last changes, then waits until the table has a new stream"
            log.warning(words, table, extra=log_extra(table))

    async def _shards_of(self, table: str, arn: str) -> tuple[list[Shard], bool]:
        """Return the shards of one stream of a table, and whether the stream is enabled. A stream that is gone has no shards."""
        status = ""

        def parse(response: dict[str, Any]) -> tuple[list[Shard], dict[str, Any] | None]:
            nonlocal status
            page = response["StreamDescription"]
            status = page.get("StreamStatus", "ENABLED")
            last = page.get("LastEvaluatedShardId")
            following = {"ExclusiveStartShardId": last} if last else None
            return [_shard(table, described) for described in page["Shards"]], following

        try:
            pages = self._service.pages("DescribeStream", parse, StreamArn=arn)
            shards = [shard async for page in pages for shard in page]
        except ResourceNotFoundError:
            return [], False
        if arn == self._arns[table][-1]:
            # The shards of a large table are replaced several times a day, so expired ones are forgotten. A shard that is not known is
            # looked for in the newest stream, so this loses nothing even if the listing lacks one.
            self._arn_of = {key: known for key, known in self._arn_of.items() if key[0] != table or known != arn}
        self._arn_of |= {(table, shard.shard_id): arn for shard in shards}
        return shards, status in ("ENABLED", "ENABLING")

    async def server_time_ms(self, stream: str) -> int:
        """Return this machine's time (epoch ms). It is cut to whole seconds, like the service's times."""
        return self._clock.now_ms() // 1000 * 1000

    async def record_distribution(self, stream: str) -> RecordDistribution:
        """Return that the key of a record decides its shard. In DynamoDB Streams all changes of an item are in one shard."""
        return RecordDistribution(by_key=True)

    async def stream_arn(self, table: str) -> str:
        """Return the ARN of a table's newest stream. Raises: StreamNotFoundError if the table has no stream."""
        if table not in self._arns:
            self._arns[table] = await self._listed_arns(table)
        return self._arns[table][-1]

    async def _listed_arns(self, table: str) -> list[str]:
        """Request the ARNs of a table's streams, and return them, the newest last.

        Raises: StreamNotFoundError if the table has no stream.
        """
        arns = await self._call(
            "ListStreams",
            lambda found: {stream["StreamLabel"]: stream["StreamArn"] for stream in found["Streams"]},
            TableName=table,
        )
        if not arns:
            raise StreamNotFoundError(table)
        return [arns[label] for label in sorted(arns)]

    async def endpoint_url(self) -> str:
        """Return the URL of DynamoDB Streams that calls go to: the configured endpoint, or else that of the SDK."""
        return await self._service.endpoint_url()

    async def close(self) -> None:
        """Close the client."""
        await self._service.close()

    async def _call(self, api: str, parse: Callable[[dict[str, Any]], T], **fields: Any) -> T:
        def parse_with_time(response: dict[str, Any]) -> T:
            self.last_response_ms = server_time_ms_or_none(response)
            return parse(response)

        try:
            return await self._service.call(api, parse_with_time, **fields)
        except FatalKinesisError as error:
            if error.code == "TrimmedDataAccessException":
                raise DataLossError(
                    f"the changes to continue with are older than 24 hours, so DynamoDB Streams has removed them: {error}"
                ) from error
            raise


class DynamoDbStreamsFactory(PollingRecordPublisherFactory):
    """Makes polling publishers that read DynamoDB Streams, and lists the shards of a table's streams. Owns one client for all of them."""

    def __init__(self, properties: Mapping[str, object], *, clock: Clock | None = None) -> None:
        properties = properties if isinstance(properties, Properties) else Properties(properties)
        self._streams = DynamoDbStreams(properties, clock)
        self._listing = LIST_SHARDS_RETRIES.policy(properties)
        super().__init__(properties, service=self._streams, clock=clock)

    async def discover(self, stream: str) -> list[Shard]:
        """List the shards of the table's streams. Raises: StreamNotFoundError if the table has no stream."""
        return await call_with_retries(lambda: self._streams.list_shards(stream), self._listing)

    async def endpoint_url(self) -> str:
        """Return the URL of DynamoDB Streams that calls go to. It is not that of DynamoDB."""
        return await self._streams.endpoint_url()

    def checks(self, stream: str) -> Checks:
        """Return the checks for `doctor` of the table's newest stream and its shards. One of them reads a shard."""
        return table_checks(self._streams, stream, self._clock)

    async def close(self) -> None:
        """Close the client."""
        await self._streams.close()


def _shard(table: str, described: dict[str, Any]) -> Shard:
    """Return the Shard for the service's description of it.

    DynamoDB reports no hash range, by which workers divide shards, so the range is made from the shard id.
    """
    place = int.from_bytes(hashlib.md5(described["ShardId"].encode(), usedforsecurity=False).digest(), "big")
    parent = described.get("ParentShardId")
    if parent == described["ShardId"]:  # A shard that is its own parent would wait for itself for ever.
        raise ValueError(f"the shard {parent} is its own parent")
    closed = "EndingSequenceNumber" in described["SequenceNumberRange"]
    return Shard(table, described["ShardId"], (parent,) if parent else (), HashRange(place, place), closed=closed)


def table_checks(streams: DynamoDbStreams, table: str, clocks: Clock) -> Checks:
    """Return the checks by which `doctor` examines a table, by IAM action. They call each of the four actions, and remove no record.

    If there is no shard, the later checks make no call and return None.
    """
    shards: list[Shard] = []
    iterators: list[str] = []

    async def newest_stream() -> str:
        return f"the newest stream is {await streams.stream_arn(table)}"

    async def describe() -> str:
        shards.extend(await streams.list_shards(table))
        return counted(len(shards), "shard")

    async def iterator() -> str | None:
        if not shards:
            return None
        iterators.append(await streams.get_shard_iterator(shards[-1], StartingPosition.latest()))
        return "allowed"

    async def read() -> str | None:
        if not iterators:
            return None
        await streams.get_records(shards[-1], iterators[0], 1)
        return "allowed"

    async def clock() -> str | None:
        return None if streams.last_response_ms is None else check_clock(clocks.now_ms(), streams.last_response_ms)

    return {
        "dynamodb:ListStreams": newest_stream,
        "clock": clock,
        "dynamodb:DescribeStream": describe,
        "dynamodb:GetShardIterator": iterator,
        "dynamodb:GetRecords": read,
    }


MOST_DIGITS = 40
"""The most digits of a sequence number (API reference of DynamoDB Streams)."""


def record_of_change(change: dict[str, Any]) -> UserRecord:
    """Return the record of a change. Its partition key is the item's key, and its data is the change in DynamoDB's JSON.

    Raises: ValueError or KeyError if `change` is not a valid change.
    """
    item = change["dynamodb"]
    # The SDK returns a datetime here, but an event of Lambda has a number.
    created = item["ApproximateCreationDateTime"]
    arrival = float(created) if isinstance(created, int | float) else created.timestamp()
    data = {**change, "dynamodb": {**item, "ApproximateCreationDateTime": arrival}}
    key = json.dumps(item["Keys"], sort_keys=True, default=_base64)
    sequence = item["SequenceNumber"]
    if not (sequence.isascii() and sequence.isdecimal() and len(sequence) <= MOST_DIGITS):
        raise ValueError(f"the sequence number {sequence[:50]!r} is not a number of at most {MOST_DIGITS} digits")
    return UserRecord(json.dumps(data, default=_base64).encode(), sequence, arrival, key)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
