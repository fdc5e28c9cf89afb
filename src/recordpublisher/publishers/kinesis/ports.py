"""The ports to the service: Protocols of its calls, with their typed responses. `KinesisClient` implements them."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import msgspec

from ..errors import ResourceInUseError, TransientError
from ..positions import StartingPosition
from ..records import UserRecord
from ..shards import Shard, is_listing_older_than


class ReadResponse(msgspec.Struct, frozen=True):
    """One GetRecords response, or one event of SubscribeToShard.

    - `records`: records of Kinesis. Aggregates are not expanded yet.
    - `next_iterator` (polling), `continuation` (enhanced fan-out): where the next read starts. None at the end of the shard, where
      `child_shards` has the shards that follow.
    - `millis_behind_latest`: how far the read is behind the shard's tip (ms).
    - `wire_bytes`: the size of the body in bytes.
    """

    records: Sequence[UserRecord]
    millis_behind_latest: int | None
    next_iterator: str | None = None
    continuation: str | None = None
    child_shards: tuple[Shard, ...] = ()
    wire_bytes: int = 0


class PollingPort(Protocol):
    """The calls that polling needs. Every method raises the errors of `errors.py` and does not retry."""

    async def get_shard_iterator(self, shard: Shard, position: StartingPosition) -> str:
        """Return a shard iterator, which is valid for five minutes (service limit)."""

    async def get_records(self, shard: Shard, iterator: str, limit: int) -> ReadResponse:
        """Read at most `limit` records (1..10,000) and 10 MiB from `iterator`."""


class Subscription(Protocol):
    """One open SubscribeToShard call: an async iterator of events. Each event is read from the socket only when it is requested."""

    def __aiter__(self) -> AsyncIterator[ReadResponse]:
        """Yield events in order. The iterator ends without an error when the subscription expires.

        Raises: the errors of `errors.py`. An error that the service sends as an event is raised as well.
        """

    async def close(self) -> None:
        """Close the connection; safe to call twice."""


class SubscriptionPort(Protocol):
    """The call that enhanced fan-out needs to read."""

    async def subscribe_to_shard(self, consumer_arn: str, shard: Shard, position: StartingPosition) -> Subscription:
        """Open a subscription.

        Raises: ResourceInUseError if the last subscription of this consumer and shard was opened less than 5 s ago (service limit).
        """


class ConsumerDescription(
    msgspec.Struct, frozen=True, rename={"name": "ConsumerName", "arn": "ConsumerARN", "status": "ConsumerStatus"}
):
    """A registered stream consumer. `status` is CREATING, ACTIVE or DELETING."""

    name: str
    arn: str
    status: str


class RegistrationPort(Protocol):
    """The calls that enhanced fan-out needs to register its consumer. Synchronous code uses them through `run_sync`."""

    async def stream_arn(self, stream: str) -> str:
        """Return the ARN of a stream (DescribeStreamSummary). Raises: StreamNotFoundError if it does not exist."""

    async def describe_consumer(self, stream_arn: str, name: str) -> ConsumerDescription | None:
        """Return the consumer, or None if it does not exist."""

    async def register_consumer(
        self, stream_arn: str, name: str, tags: Mapping[str, str] | None = None
    ) -> ConsumerDescription:
        """Register a consumer.

        Raises: ResourceInUseError if the consumer exists; ThrottledError (LimitExceeded) if the stream has the maximum number of consumers.
        """

    async def deregister_consumer(self, consumer_arn: str) -> None:
        """Deregister a consumer. Raises: ResourceNotFoundError if it does not exist."""


class ListingPort(Protocol):
    """The calls that the discovery of shards needs."""

    async def list_shards(self, stream: str) -> list[Shard]:
        """Return the shards that the service still lists, from all pages."""

    async def server_time_ms(self, stream: str) -> int:
        """Return the time of the service's clock (epoch ms), from the Date header of a response."""


class PutEntry(msgspec.Struct, gc=False, omit_defaults=True, rename="pascal"):
    """One Kinesis record to put, as it is sent. The explicit hash key is a decimal number as text."""

    data: bytes
    partition_key: str
    explicit_hash_key: str | None = None


