"""ManagementClient: the calls that people and tools make to list, describe, create and reshard streams. A job needs none of them."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import msgspec

from ..clock import Clock
from ..errors import FatalKinesisError, RecordPublisherError
from ..retry import RetryPolicy, call_with_retries
from ..shards import Shard
from .client import KinesisClient, ListingProgress, largest_record_bytes, list_stream_pages, require_text
from .error_mapping import reject_malformed
from .ports import ConsumerDescription

ACTIVE_TIMEOUT_SECONDS = 600.0
"""How long to wait until a stream is ACTIVE (seconds). A new stream takes about ten seconds, a split or merge about thirty."""


class ManagementClient(KinesisClient):
    """A KinesisClient with additional calls for commands: list and create streams, split and merge shards. These calls are not retried."""

    async def listed_streams(self) -> list[ListedStream]:
        """Return all streams of the account in this region."""
        with reject_malformed("ListStreams"):
            return [
                ListedStream.parse(each)
                async for page in list_stream_pages(self._transports.for_stream(None))
                for each in page["StreamSummaries"]
            ]

    async def describe(self, stream: str) -> StreamDescription:
        """Return a stream with its settings, consumers and shards. Raises: StreamNotFoundError if it does not exist."""
        described = await self.describe_settings(stream)
        consumers = await self.list_consumers(described.stream.arn)
        return replace(described, consumers=tuple(consumers), shards=tuple(await self.list_shards(stream)))

    async def describe_settings(self, stream: str) -> StreamDescription:
        """Return a stream with its settings, but without consumers and shards. Raises: StreamNotFoundError if it does not exist."""
        with reject_malformed("DescribeStreamSummary"):
            return StreamDescription.parse(await self._describe_stream(stream))

    async def list_consumers(self, stream_arn: str) -> list[ConsumerDescription]:
        """Return the registered consumers of a stream."""
        consumers: list[ConsumerDescription] = []
        token: dict[str, str] = {}
        progress = ListingProgress("ListStreamConsumers")
        while True:
            page = await self._call("ListStreamConsumers", StreamARN=stream_arn, **token)
            with reject_malformed("ListStreamConsumers"):
                progress.check(consumer["ConsumerName"] for consumer in page["Consumers"])
                consumers += msgspec.convert(page["Consumers"], list[ConsumerDescription])
            if not page.get("NextToken"):
                return consumers
            token = {"NextToken": page["NextToken"]}

    async def create_stream(self, name: str, shards: int | None, max_record_kib: int | None = None) -> None:
        """Create a stream with this many shards, or in on-demand mode if `shards` is None. It is CREATING for some seconds.

        `max_record_kib`: the largest record that the stream accepts (KiB). If it is None, that is 1 MiB, the service's default.
        """
        mode = {"StreamMode": "ON_DEMAND" if shards is None else "PROVISIONED"}
        count = {} if shards is None else {"ShardCount": shards}
        largest = {} if max_record_kib is None else {"MaxRecordSizeInKiB": max_record_kib}
        await self._call("CreateStream", StreamName=name, StreamModeDetails=mode, **count, **largest)

    async def delete_stream(self, stream_arn: str) -> None:
        """Delete a stream with all its records. It is DELETING for some seconds.

        Raises: ResourceInUseError if it still has consumers.
        """
        await self._call("DeleteStream", StreamARN=stream_arn)

    async def split_shard(self, shard: Shard, hash_key: int) -> None:
        """Split a shard in two. The second child begins at `hash_key`. The stream is UPDATING for some seconds."""
        await self._call(
            "SplitShard", **self._parameter_of(shard), ShardToSplit=shard.shard_id, NewStartingHashKey=str(hash_key)
        )

    async def merge_shards(self, shard: Shard, adjacent: Shard) -> None:
        """Merge `shard` with the shard `adjacent`, whose hash range follows. The stream is UPDATING for some seconds."""
        await self._call(
            "MergeShards",
            **self._parameter_of(shard),
            ShardToMerge=shard.shard_id,
            AdjacentShardToMerge=adjacent.shard_id,
        )

    async def dry_run(self, api: str, **parameters: Any) -> None:
        """Check whether the call `api` would succeed, without carrying it out. Only some calls support this.

        Raises: the error that the call would raise; KinesisError with the code `DryRunIgnored` if the endpoint has carried the call out.
        """
        transport = self._transport_for(**parameters)
        call = transport.subscribe if api == "SubscribeToShard" else transport.call
        try:
            await call(api, **parameters, DryRun=True)
        except FatalKinesisError as error:
            if error.code != "DryRunOperationException":
                raise
            return
        raise FatalKinesisError(
            api, "DryRunIgnored", "the endpoint ignored the parameter DryRun, and carried the call out"
        )

    async def wait_until_active(self, stream: str, retries: RetryPolicy, clock: Clock) -> None:
        """Wait until the stream is ACTIVE. The pauses between two checks are those of `retries`. Raises: RecordPublisherError after ten
        minutes.
        """
        deadline = clock.monotonic() + ACTIVE_TIMEOUT_SECONDS
        for attempt in itertools.count():
            summary = await call_with_retries(lambda: self._describe_stream(stream), retries)
            if summary.get("StreamStatus") == "ACTIVE":
                return
            if clock.monotonic() > deadline:
                raise RecordPublisherError(
                    f"stream {stream} is {summary.get('StreamStatus')}, not ACTIVE, after {ACTIVE_TIMEOUT_SECONDS:g} s"
                )
            await asyncio.sleep(retries.delay_seconds(attempt))


@dataclass(frozen=True, slots=True)
class ListedStream:
    """A stream as the service lists it. `mode` is PROVISIONED or ON_DEMAND."""

    name: str
    arn: str
    status: str
    mode: str
    created: datetime

    @classmethod
    def parse(cls, described: dict[str, Any]) -> ListedStream:
        """Parse a stream's description. Raises: KeyError or TypeError if it is not as documented."""
        return cls(
            described["StreamName"],
            require_text(described["StreamARN"]),
            described["StreamStatus"],
            described["StreamModeDetails"]["StreamMode"],
            _as_time(described["StreamCreationTimestamp"]),
        )


def _as_time(given: Any) -> datetime:
    """Return a time as a datetime.

    `given`: a datetime if the SDK has parsed the response, or else epoch seconds.
    """
    return given if isinstance(given, datetime) else datetime.fromtimestamp(given, UTC).astimezone()


@dataclass(frozen=True, slots=True)
class StreamDescription:
    """A stream with its settings, consumers and shards. `encryption_key` is None if the stream is not encrypted at rest."""

    stream: ListedStream
    retention_hours: int
    max_record_bytes: int
    distributes_by_key: bool
    encryption_key: str | None
    consumers: tuple[ConsumerDescription, ...] = ()
    shards: tuple[Shard, ...] = ()
    queues: int = 0

    @property
    def open_shards(self) -> int:
        """Number of shards that accept records."""
        return sum(not shard.closed for shard in self.shards)

    @classmethod
    def parse(cls, summary: dict[str, Any]) -> StreamDescription:
        """Parse the settings of a stream. Raises: KeyError, TypeError or ValueError if `summary` is not as documented."""
        return cls(
            ListedStream.parse(summary),
            int(summary["RetentionPeriodHours"]),
            largest_record_bytes(summary),
            summary.get("RecordDistributionStrategy") != "AUTO",
            summary.get("KeyId") if summary.get("EncryptionType", "NONE") != "NONE" else None,
            queues=int(summary.get("QueueCount") or 0),
        )
