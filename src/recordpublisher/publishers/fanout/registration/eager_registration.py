"""register_eagerly: registration at construction, from synchronous code (EAGER, F8)."""

from collections.abc import Iterable

from recordpublisher.publishers import kinesis
from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.kinesis import run_sync
from recordpublisher.publishers.properties.groups.fanout import CONSUMER_ARN
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.stream_arns import arn_of, stream_name

from ..config import FanOutConfig, RegistrationType
from ..publisher import FanOutService
from .consumer_registrar import ConsumerRefCounts, ConsumerRegistrar


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
