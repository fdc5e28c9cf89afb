"""KinesisClient makes the calls to Kinesis: it implements the ports of `ports.py`.

Below it are the parts that only it needs: how streams and shards are listed, and through which transport a call goes.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from graphlib import TopologicalSorter
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec

from ..errors import (
    ConfigurationError,
    FatalKinesisError,
    KinesisError,
    RecordPublisherError,
    ResourceNotFoundError,
    StreamNotActiveError,
    StreamNotFoundError,
    TransientError,
)
from ..positions import PositionType, StartingPosition
from ..properties.properties import Properties
from ..properties.reading_properties import ENDPOINT, REGION_ENDPOINT, STREAM_ROLE_ARN
from ..service_limits import DEFAULT_RECORD_BYTES
from ..shards import ConsumerArn, HashRange, Shard, account_of_arn, arn_of, region_of_arn, stream_name
from .access_without_sdk import access_without_sdk, own_endpoint
from .codec import PLACEHOLDER, PUT, RAW_EVENTS, READ, check_shard_ids, encode_put, to_read_response
from .direct_transport import DirectTransport
from .endpoints import region_and_source
from .error_mapping import reject_malformed
from .http1 import SUBSCRIPTION_BUFFER_BYTES
from .ports import (
    ConsumerDescription,
    PutEntry,
    PutRecordsResponse,
    ReadResponse,
    RecordDistribution,
    StreamSummary,
    Subscription,
    Transport,
)

log = logging.getLogger("recordpublisher.kinesis")

TRANSPORTS: ContextVar[Callable[[], Transport] | None] = ContextVar("recordpublisher_transports", default=None)
"""Makes the transports of all clients in this context, if it is set. Tests set it through `recordpublisher.local.in_memory`."""
TRANSPORTS_OF_THREADS: list[Callable[[], Transport]] = []
"""Each value that `TRANSPORTS` has somewhere in this process. The last one is used in contexts in which none is set.

