"""`with_outage_retries`: a job that runs for months outlasts outages of the service that end a script within seconds."""

from recordpublisher.publishers.properties.groups.retries import GETRECORDS_RETRIES, READ_RETRIES
from recordpublisher.publishers.properties.properties import Properties

MAX_RETRIES = 200
MAX_BACKOFF_MS = 10_000
"""With full jitter 200 retries take a quarter of an hour on average."""


def with_outage_retries(properties: Properties) -> Properties:
    """The properties, with more and longer retries of each call that reads and of which no retry property is set.

    The FLIP's defaults give up two seconds after the first failure of GetRecords. That suits Flink, which starts a job again.
    """
    more: dict[str, object] = {}
    for retries in READ_RETRIES:
        own = (retries.max_retries, retries.base, retries.maximum, retries.exponent)
        if not any(properties.is_set(declared) for declared in own):
            more |= {retries.max_retries.key: MAX_RETRIES, retries.maximum.key: MAX_BACKOFF_MS}
    return properties.merged(more)


def outlasted_minutes(properties: Properties) -> float:
    """For how long GetRecords is retried in an outage, on average."""
    return GETRECORDS_RETRIES.policy(properties).longest_seconds(0) / 2 / 60
