"""PollingRecordPublisherFactory makes the polling publishers of a job over one shared client."""

from __future__ import annotations  # KinesisClient imports the AWS SDK at its first use

import functools
from collections.abc import Mapping, Sequence

from .. import kinesis
from ..aggregation.deaggregation import Deaggregator
from ..aggregation.record_distribution import RecordDistributionChecks
from ..base import RecordPublisherFactory
from ..clock import Clock, SystemClock
from ..positions import PositionType, StartingPosition
from ..properties.groups.reading import DESCRIBE_STREAM_RETRIES
from ..properties.properties import Properties
from ..retry import call_with_retries
from ..shard_metrics import ShardMetrics
from ..shards import Shard
from .config import PollingConfig
from .publisher import CarriedReaderState, PollingRecordPublisher, PollingService


class PollingRecordPublisherFactory(RecordPublisherFactory):
    """Makes polling publishers. Owns one client for all shards, made by `prepare` or with the first publisher.

    A given `service` is used instead of a client, and is not closed. The factory keeps each shard's reader state from
    one publisher to the next, because a Spark worker makes new publishers for every batch.

    Raises: ConfigurationError if a property is invalid.
    """

    def __init__(
        self, properties: Mapping[str, object], *, service: PollingService | None = None, clock: Clock | None = None
    ) -> None:
        self._properties = properties = properties if isinstance(properties, Properties) else Properties(properties)
        self._config = PollingConfig.of(properties)
        self._clock = clock or SystemClock()
        self._distribution_checks = RecordDistributionChecks(DESCRIBE_STREAM_RETRIES.policy(properties), self._clock)
        self._service = service
        self._own_client: kinesis.KinesisClient | None = None
        self._carried_states: dict[str, CarriedReaderState] = {}

    def prepare(self, streams: Sequence[str]) -> None:
        """Make the client for the job's streams (names or ARNs), without a call.

        Raises: ConfigurationError if endpoint, region or credentials are missing or invalid (C2).
        """
        if self._service is None:
            self._own_client = kinesis.KinesisClient(self._properties, streams)

    async def create(
        self, shard: Shard, starting_position: StartingPosition, metrics: ShardMetrics
    ) -> PollingRecordPublisher:
        """Make a publisher of `shard`. No record is read yet."""
        stream = shard.stream_arn or shard.stream
        service = self._service or self._client([stream])
        distribution = self._distribution_checks.of(service, stream)
        deaggregator = Deaggregator(shard, metrics, distribution.foreign_sub_records)
        position = await self._pin_latest(service, stream, starting_position)
        return PollingRecordPublisher(
            service, shard, position, self._config, metrics, self._clock, deaggregator, self._carried_states
        )

    async def close(self) -> None:
        """Close the client that this factory made."""
        client, self._own_client = self._own_client, None
        if client is not None:
            await client.close()

    def shared_client(self, streams: Sequence[str]) -> kinesis.KinesisClient | None:
        """Return the job's client, which also lists its streams (names or ARNs), or None if a service was given. `close` closes it."""
        return None if self._service is not None else self._client(streams)

    def _client(self, streams: Sequence[str]) -> kinesis.KinesisClient:
        if self._own_client is None:
            self._own_client = kinesis.KinesisClient(self._properties, streams)
        return self._own_client

    async def _pin_latest(self, service: PollingService, stream: str, position: StartingPosition) -> StartingPosition:
        """Turn LATEST into a time, because a new iterator at LATEST would skip records.

        A job has done this before. It is needed for callers that use the factory directly.
        """
        if position.type is not PositionType.LATEST:
            return position
        service_time_ms = functools.partial(service.server_time_ms, stream)
        return position.pinned_at(await call_with_retries(service_time_ms, self._config.list_shards))
