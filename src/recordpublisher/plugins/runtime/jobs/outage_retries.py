"""`with_outage_retries`: a job that runs for months outlasts outages of the service that end a script within seconds."""

from recordpublisher.fetcher.settings import store_outages
from recordpublisher.plugins.stores.by_location import back_end_of
from recordpublisher.publishers.properties.groups.discovery_and_state import STATE_URI
from recordpublisher.publishers.properties.groups.retries import GETRECORDS_RETRIES, READ_RETRIES, SQL_RETRIES
from recordpublisher.publishers.properties.groups.sinks import SQL_URI
from recordpublisher.publishers.properties.properties import Properties

MAX_RETRIES = 200
MAX_BACKOFF_MS = 10_000
"""With full jitter 200 retries take a quarter of an hour on average."""


def with_outage_retries(properties: Properties) -> Properties:
    """The properties, with more and longer retries of each call that reads, and of transactions, where no retry property is set.

    The FLIP's defaults give up two seconds after the first failure of GetRecords. That suits Flink, which starts a job again.
    """
    more: dict[str, object] = {}
    for retries in (*READ_RETRIES, SQL_RETRIES):
        own = (retries.max_retries, retries.base, retries.maximum, retries.exponent)
        if not any(properties.is_set(declared) for declared in own):
            more |= {retries.max_retries.key: MAX_RETRIES, retries.maximum.key: MAX_BACKOFF_MS}
    return properties.merged(more)


def outlasted_minutes(properties: Properties) -> dict[str, float]:
    """For how long GetRecords, a state store, and a transaction if the job uses a database, are retried in an outage, on average."""
    store = back_end_of(properties.value(STATE_URI) or "")
    retried = {"service": GETRECORDS_RETRIES.policy(properties)}
    if store not in ("FILE", "SQL"):
        retried["state store"] = store_outages(properties)
    if properties.is_set(SQL_URI) or store == "SQL":
        retried["database"] = SQL_RETRIES.policy(properties)
    return {what: policy.average_seconds / 60 for what, policy in retried.items()}
