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


def _source_class(properties: Properties) -> type[RecordSource] | None:
    from .build_from_properties import source_class
    from .manager import load_registry  # imported here because it loads pluggy, which most commands do not need

    registry = load_registry()
    try:
        return source_class(registry, properties)
    except RecordPublisherError:
        return None
