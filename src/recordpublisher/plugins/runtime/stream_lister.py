"""StreamLister: what a job asks of its streams besides records: from the publisher's own source, or from Kinesis when it has none."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar, runtime_checkable

from recordpublisher.publishers.base import RecordPublisherFactory
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import (
    ConfigurationError,
    FatalKinesisError,
    RecordPublisherError,
    RetriesExhaustedError,
    TransientError,
)
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.table import ENDPOINT, LIST_SHARDS_RETRIES, REGION
from recordpublisher.publishers.retry import call_with_retries
from recordpublisher.publishers.shard_tip import TipDistance, measure_tip_distance
from recordpublisher.publishers.shards import Shard

log = logging.getLogger("recordpublisher.discovery")
T = TypeVar("T")
FIRST_RETRIES = 3
UNREACHABLE = "EndpointConnectionError"


def stream_names(streams: str | Sequence[str]) -> dict[str, str]:
    """From each stream's name to what was given, a name or an ARN. Raises: ConfigurationError."""
    given = [streams] if isinstance(streams, str) else list(streams) if isinstance(streams, Iterable) else []
    if not given or not all(isinstance(each, str) and each.strip() for each in given):
        raise ConfigurationError("streams", streams or None, "one or more stream names or ARNs")
    names = {each.strip().rsplit("/", 1)[-1]: each.strip() for each in given}
    if len(names) != len(given):
        raise ConfigurationError("streams", given, "each stream once")
    return names


def _say_so(error: TransientError) -> None:
    log.warning("%s; trying again", error)


@runtime_checkable
class ClientProvider(Protocol):
    """A publisher factory whose client others of the job may use; it stays the factory's, which closes it."""

    def shared_client(self, streams: Sequence[str]) -> KinesisClient | None:
        """The job's one client, made for these streams (names or ARNs) if need be; None where the factory reads by other means."""
        ...


class StreamLister:
    """The job's ShardLister. Lists with the client of the publisher's factory: a second one costs 10 MB and 0.1 s, and asks for credentials
    of its own. Owns one only where there is none to borrow: the given one, or one opened when first needed."""

    def __init__(
        self,
        factory: RecordPublisherFactory,
        properties: Properties,
        names: Mapping[str, str],
        clock: Clock,
        client: KinesisClient | None = None,
    ) -> None:
        self._factory = factory
        self._properties = properties
        self._names = names
        self._policy = LIST_SHARDS_RETRIES.policy(properties)
        self._first_policy = replace(self._policy, max_retries=min(self._policy.max_retries, FIRST_RETRIES))
        self._has_answered = False
        self._clock = clock
        self._client = client
        self._is_own: dict[str, bool] = {}

    async def list_shards(self, stream: str, after: str | None = None) -> list[Shard]:
        """Every shard of the stream. Raises: StreamNotFoundError, KinesisError."""
        own = await self._factory.discover(stream, after)
        self._is_own[stream] = own is not None
        if own is not None:
            return own
        client = self._opened()
        return await self._asked(lambda: client.list_shards(self._names[stream], after))

    async def server_time_ms(self, stream: str) -> int:
        """The service's wall clock, epoch ms (P3); this machine's where the publisher has a source of its own."""
        if await self._has_own_source(stream):
            return self._clock.now_ms()
        client = self._opened()
        return await self._asked(lambda: client.server_time_ms(self._names[stream]))

    async def oldest_retained_ms(self, stream: str) -> int | None:
        """The arrival time before which the service has forgotten records, epoch ms; None where nobody says (S5)."""
        try:
            retention_ms = await self._asked_retention_ms(stream)
        except FatalKinesisError as error:
            log.warning("whether the position in %s is past retention is not known: %s", stream, error)
            return None
        return None if retention_ms is None else await self.server_time_ms(stream) - retention_ms

    async def retention_ms(self, stream: str) -> int | None:
        """How long the stream keeps its records; None where nobody says, or not now (A1)."""
        try:
            return await self._asked_retention_ms(stream)
        except RecordPublisherError as error:
            log.info("the retention of %s is not known: %s", stream, error)
            return None

    async def tip(self, shard: Shard, position: StartingPosition) -> TipDistance | None:
        """What lies behind a position of a shard (A2); None where the publisher has a source of its own. Raises: KinesisError."""
        if await self._has_own_source(shard.stream):
            return None
        return await measure_tip_distance(self._opened(), shard, position)

    async def close(self) -> None:
        """Close the client, unless it is the factory's."""
        if self._client is not None:
            await self._client.close()

    async def _has_own_source(self, stream: str) -> bool:
        """Whether the publisher lists the stream by itself; asked once."""
        if stream not in self._is_own:
            self._is_own[stream] = await self._factory.discover(stream, None) is not None
        return self._is_own[stream]

    async def _asked_retention_ms(self, stream: str) -> int | None:
        if await self._has_own_source(stream):
            return None
        client = self._opened()
        return await self._asked(lambda: client.retention_ms(self._names[stream]))

    async def _asked(self, call: Callable[[], Awaitable[T]]) -> T:
        """Retry a call; until the endpoint has answered once, a dead one is a wrong setting and is said so after a few tries."""
        policy = self._policy if self._has_answered else self._first_policy
        try:
            answer = await call_with_retries(call, policy, on_retry=_say_so)
        except RetriesExhaustedError as error:
            if self._has_answered or getattr(error.__cause__, "code", None) != UNREACHABLE:
                raise
            endpoint = self._properties.value(ENDPOINT)
            key = (ENDPOINT if endpoint else REGION).key
            value = endpoint or self._properties.value(REGION)
            raise ConfigurationError(key, value, "one that answers", reason=str(error.__cause__)) from error
        self._has_answered = True
        return answer

    def _opened(self) -> KinesisClient:
        streams = list(self._names.values())
        if self._client is None and isinstance(self._factory, ClientProvider):
            lent = self._factory.shared_client(streams)
            if lent is not None:
                return lent
        if self._client is None:
            self._client = KinesisClient(self._properties, streams)
        return self._client