class PutResult(msgspec.Struct, gc=False, rename="pascal"):
    """The result for one record: the id of the shard that stored it, or an error code and message."""

    shard_id: str | None = None
    error_code: str | None = None
    error_message: str | None = None


class PutRecordsResponse(msgspec.Struct, rename={"failed": "FailedRecordCount", "results": "Records"}):
    """One PutRecords response: how many records failed, and a result for each record, in their order."""

    failed: int = 0
    results: list[PutResult] = []


@dataclass(frozen=True, slots=True)
class StreamSummary:
    """The properties of a stream that a writer must know.

    - `max_record_bytes`: the largest record, in bytes of data and key.
    - `distributes_by_key`: whether the key of a record decides its shard.
    """

    max_record_bytes: int
    distributes_by_key: bool


class RecordDistribution(msgspec.Struct, frozen=True):
    """How a stream distributes its records over its shards, at the time of the response.

    - `by_key`: whether the key of a record decides its shard.
    - `server_ms`: the service's time of the response (epoch ms), or None if it is not known.
    - `is_switchable`: whether the record distribution of the stream can be changed. Only streams in on-demand mode allow that.
    """

    by_key: bool
    server_ms: int | None = None
    is_switchable: bool = False


class WritingPort(Protocol):
    """The calls that a writer needs. Every method raises the errors of `errors.py` and does not retry."""

    async def put_records(self, stream: str, entries: Sequence[PutEntry]) -> PutRecordsResponse:
        """Put 1 to 500 records, at most 10 MiB in total, including keys (service limit). Single records may fail."""

    async def list_shards(self, stream: str) -> list[Shard]:
        """Return the shards that the service still lists, from all pages."""

    async def stream_summary(self, stream: str) -> StreamSummary:
        """Return the largest record and the record distribution of a stream (DescribeStreamSummary)."""

    async def close(self) -> None:
        """Close all connections."""


class Transport(Protocol):
    """Sends the calls of a `KinesisClient`, which owns it. Every method raises the errors of `errors.py` and does not retry.

    A response is a dict as the SDK parses it. Three calls have a special entry, under a key from `codec.py`:

    - GetRecords has a `ReadBody` under `READ`.
    - PutRecords has a `PutRecordsResponse` under `PUT`.
    - SubscribeToShard has an open HTTP response under `RAW_EVENTS`, with `content.readany()`, `close()` and `connection`. The caller pauses
      and resumes reading on `connection`. With HTTP/2 it is None, because the response limits by itself what the server sends.
    """

    async def call(self, api: str, **parameters: Any) -> dict[str, Any]:
        """Make one call with a deadline."""

    async def call_with_body(self, api: str, body: bytes, **parameters: Any) -> dict[str, Any]:
        """Make a call whose body is already encoded. `parameters` name the stream, as in `call`."""

    async def subscribe(self, api: str, **parameters: Any) -> dict[str, Any]:
        """Make one call whose response stays open. The caller sets the deadline."""

    async def close(self) -> None:
        """Close every connection; open subscriptions end."""


async def is_shard_listed(listing: ListingPort, shard: Shard) -> bool:
    """Return whether the stream still lists a shard.

    Raises: TransientError if the listing was made before the shard was created, or if the stream is being created or deleted; the errors of
    `list_shards`.
    """
    try:
        listed = await listing.list_shards(shard.stream_arn or shard.stream)
    except ResourceInUseError as busy:
        raise TransientError(busy.api, busy.code, str(busy)) from busy
    if is_listing_older_than(shard, listed):
        raise TransientError(
            "ListShards",
            "NotListedYet",
            f"{shard.key} is not found, and the listing was made before the shard was created",
        )
    return any(one.shard_id == shard.shard_id for one in listed)


def is_header_text(value: str) -> bool:
    """Return whether `value` can be sent in an HTTP header: it is ASCII without control characters, such as the end of a line."""
    return value.isascii() and value.isprintable()


T = TypeVar("T")


def run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine from synchronous code and return its result. An event loop may be running in this thread.

    The coroutine must make its own client (`async with KinesisClient(...)`), because a client belongs to the loop that opened it.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    # A loop cannot run inside another one, so a thread with a loop of its own does the work, and the caller blocks.
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="recordpublisher-sync") as thread:
        return thread.submit(asyncio.run, coroutine).result()
