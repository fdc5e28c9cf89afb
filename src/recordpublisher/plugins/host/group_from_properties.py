"""Makes the storage of a group (`flink.job.workers=GROUP`) from properties, and refuses settings that a group does not support."""

import sys
from collections.abc import Sequence

from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.fetcher.elastic.job_storage import JobStorage
from recordpublisher.fetcher.leases.lease_settings import HELD_POLL_SECONDS, LeaseSettings
from recordpublisher.fetcher.leases.position_documents import SHARDS_PER_PART
from recordpublisher.fetcher.sink import CommittingSink, Sink, State, entry_store_of, stores_positions
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.job_properties import JOB_NAME, JOB_WORKERS, LOOKAHEAD, STATE_URI
from recordpublisher.publishers.properties.properties import Properties

from ..stores.back_ends import back_end_of


def group_from_properties(
    properties: Properties,
    sink: Sink | None,
    dead_letters: Sink | None,
    store: ConditionalStore | None,
    restore: Sequence[State],
) -> JobStorage | None:
    """Return the storage of this job's group of workers, or None for a job that runs alone.

    Raises: ConfigurationError if a setting cannot be combined with a group, or if there is no store.
    """
    if properties.value(JOB_WORKERS) != "GROUP":
        return None
    if restore:
        reason = "the store of the group keeps the positions"
        raise ConfigurationError.conflict("restore", f"{JOB_WORKERS.key}=GROUP", reason=reason)
    for writing in (sink, dead_letters):
        _check_sink(writing)
    has_small_values = back_end_of(properties.value(STATE_URI) or "").has_small_values
    settings = LeaseSettings.of(properties, SHARDS_PER_PART if has_small_values else sys.maxsize)
    _check_alignment(properties)
    if (place := store or entry_store_of(sink)) is None:
        raise ConfigurationError(
            STATE_URI.key, None, STATE_URI.valid, reason="a group keeps leases and positions there"
        )
    return JobStorage(place, settings, properties.value(JOB_NAME))


def _check_sink(sink: Sink | None) -> None:
    """Check that a sink that keeps positions is a `CommittingSink`. Only such a sink can refuse the writes of one worker.

    Raises: ConfigurationError if it is not.
    """
    if sink is not None and stores_positions(type(sink)) and not isinstance(sink, CommittingSink):
        reason = f"{type(sink).__name__} keeps positions next to its records, but is not a `CommittingSink`"
        raise ConfigurationError(JOB_WORKERS.key, "GROUP", "ALONE for this sink", reason=reason)


def _check_alignment(properties: Properties) -> None:
    lookahead_ms = properties.value(LOOKAHEAD)
    least_ms = round(3 * HELD_POLL_SECONDS * 1000)
    if lookahead_ms is not None and lookahead_ms < least_ms:
        reason = (
            "a worker learns the global watermark once a second: with a shorter lookahead, the group could "
            "not keep up with a live stream"
        )
        raise ConfigurationError(LOOKAHEAD.key, lookahead_ms, f"at least {least_ms}", reason=reason)
