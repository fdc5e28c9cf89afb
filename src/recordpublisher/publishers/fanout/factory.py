"""FanOutRecordPublisherFactory makes the fan-out publishers of one job. It owns the client and the registered consumers (EAGER: F8)."""

from __future__ import annotations  # KinesisClient imports the AWS SDK at its first use

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar

from .. import kinesis
from ..aggregation.deaggregation import RecordDistributionChecks
from ..base import RecordPublisherFactory
from ..clock import Clock, SystemClock
from ..errors import ImpossibleStateError
from ..kinesis import run_sync
from ..positions import StartingPosition
from ..properties.groups.reading import CONSUMER_ARN, ENDPOINT
from ..properties.properties import Properties
from ..shard_metrics import ShardMetrics
from ..shards import Shard
from ..stream_arns import arn_of, stream_name
from .config import FanOutConfig, RegistrationType
from .publisher import FanOutRecordPublisher, FanOutService
from .registration.consumer_registrar import PROCESS_REF_COUNTS, ConsumerRefCounts, ConsumerRegistrar


def register_eagerly(
    properties: Properties, streams: Iterable[str], *, ports: FanOutService | None = None, clock: Clock | None = None
) -> Properties:
    """Register the consumer of each stream (names or ARNs) now. Return the properties with the consumers' ARNs added.

    A job that starts with these properties, in this process or another, registers nothing, as in Flink's connector.
    Properties whose registration is not EAGER are returned unchanged. A client that is made here is closed here; given
    `ports` stay open.

    Raises: ConfigurationError if a property is invalid, StreamNotFoundError if a stream does not exist, ConsumerError
    if a consumer cannot be registered, KinesisError if a call fails.
    """
    config = FanOutConfig.of(properties)
    if config.registration is not RegistrationType.EAGER:
        return properties
    return properties.merged(run_sync(_registered(properties, config, tuple(streams), ports, clock or SystemClock())))


async def _registered(
    properties: Properties, config: FanOutConfig, streams: tuple[str, ...], given: FanOutService | None, clock: Clock
) -> dict[str, str]:
    ports = given or kinesis.KinesisClient(properties, streams)
    try:
        # The reference counts are of its own, because this call does not use the consumer after it has returned.
        registrar = ConsumerRegistrar(ports, config, clock, ref_counts=ConsumerRefCounts())
        for stream in streams:
            await registrar.ensure(stream_name(stream), arn_of(stream))
    finally:
        if given is None:
            await ports.close()
    names = map(stream_name, streams)
    return {CONSUMER_ARN.key + name: registrar.arn(name) for name in names}


class FanOutRecordPublisherFactory(RecordPublisherFactory):
    """Makes the fan-out publishers of one subtask. Owns one client for all shards, and the subtask's references to the stream consumers.

    - `streams`: names or ARNs. They are checked at once, whether given here or to `prepare`. With EAGER their consumers
      are also registered then. Without streams, EAGER registers a consumer with the first shard, as LAZY does.
    - `ports`, `clock`, `ref_counts`, `draw`: replaced in tests.

    Raises: ConfigurationError if a property is invalid; with EAGER and `streams` the errors of `register_eagerly`.
    """

    resumes_by_continuation: ClassVar[bool] = True

    def __init__(
        self,
        properties: Mapping[str, object],
        streams: Iterable[str] = (),
        *,
        ports: FanOutService | None = None,
        clock: Clock | None = None,
        ref_counts: ConsumerRefCounts = PROCESS_REF_COUNTS,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._properties = Properties(properties)
        self._config = FanOutConfig.of(self._properties)
        self._streams: tuple[str, ...] = ()
        self._ports = ports
        self._clock = clock or SystemClock()
        self._distribution_checks = RecordDistributionChecks(self._config.retries.describe_stream, self._clock)
        self._ref_counts = ref_counts
        self._draw = draw
        self._own_client: kinesis.KinesisClient | None = None
        self._registrar: ConsumerRegistrar | None = None
        self._is_closed = False
        self.prepare(tuple(streams))

    @classmethod
    def check(cls, properties: Properties, streams: Sequence[str]) -> None:
        """Check that the properties give a consumer name, or an ARN for each stream (C2). Raises: ConfigurationError if one is missing."""
        FanOutConfig.of(properties).check_streams(streams)

    def prepare(self, streams: Sequence[str]) -> None:
        """Set the job's streams; EAGER registers their consumers now (F8).

        Raises: ConfigurationError if a consumer's ARN is missing; with EAGER the errors of `register_eagerly`.
        """
        self._config.check_streams(streams)
        if streams:
            self._streams = tuple(streams)
            self._properties = register_eagerly(self._properties, self._streams, ports=self._ports)
            self._config = FanOutConfig.of(self._properties)

    async def create(
        self, shard: Shard, starting_position: StartingPosition, metrics: ShardMetrics
    ) -> FanOutRecordPublisher:
        """Make a publisher of `shard`, once its consumer is ACTIVE.

        Raises: StreamNotFoundError if the stream does not exist, ConsumerError if the consumer cannot be registered,
        KinesisError if a call fails, ConfigurationError if the registration is NONE and no consumer of the stream is
        set.
        """
        if self._is_closed:
            raise ImpossibleStateError("create was called on a closed fan-out factory")
        ports = self._ports or self._client([shard.stream_arn or shard.stream])
        registrar = self._shared_registrar(ports)
        await registrar.ensure(shard.stream, shard.stream_arn)
        distribution = self._distribution_checks.of(ports, shard.stream_arn or shard.stream)
        return FanOutRecordPublisher(
            shard, starting_position, metrics, self._config, ports, registrar, self._clock, distribution, self._draw
        )

    async def release(self, stream: str) -> None:
        """Deregister the stream's consumer, unless another subtask of this process uses it (F8)."""
        if self._registrar is not None:
            await self._registrar.release(stream)

    def keep_shared(self) -> None:
        """Keep the consumers registered at `close`."""
        if self._registrar is not None:
            self._registrar.keep_registered()

    async def close(self) -> None:
        """Deregister the consumers that no other subtask uses (F8), then close the client."""
        self._is_closed = True
        try:
            if self._registrar is not None:
                await self._registrar.close()
        finally:
            used = self._ports or self._own_client
            if used is not None:
                await used.close()

    def shared_client(self, streams: Sequence[str]) -> kinesis.KinesisClient | None:
        """Return the job's client, which also lists its streams (names or ARNs), or None if ports were given. `close` closes it."""
        return None if self._ports is not None else self._client(streams)

    def _client(self, streams: Sequence[str]) -> kinesis.KinesisClient:
        if self._own_client is None:
            self._own_client = kinesis.KinesisClient(self._properties, self._streams or streams)
        return self._own_client

    def _shared_registrar(self, ports: FanOutService) -> ConsumerRegistrar:
        if self._registrar is None:
            endpoint = self._properties.value(ENDPOINT) or ""
            self._registrar = ConsumerRegistrar(
                ports, self._config, self._clock, endpoint, self._ref_counts, self._draw
            )
        return self._registrar
