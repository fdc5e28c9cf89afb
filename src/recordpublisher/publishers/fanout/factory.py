"""FanOutRecordPublisherFactory: makes the fan-out publishers of one job; owns the client and the registered consumers (EAGER: F8)."""

from __future__ import annotations  # the AWS SDK comes with KinesisClient, at its first use

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import ClassVar

from .. import kinesis
from ..aggregation.record_distribution import RecordDistributionChecks
from ..base import RecordPublisherFactory
from ..clock import Clock, SystemClock
from ..errors import ImpossibleStateError
from ..kinesis import run_sync
from ..positions import StartingPosition
from ..properties.groups.access import ENDPOINT
from ..properties.groups.fanout import CONSUMER_ARN
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

    A job that starts with these properties, in this process or another, registers nothing, as in Flink's connector. Properties whose
    registration is not EAGER are returned unchanged. A client made here is closed here; given `ports` stay open.

    Raises: ConfigurationError, StreamNotFoundError, ConsumerError, KinesisError.
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
        # with reference counts of its own: this call uses the consumer no longer than it lasts
        registrar = ConsumerRegistrar(ports, config, clock, ref_counts=ConsumerRefCounts())
        for stream in streams:
            await registrar.ensure(stream_name(stream), arn_of(stream))
    finally:
        if given is None:
            await ports.close()
    names = map(stream_name, streams)
    return {CONSUMER_ARN.key + name: registrar.arn(name) for name in names}


class FanOutRecordPublisherFactory(RecordPublisherFactory):
    """Owns one client for all shards and this subtask's references to the stream consumers.

    `streams` (names or ARNs), given here or to `prepare`, are checked before anything runs. EAGER also registers their consumers then;
    without streams it registers with the first shard, as LAZY does. `ports`, `clock`, `ref_counts` and `draw` are for tests.

    Raises: ConfigurationError; with EAGER and `streams` also StreamNotFoundError, ConsumerError, KinesisError.
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
        """A consumer name or an ARN for each stream (C2). Raises: ConfigurationError."""
        FanOutConfig.of(properties).check_streams(streams)

    def prepare(self, streams: Sequence[str]) -> None:
        """Set the job's streams; EAGER registers their consumers now (F8).

        Raises: ConfigurationError, StreamNotFoundError, ConsumerError, KinesisError.
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

        Raises: StreamNotFoundError, ConsumerError, KinesisError; ConfigurationError when NONE lacks the stream's consumer.
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
        """Deregister no consumer."""
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
        """The job's client, also used to list its streams (names or ARNs). None when ports were given. `close` closes it."""
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
