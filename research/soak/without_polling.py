"""Patches that remove rules of polling and of errors, one each (R1, R2, R4, F3, F4, P1)."""

from __future__ import annotations

from typing import Any

from recordpublisher.fetcher.checkpoints import shard_starts as initial_states
from recordpublisher.fetcher.shards import shard_table
from recordpublisher.publishers import retry
from recordpublisher.publishers.kinesis import error_mapping, event_subscription, ports
from recordpublisher.publishers.polling import publisher as polling_publisher
from recordpublisher.publishers.polling.publisher import ShardIterator
from recordpublisher.publishers.positions import StartingPosition

from .patches import Patches, nothing, replace_attribute


def expired_iterators_are_renewed() -> Patches:
    class OtherError(Exception):
        pass

    return [replace_attribute(polling_publisher, "ExpiredIteratorError", OtherError)]


def iterators_are_renewed_from_the_read_position() -> Patches:
    at = ShardIterator.get

    async def from_the_start(self: ShardIterator, position: StartingPosition) -> str:
        self._first = getattr(self, "_first", position)  # type: ignore[attr-defined]
        return await at(self, self._first)  # type: ignore[attr-defined]

    return [replace_attribute(ShardIterator, "get", from_the_start)]


def old_iterators_are_replaced_before_use() -> Patches:
    return [replace_attribute(polling_publisher, "MAX_ITERATOR_AGE_SECONDS", 1e9)]


def a_refused_shard_is_not_read_for_a_second() -> Patches:
    return [replace_attribute(polling_publisher, "REFUSED_SECONDS", 0.0)]


def reads_keep_five_calls_a_second() -> Patches:
    return [replace_attribute(polling_publisher, "MIN_CALL_INTERVAL_SECONDS", 0.0)]


def failed_calls_are_tried_again() -> Patches:
    return [replace_attribute(retry.RetryPolicy, "max_retries", property(lambda self: 0, nothing))]


def a_shard_that_is_not_found_is_investigated() -> Patches:
    async def unchecked(listing: Any, shard: Any, error: Exception, policy: Any) -> Exception:
        return error

    return [replace_attribute(polling_publisher, "explain_not_found", unchecked)]


def a_listing_older_than_the_shard_is_not_trusted() -> Patches:
    modules = (ports, initial_states, shard_table)
    return [replace_attribute(module, "is_listing_older_than", lambda shard, listed: False) for module in modules]


def reading_resumes_from_the_returned_position() -> Patches:
    return [replace_attribute(polling_publisher, "next_position", lambda position, answered: position)]


def throttling_is_recognised() -> Patches:
    return [replace_attribute(error_mapping, "THROTTLED", set())]


def server_errors_are_recognised() -> Patches:
    kind_of = error_mapping._kind_of
    return [
        replace_attribute(error_mapping, "TRANSIENT", set()),
        replace_attribute(error_mapping, "_kind_of", lambda code, status: kind_of(code, 0)),
    ]


def network_errors_are_recognised() -> Patches:
    return [replace_attribute(error_mapping, "NETWORK", ())]


def broken_responses_are_recognised() -> Patches:
    return [replace_attribute(error_mapping, "BROKEN_RESPONSE", ())]


def frames_are_checked() -> Patches:
    return [replace_attribute(event_subscription, "_verify_checksum", nothing)]
