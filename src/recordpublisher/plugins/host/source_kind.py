"""Finds out whether a job reads a queue, for commands that describe jobs."""

from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.queue.queue_source import QueueSource


def reads_a_queue(properties: Properties) -> bool:
    """Return whether the job reads a queue. False if its publisher is not installed, which other code reports."""
    from .build_from_properties import source_class
    from .manager import load_registry  # imported here because it loads pluggy, which most commands do not need

    registry = load_registry()
    try:
        return issubclass(source_class(registry, properties), QueueSource)
    except RecordPublisherError:
        return False
