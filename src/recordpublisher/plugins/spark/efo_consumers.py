"""Registers the fan-out consumers of a Spark job on the driver, and deregisters them when the user asks for it."""

from collections.abc import Mapping, Sequence

from recordpublisher.publishers import kinesis
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import ConfigurationError, RecordPublisherError
from recordpublisher.publishers.kinesis import run_sync
from recordpublisher.publishers.properties.fan_out_properties import CONSUMER_ARN, CONSUMER_NAME, REGISTRATION
from recordpublisher.publishers.properties.properties import Properties

from .options.other_connectors import options_with_our_keys


def register_consumers(streams: Sequence[str], properties: Properties) -> dict[str, str]:
    """Register the fan-out consumers of a job. Return the ARN of each consumer, by the key of the property that takes this ARN.

    If `flink.stream.efo.registration` is NONE, the user has set the ARNs. Then nothing is registered, and the result is empty.

    Raises: ConfigurationError if the consumer's properties are invalid; StreamNotFoundError if a stream does not exist; ConsumerError if a
    consumer cannot be registered; KinesisError if a call fails.
    """
    if properties.value(REGISTRATION) == "NONE":
        return {}
    from recordpublisher.publishers.fanout.publisher import (
        register_eagerly,  # not needed by tasks, nor by queries that poll
    )

    registered = register_eagerly(properties.merged({REGISTRATION.key: "EAGER"}), streams)
    return {CONSUMER_ARN.key + stream: arn for stream, arn in registered.with_prefix(CONSUMER_ARN).items()}


def consumer_properties(options: Mapping[str, object]) -> Properties:
    """Return the options of a query as properties with this library's keys, for deregistering the query's consumer.

    Raises: ConfigurationError if the consumer's name is missing.
    """
    from .options import spark_options  # noqa: F401 - declares the options into which options of other connectors are translated

    properties = options_with_our_keys(Properties(options), has_default=())
    if not properties.is_set(CONSUMER_NAME):
        raise ConfigurationError(CONSUMER_NAME.key, None, "the name of the consumer to deregister")
    return properties


def deregister_consumers(streams: str | Sequence[str], properties: Mapping[str, object]) -> None:
    """Deregister the consumer `flink.stream.efo.consumername` of each stream. Call it after the last run of the job.

    AWS charges for a consumer as long as it is registered, and Spark does not report to a source that its query will not run again. A
    consumer that does not exist is ignored. If the call for one stream fails, the consumers of the other streams are deregistered before
    the error is raised.

    - `properties`: properties that name the consumer. The query's options may be used.

    Raises: ConfigurationError if the consumer's name is missing; StreamNotFoundError if a stream does not exist; ConsumerError if a
    consumer cannot be deregistered; KinesisError if a call fails.
    """
    names = [streams] if isinstance(streams, str) else list(streams)
    run_sync(_deregister(names, consumer_properties(properties)))


async def _deregister(streams: list[str], properties: Properties) -> None:
    from recordpublisher.publishers.fanout.config import FanOutConfig
    from recordpublisher.publishers.fanout.registration import RegistrationCalls

    config = FanOutConfig.of(properties.merged({REGISTRATION.key: "LAZY"}))
    async with kinesis.KinesisClient(properties, streams) as client:
        registration = RegistrationCalls(client, config, SystemClock())
        failed: RecordPublisherError | None = None
        for stream in streams:
            try:
                await registration.deregister(await registration.stream_arn(stream), config.consumer_name or "")
            except (
                RecordPublisherError
            ) as error:  # The consumers of the other streams are billed, so they are deregistered all the same.
                failed = failed or error
        if failed is not None:
            raise failed


def task_properties(properties: Properties, arns: Mapping[str, str]) -> Properties:
    """Return the properties for the tasks of a job. Tasks do not register consumers, because the driver has done so.

    - `arns`: the ARNs of the consumers, by property key. Empty if the job polls.
    """
    return properties.merged({**arns, REGISTRATION.key: "NONE"}) if arns else properties