A thread that a test starts has a new context, and would otherwise call the real service.
"""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class KinesisClient:
    """Makes every call to the service for publishers, discovery and the Kinesis sink. It implements the ports of `ports.py`.

    Its transports are opened at the first call, and belong to the event loop of that call. Streams are names or ARNs. If a stream's ARN is
    known, it is sent with every call, as the service recommends, and decides the region. The client retries no call. Errors are classes of
    `errors.py`.

    The constructor checks the properties without a call.

    - `streams`: names or ARNs, from which the region may be found.
    - `transport`: replaced in tests.

    Raises: ConfigurationError if a property is invalid.
    """

    def __init__(
        self, properties: Properties, streams: Iterable[str] = (), *, transport: Transport | None = None
    ) -> None:
        streams = tuple(streams)
        self._arns = {stream_name(stream): arn for stream in streams if (arn := arn_of(stream))}
        make = TRANSPORTS.get() or next(reversed(TRANSPORTS_OF_THREADS), None)
        transport = make() if transport is None and make is not None else transport
        self._transports = StreamTransports(properties, streams) if transport is None else OneTransport(transport)
        self._read_buffer = bytearray(SUBSCRIPTION_BUFFER_BYTES)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close all connections. Open subscriptions end."""
        await self._transports.close()

    # --- polling ------------------------------------------------------------------------------------------------------------------

    async def get_shard_iterator(self, shard: Shard, position: StartingPosition) -> str:
        """Return a new shard iterator at the position. It is valid for five minutes."""
        start = _start_parameters(position, type_key="ShardIteratorType", sequence_key="StartingSequenceNumber")
        response = await self._call("GetShardIterator", **self._parameter_of(shard), ShardId=shard.shard_id, **start)
        with reject_malformed("GetShardIterator"):
            return require_text(response["ShardIterator"])

    async def get_records(self, shard: Shard, iterator: str, limit: int) -> ReadResponse:
        """Read at most `limit` records (1 to 10,000) and 10 MiB from `iterator`."""
        # The iterator already names the stream, so the call takes no stream name. The ARN decides the region and the role.
        arn = {key: value for key, value in self._parameter_of(shard).items() if key == "StreamARN"}
        response = await self._call("GetRecords", ShardIterator=iterator, Limit=limit, **arn)
        with reject_malformed("GetRecords"):
            return to_read_response(response[READ], shard)

    # --- fan-out ------------------------------------------------------------------------------------------------------------------

    async def subscribe_to_shard(self, consumer_arn: str, shard: Shard, position: StartingPosition) -> Subscription:
        """Open a subscription, and return it. The caller sets the deadline, and closes the subscription."""
        from .event_subscription import EventSubscription  # Imported here because it loads parts of the SDK.

        start = _start_parameters(position, type_key="Type", sequence_key="SequenceNumber")
        response = await self._transport_for(ConsumerARN=consumer_arn).subscribe(
            "SubscribeToShard", ConsumerARN=consumer_arn, ShardId=shard.shard_id, StartingPosition=start
        )
        return EventSubscription(response[RAW_EVENTS], shard, self._read_buffer)

    async def describe_consumer(self, stream_arn: str, name: str) -> ConsumerDescription | None:
        """Return the consumer as the service describes it, or None if it does not exist."""
        try:
            response = await self._call("DescribeStreamConsumer", StreamARN=stream_arn, ConsumerName=name)
        except ResourceNotFoundError:
            return None
        with reject_malformed("DescribeStreamConsumer"):
            return msgspec.convert(response["ConsumerDescription"], ConsumerDescription)

    async def register_consumer(
        self, stream_arn: str, name: str, tags: Mapping[str, str] | None = None
    ) -> ConsumerDescription:
        """Register a consumer, and return it as the service describes it. It stays CREATING for some seconds."""
        given = {"Tags": dict(tags)} if tags else {}
        response = await self._call("RegisterStreamConsumer", StreamARN=stream_arn, ConsumerName=name, **given)
        with reject_malformed("RegisterStreamConsumer"):
            return msgspec.convert(response["Consumer"], ConsumerDescription)

    async def deregister_consumer(self, consumer_arn: str) -> None:
        """Deregister a consumer. It stays DELETING for some seconds."""
        await self._call("DeregisterStreamConsumer", ConsumerARN=consumer_arn)

    # --- writing ------------------------------------------------------------------------------------------------------------------

    async def put_records(self, stream: str, entries: Sequence[PutEntry]) -> PutRecordsResponse:
        """Put 1 to 500 records. Raises: StreamNotFoundError if the stream does not exist. The error names the existing streams."""
        stream_parameter = self._stream_parameter(stream)
        try:
            body = encode_put(stream_parameter, entries)
            transport = self._transport_for(**stream_parameter)
            response = await transport.call_with_body("PutRecords", body, **stream_parameter, Records=PLACEHOLDER)
        except ResourceNotFoundError as error:
            raise await self._stream_not_found(stream, "PutRecords") from error
        found: PutRecordsResponse = response[PUT]
        if len(found.results) != len(entries):
            raise TransientError(
                "PutRecords",
                "MalformedResponse",
                f"the response has {len(found.results)} results for {len(entries)} records",
            )
        return found

    async def stream_summary(self, stream: str) -> StreamSummary:
        """Return the size of the largest record that the stream accepts, and whether keys decide the shard of a record."""
        summary = await self._describe_stream(stream)
        with reject_malformed("DescribeStreamSummary"):
            return StreamSummary(largest_record_bytes(summary), summary.get("RecordDistributionStrategy") != "AUTO")

    # --- streams and shards -------------------------------------------------------------------------------------------------------

    async def stream_arn(self, stream: str) -> str:
        """Return the ARN of a stream. If it is already known, no call is made."""
        if arn := arn_of(stream):
            return arn
        if stream not in self._arns:
            summary = await self._describe_stream(stream)
            with reject_malformed("DescribeStreamSummary"):
                self._arns[stream] = require_text(summary["StreamARN"])
        return self._arns[stream]

    async def record_distribution(self, stream: str) -> RecordDistribution:
        """Return whether the key of a record decides its shard now. With AUTO record distribution it does not."""
        response = await self._describe_stream_response(stream)
        with reject_malformed("DescribeStreamSummary"):
            # Only streams in on-demand mode have a record distribution strategy.
            strategy = response["StreamDescriptionSummary"].get("RecordDistributionStrategy")
        return RecordDistribution(strategy != "AUTO", server_time_ms_or_none(response), strategy is not None)

    async def retention_ms(self, stream: str) -> int:
        """Return for how long the stream keeps its records (ms, from 24 h to 365 days)."""
        summary = await self._describe_stream(stream)
        with reject_malformed("DescribeStreamSummary"):
            return int(summary["RetentionPeriodHours"]) * 3_600_000

    async def list_streams(self) -> list[str]:
        """Return the names of all streams of the account in this region."""
        return await list_all_streams(self._transports.for_stream(None))

    async def list_shards(self, stream: str) -> list[Shard]:
        """Return every shard that the service still lists.

        Raises: StreamNotFoundError if the stream does not exist. The error names the existing streams.
        """
        parameter = self._stream_parameter(stream)
        name, arn = stream_name(stream), parameter.get("StreamARN")
        try:
            described = await list_all_shards(self._transport_for(**parameter), parameter)
        except ResourceNotFoundError as error:
            raise await self._stream_not_found(stream, "ListShards") from error
        with reject_malformed("ListShards"):
            return [parse_shard(shard, name, arn) for shard in described]

    async def server_time_ms(self, stream: str) -> int:
        """Return the time of the service's clock (epoch ms, cut to whole seconds). It comes from the Date header of a response."""
        try:
            return parse_server_time_ms(await self._call("ListShards", **self._stream_parameter(stream), MaxResults=1))
        except ResourceNotFoundError as error:
            raise await self._stream_not_found(stream, "ListShards") from error

    # --- helpers ------------------------------------------------------------------------------------------------------------------

    async def _call(self, api: str, **parameters: Any) -> dict[str, Any]:
        return await self._transport_for(**parameters).call(api, **parameters)

    def _transport_for(self, **parameters: Any) -> Transport:
        """Return the transport for a call, by the ARN of the stream or consumer in its parameters."""
        arn: str | None = parameters.get("StreamARN")
        if arn is None and "ConsumerARN" in parameters:
            consumer = ConsumerArn.parse(parameters["ConsumerARN"])
            arn = None if consumer is None else consumer.stream_arn
        return self._transports.for_stream(arn)

    async def _describe_stream(self, stream: str) -> dict[str, Any]:
        response = await self._describe_stream_response(stream)
        with reject_malformed("DescribeStreamSummary"):
            return dict(response["StreamDescriptionSummary"])

    async def _describe_stream_response(self, stream: str) -> dict[str, Any]:
        try:
            return await self._call("DescribeStreamSummary", **self._stream_parameter(stream))
        except ResourceNotFoundError as error:
            raise await self._stream_not_found(stream, "DescribeStreamSummary") from error

    async def _stream_not_found(self, stream: str, api: str) -> RecordPublisherError:
        """Return the error for a stream that the call `api` did not find. It is a TransientError while the stream is being created.

        A StreamNotFoundError names the existing streams, if this identity may list them.
        """
        parameter = self._stream_parameter(stream)
        try:
            described = await self._call("DescribeStreamSummary", **parameter) if api != "DescribeStreamSummary" else {}
            if described.get("StreamDescriptionSummary", {}).get("StreamStatus") == "CREATING":
                log.info("stream '%s' is CREATING: %s is tried again until it is ACTIVE", stream, api)
                return StreamNotActiveError(api, stream)
        except KinesisError:
            pass  # Either the stream does not exist, or this identity may not describe it.
        arn = parameter.get("StreamARN")
        place = self._transports.place_of(arn)
        try:
            return StreamNotFoundError(stream, await list_all_streams(self._transports.for_stream(arn)), place)
        except KinesisError:
            return StreamNotFoundError(stream, place=place)

    def _stream_parameter(self, stream: str) -> dict[str, str]:
        """Return the parameter that names a stream in a call: its ARN if that is known, else its name."""
        arn = arn_of(stream) or self._arns.get(stream)
        return {"StreamARN": arn} if arn else {"StreamName": stream}

    def _parameter_of(self, shard: Shard) -> dict[str, str]:
        return self._stream_parameter(shard.stream_arn or shard.stream)


