"""Reads information about the streams of a job: shards, server time, retention and shard tips.

A publisher with a source of its own lists its shards itself. For all other publishers Kinesis is called.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar, runtime_checkable

from recordpublisher.publishers import kinesis
from recordpublisher.publishers.base import RecordPublisherFactory, own_shards, with_unlisted
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import (
    FatalKinesisError,
    RecordPublisherError,
    ResourceNotFoundError,
    RetriesExhaustedError,
    TransientError,
)
from recordpublisher.publishers.log_fields import about
from recordpublisher.publishers.polling.shard_probe import TipDistance, measure_tip_distance, read_oldest_record
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.groups.reading import ENDPOINT, LIST_SHARDS_RETRIES
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.retry import FEW_RETRIES, call_with_retries
from recordpublisher.publishers.shards import OldestRecord, Shard, first_unlisted_range
from recordpublisher.publishers.stream_arns import arn_of

log = logging.getLogger("recordpublisher.discovery")
T = TypeVar("T")
COMPLETE_LISTING_TRIES = 5
"""How often a first listing that lacks open shards is repeated, about once a second. ListShards becomes consistent within seconds."""
UNREACHABLE = "EndpointConnectionError"


@runtime_checkable
class ClientProvider(Protocol):
    """A publisher factory whose Kinesis client other parts of the job may use. The factory owns and closes it."""

    def shared_client(self, streams: Sequence[str]) -> kinesis.KinesisClient | None:
        """Return the client, or None if the factory does not use Kinesis.

        The client is created at the first call, for these streams (names or ARNs).
        """


class StreamLister:
    """The job's `ShardLister`.

    It uses the client of the publisher's factory, because a second client costs 10 MB, 0.1 s and a request for credentials. If there is no
    such client, it owns one: the argument `client`, or a client that it opens at the first call.
    """

    def __init__(
        self,
        factory: RecordPublisherFactory,
        properties: Properties,
        names: Mapping[str, str],
        clock: Clock,
        client: kinesis.KinesisClient | None = None,
    ) -> None:
        self._factory = factory
        self._properties = properties
        self._names = names
        self._policy = LIST_SHARDS_RETRIES.policy(properties)
        self._first_policy = replace(self._policy, max_retries=min(self._policy.max_retries, FEW_RETRIES))
        self._has_succeeded = False
        self._clock = clock
        self._client = client
        self._is_own: dict[str, bool] = {}
        self._without_retention: set[str] = set()
        self._completely_listed: set[str] = set()

    async def list_shards(self, stream: str, after: str | None = None) -> list[Shard]:
        """Return every shard of the stream, with those that only the publisher still has.

        Raises: StreamNotFoundError if there is no such stream; KinesisError if the call fails.
        """
        listed = await self._list(stream, after)
        return listed if after is not None else await with_unlisted(self._factory, stream, listed)

    async def _list(self, stream: str, after: str | None) -> list[Shard]:
        own = await own_shards(self._factory, stream, after)
        self._is_own[stream] = own is not None
        if own is not None:
            return own
        client = self._kinesis_client()
        listed = await self._call(lambda: client.list_shards(self._names[stream], after))
        if after is None and stream not in self._completely_listed:
            listed = await self._until_complete(stream, listed)
            self._completely_listed.add(stream)
        return listed

    async def _until_complete(self, stream: str, listed: list[Shard]) -> list[Shard]:
        """List again while open shards are missing. A shard that is found later would be read from its beginning, or not at all (S3)."""
        client = self._kinesis_client()
        for _ in range(COMPLETE_LISTING_TRIES):
            if (unlisted := first_unlisted_range(listed)) is None:
                return listed
            log.info("the listing of %s lacks the shard of hash key %d: listing again", stream, unlisted.start)
            await asyncio.sleep(random.uniform(0.5, 1.5))  # noqa: S311 (jitter)
            listed = await self._call(lambda: client.list_shards(self._names[stream], None))
        if not listed:  # A run to the tip would end without reading anything.
            raise RetriesExhaustedError(
                f"ListShards names no shard of {stream}, {COMPLETE_LISTING_TRIES + 1} times in a row"
            )
        if (unlisted := first_unlisted_range(listed)) is not None:
            log.warning(
                "the listing of %s still lacks the shard of hash keys %d to %d: its records are read once it is listed",
                stream,
                unlisted.start,
                unlisted.end,
                extra=about(stream),
            )
        return listed

    async def shard_exists(self, shard: Shard) -> bool | None:
        """Return whether Kinesis still has a shard, according to GetShardIterator.

        None if the call fails for another reason, or if the publisher has a source of its own.
        """
        if await self._has_own_source(shard.stream):
            return None
        client, name = self._kinesis_client(), self._names[shard.stream]
        asked = replace(
            shard, stream_arn=arn_of(name) or shard.stream_arn
        )  # A stream of another account is found only by its ARN.
        try:
            await self._call(lambda: client.get_shard_iterator(asked, StartingPosition.trim_horizon()))
        except ResourceNotFoundError:
            return False
        except RecordPublisherError as error:
            log.warning("cannot find out whether %s exists: %s", shard.key, error, extra=about(shard.key))
            return None
        return True

    def is_endless(self, stream: str) -> bool:
        """Return whether the stream always has an open shard, as every Kinesis stream does. Known after its first listing."""
        return self._is_own.get(stream) is False

    async def server_time_ms(self, stream: str) -> int:
        """Return the service's wall clock (epoch ms, P3), or this machine's clock if the publisher has a source of its own."""
        if await self._has_own_source(stream):
            return self._clock.now_ms()
        client = self._kinesis_client()
        return await self._call(lambda: client.server_time_ms(self._names[stream]))

    async def oldest_retained_ms(self, stream: str) -> int | None:
        """Return the arrival time before which the stream has dropped its records (epoch ms), or None if not known (S5).

        Raises: KinesisError if a call fails.
        """
        if await self._has_own_source(stream):
            return await self._factory.oldest_retained_ms(stream)
        retention_ms = await self._fetch_retention_ms(stream)
        return None if retention_ms is None else await self.server_time_ms(stream) - retention_ms

    async def oldest_record(self, shard: Shard) -> OldestRecord | None:
        """Return the oldest record that a shard still has (S5), or None if a publisher with a source of its own does not know.

        Raises: KinesisError if a call fails.
        """
        if await self._has_own_source(shard.stream):
            return await self._factory.oldest_record(shard)
        client = self._kinesis_client()
        return await self._call(lambda: read_oldest_record(client, shard))

    async def retention_ms(self, stream: str) -> int | None:
        """Return the retention period of the stream (ms), or None if it is not known or the call fails (A1)."""
        try:
            return await self._fetch_retention_ms(stream)
        except RecordPublisherError as error:
            log.info("cannot read the retention period of %s: %s", stream, error, extra=about(stream))
            return None

    async def tip(self, shard: Shard, position: StartingPosition) -> TipDistance | None:
        """Return how far a position is from the tip of its shard (A2), or None if the publisher has a source of its own.

        Raises: KinesisError if a call fails.
        """
        if await self._has_own_source(shard.stream):
            return None
        return await measure_tip_distance(self._kinesis_client(), shard, position)

    async def close(self) -> None:
        """Close the client, unless the factory owns it."""
        if self._client is not None:
            await self._client.close()

    async def _has_own_source(self, stream: str) -> bool:
        """Return whether the publisher lists the stream itself. This is determined once for each stream."""
        if stream not in self._is_own:
            self._is_own[stream] = await own_shards(self._factory, stream, None) is not None
        return self._is_own[stream]

    async def _fetch_retention_ms(self, stream: str) -> int | None:
        """Return the retention period (ms). Return None, with one warning, if the credentials do not permit DescribeStreamSummary.

        Readers do not need that permission.
        """
        if await self._has_own_source(stream):
            return None
        client = self._kinesis_client()
        try:
            return await self._call(lambda: client.retention_ms(self._names[stream]))
        except FatalKinesisError as error:
            if stream not in self._without_retention:
                self._without_retention.add(stream)
                log.warning(
                    "the retention of %s is not known; whether records passed it unread is seen from a shard's oldest record only: %s",
                    stream,
                    error,
                    extra=about(stream),
                )
            return None

    async def _call(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call with retries.

        Until the first success a few retries are enough if their number is set, and for an endpoint that DNS does not know, because its
        setting may be wrong.
        """
        policy = self._policy if self._has_succeeded else self._first_policy
        try:
            result = await call_with_retries(call, policy, needs_few=self._may_be_mistyped)
        except RetriesExhaustedError as error:
            if self._has_succeeded or getattr(error.__cause__, "code", None) != UNREACHABLE:
                raise
            raise RetriesExhaustedError(f"{error}; {self._endpoint_in_words()}") from error.__cause__
        self._has_succeeded = True
        return result

    def _endpoint_in_words(self) -> str:
        if (endpoint := self._properties.value(ENDPOINT)) is not None:
            return f"the endpoint is that of the property '{ENDPOINT.key}', {endpoint}"
        region = kinesis.region_of(self._properties, self._names.values())
        return f"the endpoint is that of the region {region}, or of AWS_ENDPOINT_URL or a profile if they name one"

    def _may_be_mistyped(self, error: TransientError) -> bool:
        return not self._has_succeeded and (kinesis.is_host_unknown(error) or kinesis.speaks_no_tls(error))

    def _kinesis_client(self) -> kinesis.KinesisClient:
        streams = list(self._names.values())
        if self._client is None and isinstance(self._factory, ClientProvider):
            shared = self._factory.shared_client(streams)
            if shared is not None:
                return shared
        if self._client is None:
            self._client = kinesis.KinesisClient(self._properties, streams)
        return self._client
