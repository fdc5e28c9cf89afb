"""Checks that `flink.shard.assignment=ELASTIC` is not combined with settings that it does not support (C2)."""

import sys
from collections.abc import Sequence

from recordpublisher.fetcher.committing_sink import CommittingSink, stores_positions
from recordpublisher.fetcher.conditional_store import ConditionalStore
from recordpublisher.fetcher.elastic.group_place import ElasticGroup
from recordpublisher.fetcher.leases.documents.position_part import SHARDS_PER_PART
from recordpublisher.fetcher.leases.lease_settings import HELD_SECONDS, LeaseSettings
from recordpublisher.fetcher.sink import Sink, State
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.groups.job import (
    JOB_NAME,
    JOB_WORKERS,
    LOOKAHEAD,
    SHARD_ASSIGNMENT,
    STATE_URI,
    TRACKER,
)
from recordpublisher.publishers.properties.properties import Properties

from ..stores.by_location import back_end_of


def elastic_group_of(
    properties: Properties,
    sink: Sink | None,
    dead_letters: Sink | None,
    store: ConditionalStore | None,
    restore: Sequence[State],
    parallelism: int,
) -> ElasticGroup | None:
    """Return the group of this process in a store, or None with STATIC assignment.

    Raises: ConfigurationError if a setting cannot be combined with ELASTIC, or if there is no store.
    """
    if properties.value(SHARD_ASSIGNMENT) != "ELASTIC" and properties.value(JOB_WORKERS) != "GROUP":
        return None
    if parallelism != 1:
        reason = "with ELASTIC assignment, processes are started one by one and share the shards"
        raise ConfigurationError("parallelism", parallelism, "1", reason=reason)
    if restore:
        reason = "with ELASTIC assignment the positions are in the store of the group"
        raise ConfigurationError("restore", "an argument", "not given", reason=reason)
    for writing in (sink, dead_letters):
        _check_sink(writing)
    is_dynamodb = back_end_of(properties.value(STATE_URI) or "") == "DYNAMODB"
    settings = LeaseSettings.of(properties, SHARDS_PER_PART if is_dynamodb else sys.maxsize)
    _check_alignment(properties)
    if store is None:
        raise ConfigurationError(
            STATE_URI.key, None, STATE_URI.valid, reason="ELASTIC keeps leases and positions there"
        )
    return ElasticGroup(store, settings, properties.value(JOB_NAME))


def _check_sink(sink: Sink | None) -> None:
    """Check that a sink that keeps positions can be fenced for each worker (E1). Raises: ConfigurationError if it cannot."""
    if sink is not None and stores_positions(type(sink)) and not isinstance(sink, CommittingSink):
        reason = f"{type(sink).__name__} keeps positions with what it writes, and is no `CommittingSink`"
        raise ConfigurationError(SHARD_ASSIGNMENT.key, "ELASTIC", "STATIC for this sink", reason=reason)


def _check_alignment(properties: Properties) -> None:
    tracker, lookahead_ms = properties.value(TRACKER), properties.value(LOOKAHEAD)
    if tracker != "IN_PROCESS":
        reason = "with ELASTIC assignment the global watermark is in the store of the group"
        raise ConfigurationError(TRACKER.key, properties.as_given(TRACKER), "not set", reason=reason)
    least_ms = round(3 * HELD_SECONDS * 1000)
    if lookahead_ms is not None and lookahead_ms < least_ms:
        reason = "ELASTIC learns the global watermark once a second: with less, a live stream could not be followed"
        raise ConfigurationError(LOOKAHEAD.key, lookahead_ms, f"at least {least_ms}", reason=reason)
