"""Finds out what kind of source a job reads, for commands that describe jobs."""

from recordpublisher.publishers.base import RecordPublisherFactory, RecordSource
from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.properties.groups.job import SINK
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.queue.queue_source import QueueSource


def reads_a_queue(properties: Properties) -> bool:
    """Return whether the job reads a queue. False if its publisher is not installed, which other code reports."""
    made = _source_class(properties)
    return made is not None and issubclass(made, QueueSource)


def shards_instead_of_queue(properties: Properties) -> str:
    """Return which values of `flink.stream.recordpublisher` read shards, for a job that reads a queue and a command that needs shards."""
    return "the name of a publisher that reads shards" if _reads_own_queue(properties) else "POLLING or EFO"


def why_kinesis_cannot_be_asked(
    properties: Properties, limit: str = "only streams of Kinesis can be asked for their newest records"
) -> str:
    """Return why Kinesis does not know the streams of the job. Empty if it knows them, or if the publisher is not installed.

    - `limit`: what needs streams of Kinesis, as the end of the reason.
    """
    kind = "lists its streams itself" if lists_its_streams(properties) else ""
    kind = "reads a queue that is not Kinesis's" if _reads_own_queue(properties) else kind
    return f"this publisher {kind}, and {limit}" if kind else ""


def lists_its_streams(properties: Properties) -> bool:
    """Return whether the publisher of the job lists the shards of its streams itself, instead of asking Kinesis.

    False for a queue, and if the publisher is not installed.
    """
    made = _source_class(properties)
    if made is None or not issubclass(made, RecordPublisherFactory):
        return False
    return made.discover is not RecordPublisherFactory.discover


def calls_a_service(properties: Properties) -> bool:
    """Whether the job calls a service that may be away: one that its publisher reads from, or that has its state or output. False for a
    publisher that lists its streams itself and does not tell where it calls, as one of files, with everything else on this machine."""
    from ..stores.by_location import back_end_of

    made = _source_class(properties)
    if not lists_its_streams(properties) or (made is not None and made.endpoint_url is not RecordSource.endpoint_url):
        return True
    if (properties.value(SINK) or "").lower() == "kinesis":
        return True
    return any(back_end_of(value) != "FILE" and not value.startswith("sqlite") for value in properties.values())


def _reads_own_queue(properties: Properties) -> bool:
    made = _source_class(properties)
    if made is None or not issubclass(made, QueueSource):
        return False
    from recordpublisher.publishers.queue.kinesis_queue import KinesisQueue  # brings the AWS SDK

    return not issubclass(made, KinesisQueue)


def _source_class(properties: Properties) -> type[RecordSource] | None:
    from .build_from_properties import source_class
    from .manager import load_registry  # imported here because it loads pluggy, which most commands do not need

    registry = load_registry()
    try:
        return source_class(registry, properties).wrapped(properties)
    except RecordPublisherError:
        return None
