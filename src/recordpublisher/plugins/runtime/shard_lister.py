"""Lists the shards of a job's streams, and reads what else is known of them: server time, retention and the tips of shards.

A publisher whose source is not Kinesis lists its shards itself (`discover`). For all other publishers Kinesis is called.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Protocol, TypeVar, runtime_checkable

from recordpublisher.publishers import kinesis
from recordpublisher.publishers.base import (
    DELETED_SECONDS,
    RecordPublisherFactory,
    oldest_record_of,
    oldest_retained_of,
    shards_listed_by,
    with_unlisted,
)
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import (
    FatalKinesisError,
    RecordPublisherError,
    ResourceNotFoundError,
    RetriesExhaustedError,
    StreamNotFoundError,
    TransientError,
)
from recordpublisher.publishers.log_fields import log_extra
from recordpublisher.publishers.polling.publisher import TipDistance, measure_tip_distance, read_oldest_record
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import ENDPOINT, LIST_SHARDS_RETRIES
from recordpublisher.publishers.retry import FEW_RETRIES, call_with_retries, duration_words
from recordpublisher.publishers.shards import OldestRecord, Shard, arn_of, first_unlisted_range
from recordpublisher.publishers.user_code import describe_error

CLOCK_OFFSET_MS = 5_000
"""A larger difference between the clocks of this machine and of the service is logged (ms)."""


class ShardLister:
    """Lists the shards of the job's streams: from the publisher if it lists them itself, else from Kinesis.

    It uses the client of the publisher's factory, because a second client costs 10 MB and 0.1 s. If there is none, the lister owns a
    client: the argument `client`, or one that it opens at the first call.
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
        self._missing_since: dict[str, float] = {}
        """Since when (monotonic seconds) `discover` reports a stream as missing that was listed before, by the name of the stream."""
        self._without_retention: set[str] = set()
        self._has_warned_of_clock = False
        self._completely_listed: set[str] = set()

    async def list_shards(self, stream: str) -> list[Shard]:
        """Return every shard of the stream, including shards that only the publisher knows, such as archived ones.

        Raises: StreamNotFoundError if there is no such stream; KinesisError if the call fails.
        """
        return await with_unlisted(self._factory, stream, await self.list_live_shards(stream))

    async def list_live_shards(self, stream: str) -> list[Shard]:
        """Return every shard that the stream itself still has, without archived shards that only the publisher knows.

        Raises: StreamNotFoundError if there is no such stream; KinesisError if the call fails.
        """
        own = await (self._own_shards_again(stream) if self._is_own else shards_listed_by(self._factory, stream))
        self._is_own[stream] = own is not None
        if own is not None:
            return own
        client = self._kinesis_client()
        listed = await self._call(lambda: client.list_shards(self._names[stream]))
        if stream not in self._completely_listed:
            listed = await self._until_complete(stream, listed)
            self._completely_listed.add(stream)
        return listed

    async def _own_shards_again(self, stream: str) -> list[Shard] | None:
        """Call the publisher's `discover` while the job runs. Every error is retried like an error of ListShards.

        StreamNotFoundError is retried too, until the stream counts as deleted. Return None if the publisher does not list the stream.

        Raises: the error of `discover`, when the retries are exhausted.
        """
        foreign: list[Exception] = []

        async def listed() -> list[Shard] | None:
            foreign.clear()
            try:
                found = await shards_listed_by(self._factory, stream)
            except StreamNotFoundError as error:
                self._check_deleted(stream, error)
                raise
            except RecordPublisherError:
                raise
            except Exception as error:
                foreign.append(error)
                raise TransientError(describe_error(error)) from error
            self._missing_since.pop(stream, None)
            return found

        service = f"{type(self._factory).__name__}.discover"
        try:
            return await call_with_retries(listed, self._policy, service=service)
        except RetriesExhaustedError:
            if foreign:
                raise foreign[0] from None
            raise

    def _check_deleted(self, stream: str, error: StreamNotFoundError) -> None:
        """Do nothing if the stream counts as deleted, or was never listed. Raises: TransientError if it may still exist.

        A stream counts as deleted when `discover` has reported for `DELETED_SECONDS` that it does not exist.
        """
        if stream not in self._is_own:
            return
        now = self._clock.monotonic()
        if now - self._missing_since.setdefault(stream, now) < DELETED_SECONDS:
            words = f"{error}; the stream counts as deleted if `discover` reports this for {DELETED_SECONDS:.0f} s"
            raise TransientError(words) from error

    async def _until_complete(self, stream: str, listed: list[Shard]) -> list[Shard]:
        """Return a listing whose open shards cover all hash keys. While `listed` lacks some, list again a few times.

        A shard that is found later would be read from its beginning, or not at all.
        """
        client = self._kinesis_client()
        for _ in range(COMPLETE_LISTING_TRIES):
            if (unlisted := first_unlisted_range(listed)) is None:
                return listed
            log.info("the listing of %s lacks the shard of hash key %d: listing again", stream, unlisted.start)
            await asyncio.sleep(random.uniform(0.5, 1.5))  # noqa: S311 (jitter)
            listed = await self._call(lambda: client.list_shards(self._names[stream]))
        if not listed:  # Otherwise a run to the tip would end without reading anything.
            raise RetriesExhaustedError(
                f"ListShards names no shard of {stream}, {COMPLETE_LISTING_TRIES + 1} times in a row"
            )
        if (unlisted := first_unlisted_range(listed)) is not None:
            log.warning(
                "the listing of %s still lacks the shard of hash keys %d to %d: its records are read once it is listed",
                stream,
                unlisted.start,
                unlisted.end,
                extra=log_extra(stream),
            )
        return listed

    async def shard_exists(self, shard: Shard) -> bool | None:
        """Return whether Kinesis still has a shard, according to GetShardIterator.

        Return None if that call fails for another reason, or if the publisher lists its shards itself.
        """
        if await self._has_own_source(shard.stream):
            return None
        client, name = self._kinesis_client(), self._names[shard.stream]
        # A stream of another account is found only by its ARN.
        asked = replace(shard, stream_arn=arn_of(name) or shard.stream_arn)
        try:
            await self._call(lambda: client.get_shard_iterator(asked, StartingPosition.trim_horizon()))
        except ResourceNotFoundError:
            return False
        except RecordPublisherError as error:
            log.warning(
                "it cannot be found out whether %s still exists, so it counts as existing: %s",
                shard.key,
                error,
                extra=log_extra(shard.key),
            )
            return None
        return True

    def is_endless(self, stream: str) -> bool:
        """Return whether the stream always has an open shard, as every Kinesis stream does. Call it after the stream was listed.

        Then a listing without open shards does not prove that the stream has ended. DynamoDB Streams, for example, may list the last shard
        as closed, and its children only later.
        """
        is_own = self._is_own.get(stream)
        return is_own is False or (is_own is True and self._factory.ends_open_shards)

    async def server_time_ms(self, stream: str) -> int:
        """Return the time of the service's clock (epoch ms), or of this machine's clock if the publisher lists its shards itself."""
        if await self._has_own_source(stream):
            return self._clock.now_ms()
        client = self._kinesis_client()
        return await self._call(lambda: client.server_time_ms(self._names[stream]))

    async def oldest_retained_ms(self, stream: str) -> int | None:
        """Return the arrival time before which the records of the stream have expired (epoch ms), or None if it is not known.

        Raises: KinesisError if a call fails.
        """
        if await self._has_own_source(stream):
            return await oldest_retained_of(self._factory, stream)
        retention_ms = await self._fetch_retention_ms(stream)
        return None if retention_ms is None else await self.server_time_ms(stream) - retention_ms

    async def oldest_record(self, shard: Shard) -> OldestRecord | None:
        """Return the oldest record that a shard still has, or None if the publisher lists its shards itself and does not know the record.

        Raises: KinesisError if a call fails.
        """
        if await self._has_own_source(shard.stream):
            return await oldest_record_of(self._factory, shard)
        client = self._kinesis_client()
        return await self._call(lambda: read_oldest_record(client, shard))

    async def retention_ms(self, stream: str) -> int | None:
        """Return the retention period of the stream (ms), or None if it is not known or the call fails.

        A job calls this at its start and every five minutes, so this machine's clock is compared with the service's here too.
        """
        try:
            found = await self._fetch_retention_ms(stream)
        except RecordPublisherError as error:
            log.info("cannot read the retention period of %s: %s", stream, error, extra=log_extra(stream))
            return None
        await self._compare_clocks(stream)
        return found

    async def _compare_clocks(self, stream: str) -> None:
        """Log one warning if this machine's clock differs from that of the service by more than `CLOCK_OFFSET_MS`."""
        if self._has_warned_of_clock or await self._has_own_source(stream):
            return
        before_ms = self._clock.now_ms()
        # Without retries: the next look comes in five minutes. The response may have no time.
        with suppress(RecordPublisherError):
            service_ms = await self._kinesis_client().server_time_ms(self._names[stream])
            # The call takes a while, and the service's time is cut to whole seconds.
            ahead_ms, behind_ms = before_ms - service_ms - 1000, service_ms - self._clock.now_ms()
            if max(ahead_ms, behind_ms) > CLOCK_OFFSET_MS:
                self._has_warned_of_clock = True
                log.warning(
                    "the clock of this machine is %s %s that of Kinesis, so lags and the ages of records (max_age of MapSink) are too %s "
                    "by as much. Synchronise it, for example with NTP",
                    duration_words(abs(before_ms - service_ms) / 1000),
                    "ahead of" if ahead_ms > behind_ms else "behind",
                    "large" if ahead_ms > behind_ms else "small",
                    extra=log_extra(stream),
                )

    async def tip(self, shard: Shard, position: StartingPosition) -> TipDistance | None:
        """Return how far a position is from the tip of its shard, or None if the publisher lists its shards itself.

        Raises: KinesisError if a call fails.
        """
        if await self._has_own_source(shard.stream):
            return None
        return await measure_tip_distance(self._kinesis_client(), shard, position)

    async def close(self) -> None:
        """Close the client, if the lister owns it."""
        if self._client is not None:
            await self._client.close()

    async def _has_own_source(self, stream: str) -> bool:
        """Return whether the publisher lists the stream itself. This is determined once for each stream."""
        if stream not in self._is_own:
            self._is_own[stream] = await shards_listed_by(self._factory, stream) is not None
        return self._is_own[stream]

    async def _fetch_retention_ms(self, stream: str) -> int | None:
        """Return the retention period (ms), or None if the publisher lists its shards itself.

        Return None, with one warning, if the credentials do not permit DescribeStreamSummary. Readers do not need that permission.
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
                    "the retention of %s is not known (%s). So a loss of unread records is only noticed "
                    "when the oldest record of a shard comes after the position of the job",
                    stream,
                    error,
                    extra=log_extra(stream),
                )
            return None

    async def _call(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call to the service, with retries, and return its result.

        Until a call has succeeded, there are only a few retries if a property limits their number, or if the endpoint may be mistyped (DNS
        does not know it, for example).
        """
        policy = self._policy if self._has_succeeded else self._first_policy
        try:
            result = await call_with_retries(call, policy, needs_few=self._may_be_mistyped)
        except RetriesExhaustedError as error:
            if self._has_succeeded or getattr(error.__cause__, "code", None) != UNREACHABLE:
                raise
            raise RetriesExhaustedError(str(error), self._endpoint_in_words()) from error.__cause__
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


log = logging.getLogger("recordpublisher.discovery")
T = TypeVar("T")
COMPLETE_LISTING_TRIES = 5
"""How often the first listing is repeated while it lacks open shards (about once a second). ListShards is consistent within seconds."""
UNREACHABLE = "EndpointConnectionError"


@runtime_checkable
class ClientProvider(Protocol):
    """A publisher factory that lets other parts of the job use its Kinesis client. The factory closes the client."""

    def shared_client(self, streams: Sequence[str]) -> kinesis.KinesisClient | None:
        """Return the client, or None if the factory does not use Kinesis.

        The client is created at the first call, for these streams (names or ARNs).
        """
