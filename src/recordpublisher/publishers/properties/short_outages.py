"""`with_short_outages` limits how long a read is retried while a person waits for it."""

from .max_outage import MAX_OUTAGE
from .properties import Properties

SHORT_OUTAGE_MS = 30_000


def with_short_outages(properties: Properties) -> Properties:
    """Return the properties of a read with an end, or of a command: it retries for 30 s, unless the properties say how long."""
    return properties if properties.is_set(MAX_OUTAGE) else properties.merged({MAX_OUTAGE.key: SHORT_OUTAGE_MS})
