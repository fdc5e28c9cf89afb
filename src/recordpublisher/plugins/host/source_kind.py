"""reads_a_queue: whether a job reads a queue, for commands that look at jobs."""

from recordpublisher.publishers.errors import RecordPublisherError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.queue.queue_source import QueueSource


def reads_a_queue(properties: Properties) -> bool:
    """Whether the job reads a queue; False where its publisher is not installed, of which somebody else tells."""
    from .build_from_properties import source_class
    from .manager import load_registry  # with pluggy, which most commands do without

    registry = load_registry()
    try:
        return issubclass(source_class(registry, properties), QueueSource)
    except RecordPublisherError:
        return False