def _start_parameters(position: StartingPosition, *, type_key: str, sequence_key: str) -> dict[str, Any]:
    """Return the parameters of a call for a starting position.

    - `type_key`, `sequence_key`: what the call names the position's type and its sequence number.
    """
    start: dict[str, Any] = {type_key: position.type.value}
    if position.type is PositionType.AT_TIMESTAMP:
        start["Timestamp"] = _EPOCH + timedelta(milliseconds=position.timestamp_ms or 0)
    elif position.sequence_number is not None:
        start[sequence_key] = position.sequence_number
    return start


def largest_record_bytes(summary: Mapping[str, Any]) -> int:
    """Return the size of the largest record that a stream accepts (bytes of data and key), from the stream's description.

    Raises: ValueError or TypeError if the description has no valid size.
    """
    size = int(summary.get("MaxRecordSizeInKiB", DEFAULT_RECORD_BYTES // 1024))
    if size < 1:
        raise ValueError(f"MaxRecordSizeInKiB is {size!r}, which is not a valid size")
    return size * 1024


def require_text(given: Any) -> str:
    """Return `given`. Raises: TypeError if it is not text."""
    if not isinstance(given, str):
        raise TypeError(f"{given!r} is not text")
    return given


# --- lists of streams and shards ----------------------------------------------------------------------------------------------------

MAX_PAGES_WITHOUT_NEWS, MAX_LISTED = 10, 1_000_000
"""Limits of a listing, far above what the service returns: pages in a row without a new name, and all names."""
MOST_DIGITS = 256
"""The most digits that a sequence number may have. Kinesis uses 56. Python cannot parse numbers of more than 4,300."""


async def list_all_shards(transport: Transport, stream: dict[str, str]) -> list[dict[str, Any]]:
    """Return every shard as the service describes it.

    - `stream`: the parameter that names the stream.
    """
    shards: list[dict[str, Any]] = []
    progress = ListingProgress("ListShards")
    page = await _first_page(transport, stream)
    while True:
        with reject_malformed("ListShards"):
            progress.check(shard["ShardId"] for shard in page["Shards"])
            shards += page["Shards"]
        token = page.get("NextToken")
        if not token:
            # Shards that wait for each other would never be read, so a circle of parents is an error here.
            with reject_malformed("ListShards"):
                TopologicalSorter({shard["ShardId"]: _parents(shard) for shard in shards}).prepare()
            return shards
        try:
            # The API refuses a call with both a token and a stream.
            page = await transport.call("ListShards", NextToken=token)
        except TransientError as error:
            if error.code != "ExpiredNextTokenException":
                raise
            # A token is valid for 300 s. The listing continues after the last shard that it has shown.
            page = await _first_page(transport, stream, shards[-1]["ShardId"] if shards else None)


async def _first_page(transport: Transport, stream: dict[str, str], after: str | None = None) -> dict[str, Any]:
    start = {"ExclusiveStartShardId": after} if after else {}
    return await transport.call("ListShards", **stream, **start)


def _parents(shard: dict[str, Any]) -> list[str]:
    return [shard[name] for name in ("ParentShardId", "AdjacentParentShardId") if shard.get(name)]


def parse_shard(described: dict[str, Any], stream: str, stream_arn: str | None) -> Shard:
    """Return the Shard for the service's description of it. The shard is closed if it has an ending sequence number.

    Raises: KeyError, TypeError or ValueError if the description is not as documented.
    """
    keys = described["HashKeyRange"]
    named = (described.get("ParentShardId"), described.get("AdjacentParentShardId"))
    parents = tuple(parent for parent in named if parent)
    check_shard_ids(described["ShardId"], *parents)
    if described["ShardId"] in parents:  # The shard would wait for itself.
        raise ValueError(f"{described['ShardId']} is its own parent")
    numbers = described.get("SequenceNumberRange", {})
    first = str(numbers.get("StartingSequenceNumber", ""))
    return Shard(
        stream=stream,
        shard_id=described["ShardId"],
        parents=parents,
        hash_range=HashRange.parse(keys["StartingHashKey"], keys["EndingHashKey"]),
        closed="EndingSequenceNumber" in numbers,
        stream_arn=stream_arn,
        starting_sequence_number=first if first.isdecimal() and len(first) <= MOST_DIGITS else None,
    )


async def list_all_streams(transport: Transport) -> list[str]:
    """Return the names of all streams."""
    with reject_malformed("ListStreams"):
        return [name async for page in list_stream_pages(transport) for name in page["StreamNames"]]


async def list_stream_pages(transport: Transport) -> AsyncIterator[dict[str, Any]]:
    """Yield every page of ListStreams."""
    progress = ListingProgress("ListStreams")
    page = await transport.call("ListStreams")
    while True:
        yield page
        found = page["StreamNames"]
        progress.check(found)
        if not found or not page.get("HasMoreStreams"):
            return
        page = await transport.call("ListStreams", ExclusiveStartStreamName=found[-1])


class ListingProgress:
    """Makes it an error if the pages of a listing never end. It keeps the names that the listing has returned so far."""

    def __init__(self, api: str) -> None:
        self._api = api
        self._listed: set[str] = set()
        self._pages_without_news = 0

    def check(self, page: Iterable[str]) -> None:
        """Add the names of a page. Raises: TransientError if too many pages in a row had no new names, or if there are too many names."""
        known = len(self._listed)
        self._listed.update(page)
        self._pages_without_news = 0 if len(self._listed) > known else self._pages_without_news + 1
        if self._pages_without_news >= MAX_PAGES_WITHOUT_NEWS or known > MAX_LISTED:
            raise TransientError(
                self._api,
                "MalformedResponse",
                f"the listing does not end: after {known} names it returned only pages without new names, or it "
                "has more names than there can be",
            )


def parse_server_time_ms(response: dict[str, Any]) -> int:
    """Return the time of the service's clock when it sent the response (epoch ms), cut to whole seconds.

    Raises: FatalKinesisError if the response has no valid Date header.
    """
    from email.utils import parsedate_to_datetime  # Imported here because it is slow, and not needed by tasks of Spark.

    date = response["ResponseMetadata"]["HTTPHeaders"].get("date", "")
    try:
        return int(parsedate_to_datetime(date).timestamp()) * 1000
    except ValueError as error:
        raise FatalKinesisError(
            "ListShards",
            "NoDate",
            f"the service's time cannot be found, because the response's Date header is {date!r}. Set a start "
            "timestamp",
        ) from error


def server_time_ms_or_none(response: dict[str, Any]) -> int | None:
    """Return the time of the service's clock when it sent the response (epoch ms, cut to whole seconds).

    Return None if the response has no valid Date header.
    """
    try:
        return parse_server_time_ms(response)
    except (FatalKinesisError, KeyError):
        return None


# --- transports ---------------------------------------------------------------------------------------------------------------------


class StreamTransports:
    """Makes and keeps a transport for each region and role. Most jobs have only one.

    A stream that is given by name belongs to the job's region. A stream that is given by ARN belongs to the region of the ARN, unless
    `aws.endpoint` sends all calls to one place. The constructor checks the properties without a call.

    Raises: ConfigurationError if a property is invalid.
    """

    def __init__(self, properties: Properties, streams: Iterable[str] = ()) -> None:
        streams = tuple(streams)
        self._properties = properties
        # The home of streams that are given by name is the job's region, because a name says neither a region nor an account.
        region, self._source = region_and_source(properties, streams)
        self._home = RegionAndRole(region, None)
        self._roles = properties.with_prefix(STREAM_ROLE_ARN)
        self._check_roles(streams)
        self._destinations: dict[str | None, RegionAndRole] = {}
        self._transports: dict[RegionAndRole, Transport] = {}
        for stream in streams or [""]:
            self.for_stream(arn_of(stream))

    def for_stream(self, arn: str | None) -> Transport:
        """Return the transport for the stream with this ARN. If `arn` is None, return the transport for streams that are given by name.

        Raises: ConfigurationError if the ARN, or a property of its region, is invalid.
        """
        destination = self._destinations.get(arn)
        if destination is None:
            destination = self._destinations[arn] = self._home if arn is None else self._destination_of(arn)
        if destination not in self._transports:
            self._transports[destination] = _transport_to(destination, self._properties)
        return self._transports[destination]

    def place_of(self, arn: str | None) -> str:
        """Return words for an error message on where a stream is looked for: the region, and the account if `arn` is given.

        - `arn`: the stream's ARN, or None for a stream that is given by name.
        """
        region = (self._home if arn is None else self._destination_of(arn)).region
        if arn is None or region != region_of_arn(arn):
            endpoint = own_endpoint(self._properties, region)
            return f"{region} ({self._source})" + (f" at {endpoint}" if endpoint else "")
        return f"{region}, account {account_of_arn(arn)} (from its ARN)"

    async def close(self) -> None:
        """Close every transport. Open subscriptions end."""
        async with AsyncExitStack() as closing:
            for transport in self._transports.values():
                closing.push_async_callback(transport.close)

    def _destination_of(self, arn: str) -> RegionAndRole:
        region, name, account = region_of_arn(arn), stream_name(arn).lower(), account_of_arn(arn)
        has_own_endpoint = region in self._properties.with_prefix(REGION_ENDPOINT)
        # A single endpoint, such as a test server, serves the streams of all regions.
        if self._properties.is_set(ENDPOINT) and not has_own_endpoint:
            region = self._home.region
        return RegionAndRole(region, self._roles.get(name) or self._roles.get(account))

    def _check_roles(self, streams: Iterable[str]) -> None:
        by_name = {stream_name(stream).lower() for stream in streams if arn_of(stream) is None}
        for name in by_name & self._roles.keys():
            key = STREAM_ROLE_ARN.key + name
            reason = (
                f"a role needs the account of its stream, and {name} is given by its name. Give the stream by its ARN"
            )
            raise ConfigurationError(key, self._roles[name], reason=reason)


class RegionAndRole(NamedTuple):
    """Where calls about a stream go, and who signs them. If `role` is None, the provider's own credentials sign them."""

    region: str
    role: str | None


def _transport_to(destination: RegionAndRole, properties: Properties) -> Transport:
    """Return a DirectTransport if the properties allow calls without the SDK, else the SDK's transport."""

    def with_sdk() -> Transport:
        from .sdk.transport import SdkTransport

        return SdkTransport(properties, region=destination.region, role=destination.role)

    access = access_without_sdk(properties, destination.region, destination.role)
    return with_sdk() if access is None else DirectTransport(access, properties, with_sdk)


class OneTransport:
    """Uses one given transport for every stream, as tests do."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    def for_stream(self, arn: str | None) -> Transport:
        """Return the transport. It is the same for any ARN."""
        return self._transport

    def place_of(self, arn: str | None) -> str:
        """Return "", because it is not known where the transport leads."""
        return ""

    async def close(self) -> None:
        """Close the transport."""
        await self._transport.close()
