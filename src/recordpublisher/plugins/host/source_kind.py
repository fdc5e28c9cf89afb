"""Finds out what kind of source a job reads, for commands that describe jobs."""

from recordpublisher.publishers.base import QueueSource, RecordPublisherFactory, RecordSource
from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.properties.groups.job import SINK
from recordpublisher.publishers.properties.properties import Properties


def reads_a_queue(properties: Properties) -> bool:
    """Return whether the job reads a queue. False if its publisher is not installed, which other code reports."""
    made = _source_class(properties)
    return made is not None and issubclass(made, QueueSource)


def shards_instead_of_queue(properties: Properties) -> str:
    """Return the values of `flink.stream.recordpublisher` that read shards, for a command that needs shards."""
    return "the name of a publisher that reads shards" if _reads_own_queue(properties) else "POLLING or EFO"


def why_kinesis_cannot_be_asked(
    properties: Properties, limit: str = "only streams of Kinesis can be asked for their newest records"
) -> str:
    """Return why Kinesis does not know the streams of the job, or an empty text if it does or if the publisher is not installed.

    - `limit`: the end of the reason, which says what needs streams of Kinesis.
    """
    kind = "lists its streams itself" if lists_its_streams(properties) else ""
    kind = "reads a queue that is not in Kinesis" if _reads_own_queue(properties) else kind
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
    """Return whether the job calls a service that may be unavailable: to read records, or for its state or output.

    False if the publisher lists its streams itself and names no endpoint, as a publisher of files does, and if state and output are on
    this machine.
    """
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
    from recordpublisher.publishers.kinesis_queue import KinesisQueue  # Imported here because it loads the AWS SDK.

    return not issubclass(made, KinesisQueue)


def _source_class(properties: Properties) -> type[RecordSource] | None:
    from .build_from_properties import source_class
    from .manager import load_registry  # Imported here because it loads pluggy, which most commands do not need.

    registry = load_registry()
    try:
        return source_class(registry, properties).wrapped(properties)
    except RecordPublisherError:
        return None
