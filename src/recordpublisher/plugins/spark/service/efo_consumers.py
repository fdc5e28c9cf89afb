"""Fan-out consumers of Spark jobs: registered by the driver, deregistered by a call of the user."""

from collections.abc import Mapping, Sequence

from recordpublisher.publishers import kinesis
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.fanout.config import FanOutConfig
from recordpublisher.publishers.fanout.factory import register_eagerly
from recordpublisher.publishers.fanout.registration.registration_calls import RegistrationCalls
from recordpublisher.publishers.kinesis import run_sync
from recordpublisher.publishers.properties.groups.fanout import CONSUMER_ARN, CONSUMER_NAME, REGISTRATION
from recordpublisher.publishers.properties.properties import Properties

from ..options.peers.translation import own_options


def registered_consumers(streams: Sequence[str], properties: Properties) -> dict[str, str]:
    """Register the consumers; returns their ARNs by property key. With registration NONE the ARNs are given, and nothing is done.

    Raises: ConfigurationError, StreamNotFoundError, ConsumerError, KinesisError.
    """
    if properties.value(REGISTRATION) == "NONE":
        return {}
    registered = register_eagerly(properties.merged({REGISTRATION.key: "EAGER"}), streams)
    return {CONSUMER_ARN.key + stream: arn for stream, arn in registered.with_prefix(CONSUMER_ARN).items()}


def consumer_properties(options: Mapping[str, object]) -> Properties:
    """Our properties, from a query's options or properties, to deregister its consumer. Raises: ConfigurationError without a name."""
    properties = own_options(Properties(options), has_default=())
    if not properties.is_set(CONSUMER_NAME):
        raise ConfigurationError(CONSUMER_NAME.key, None, "the name of the consumer to deregister")
    return properties


def deregister_consumers(streams: str | Sequence[str], properties: Mapping[str, object]) -> None:
    """Deregister the consumer `flink.stream.efo.consumername` of each stream, after the last run of its job.

    AWS charges for a consumer as long as it is registered, and Spark never tells a source that its query will not run again (F8).
    The options of its query do as properties. A consumer that does not exist is no error.

    Raises: ConfigurationError, StreamNotFoundError, ConsumerError, KinesisError.
    """
    names = [streams] if isinstance(streams, str) else list(streams)
    run_sync(_deregister(names, consumer_properties(properties)))


async def _deregister(streams: list[str], properties: Properties) -> None:
    config = FanOutConfig.of(properties.merged({REGISTRATION.key: "LAZY"}))
    async with kinesis.KinesisClient(properties, streams) as client:
        registration = RegistrationCalls(client, config, SystemClock())
        for stream in streams:
            await registration.deregister(await registration.stream_arn(stream), config.consumer_name or "")


def task_properties(properties: Properties, arns: Mapping[str, str]) -> Properties:
    """The properties of the tasks, which do not register consumers, since the driver did."""
    return properties.merged({**arns, REGISTRATION.key: "NONE"}) if arns else properties
