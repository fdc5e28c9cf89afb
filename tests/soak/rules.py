"""Every recovery rule, and how it is taken out: what the proof runs the soak without (`python -m soak.prove`)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from recordpublisher.fetcher import opening, seeding, shard_table
from recordpublisher.fetcher.discovery import Discovery
from recordpublisher.fetcher.roster import Roster
from recordpublisher.publishers import backoff, errors
from recordpublisher.publishers.base import RunResult
from recordpublisher.publishers.fanout import lost_resource, registrar
from recordpublisher.publishers.fanout import pacing as fan_out_pacing
from recordpublisher.publishers.fanout import publisher as fan_out_publisher
from recordpublisher.publishers.fanout.lost_resource import LostResource
from recordpublisher.publishers.fanout.publisher import FanOutRecordPublisher
from recordpublisher.publishers.fanout.recovery import Recovery
from recordpublisher.publishers.fanout.registration import Registration
from recordpublisher.publishers.fanout.subscription import OpenSubscription
from recordpublisher.publishers.kinesis import frames, translation
from recordpublisher.publishers.polling import iterator as polling_iterator
from recordpublisher.publishers.polling import missing
from recordpublisher.publishers.polling import pacing as polling_pacing
from recordpublisher.publishers.polling import publisher as polling_publisher
from recordpublisher.publishers.polling.iterator import ShardIterator
from recordpublisher.publishers.positions import StartingPosition

Patches = list[Any]


def _set(owner: Any, name: str, value: Any) -> Any:
    return patch.object(owner, name, value)


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _raise(error: BaseException) -> None:
    raise error


# --- polling --------------------------------------------------------------------------------------------------------------------------


def expired_iterators_are_renewed() -> Patches:
    class OtherError(Exception):
        pass

    return [_set(polling_publisher, "ExpiredIteratorError", OtherError)]


def they_are_renewed_from_the_read_position() -> Patches:
    at = ShardIterator.at

    async def from_the_start(self: ShardIterator, position: StartingPosition) -> str:
        self._first = getattr(self, "_first", position)  # type: ignore[attr-defined]
        return await at(self, self._first)  # type: ignore[attr-defined]

    return [_set(ShardIterator, "at", from_the_start)]


def old_iterators_are_replaced_before_use() -> Patches:
    return [_set(polling_iterator, "ITERATOR_SECONDS", 1e9)]


def a_refused_shard_is_left_alone_for_a_second() -> Patches:
    return [_set(polling_pacing, "THROTTLED_SECONDS", 0.0)]


def reads_keep_five_calls_a_second() -> Patches:
    return [_set(polling_pacing, "CALL_SECONDS", 0.0), _set(polling_publisher, "CALL_SECONDS", 0.0)]


def failed_calls_are_tried_again() -> Patches:
    return [_set(backoff.RetryPolicy, "max_retries", property(lambda self: 0, _nothing))]


def a_shard_that_is_not_found_is_looked_into() -> Patches:
    async def believed(listing: Any, shard: Any, error: Exception, policy: Any) -> Exception:
        return error

    return [_set(polling_publisher, "why_not_found", believed)]


def a_listing_older_than_the_shard_is_not_believed() -> Patches:
    modules = (missing, lost_resource, seeding, shard_table)
    return [_set(module, "is_too_old_for", lambda shard, listed: False) for module in modules]


def reading_goes_on_from_the_answered_position() -> Patches:
    return [_set(polling_publisher, "next_position", lambda position, answered: position)]


# --- errors ---------------------------------------------------------------------------------------------------------------------------


def throttling_is_known() -> Patches:
    return [_set(translation, "THROTTLED", set())]


def server_errors_are_known() -> Patches:
    kind_of = translation._kind_of
    return [
        _set(translation, "TRANSIENT", set()),
        _set(translation, "_kind_of", lambda code, status: kind_of(code, 0)),
    ]


def network_errors_are_known() -> Patches:
    return [_set(translation, "NETWORK", ())]


def broken_answers_are_known() -> Patches:
    return [_set(translation, "BROKEN", ())]


def frames_are_checked() -> Patches:
    return [_set(frames, "_check", _nothing)]


# --- fan-out --------------------------------------------------------------------------------------------------------------------------


def a_clean_end_is_not_the_end_of_the_shard() -> Patches:
    publish = FanOutRecordPublisher._publish

    async def ended(self: Any, *given: Any) -> RunResult:
        await publish(self, *given)
        return RunResult.COMPLETE

    return [_set(FanOutRecordPublisher, "_publish", ended)]


def subscriptions_go_on_from_the_answered_position() -> Patches:
    return [_set(fan_out_publisher, "_advanced", lambda position, answered: position)]


def broken_subscriptions_are_opened_again() -> Patches:
    def broken(self: Any, error: Exception, arn: str, *, was_held_up: bool) -> None:
        raise error

    return [_set(Recovery, "broken", broken)]


def refused_subscriptions_are_tried_again() -> Patches:
    return [_set(Recovery, "refused", lambda self, error, arn: _raise(error))]


def in_use_is_not_counted() -> Patches:
    return [_set(Recovery, "_wait_out_the_other", lambda self, error: self._count(error))]


def five_seconds_lie_between_success_and_call() -> Patches:
    return [_set(fan_out_pacing, "SECONDS_AFTER_SUCCESS", 0.0)]


def one_second_lies_between_calls() -> Patches:
    return [_set(fan_out_pacing, "SECONDS_BETWEEN_CALLS", 0.0)]


def progress_renews_the_budget() -> Patches:
    return [_set(Recovery, "progressed", _nothing)]


def silence_has_a_limit() -> Patches:
    async def next_event(self: OpenSubscription) -> Any:
        return await anext(self._events, None)

    return [_set(OpenSubscription, "next_event", next_event)]


def unread_subscriptions_are_given_back() -> Patches:
    return [_set(OpenSubscription, "_give_back", _nothing)]


def a_lost_consumer_is_looked_into() -> Patches:
    async def heal(self: Any, shard: Any, arn: str) -> bool:
        return False

    return [_set(LostResource, "heal", heal)]


def a_lost_consumer_is_registered_again() -> Patches:
    async def heal(self: Any, stream: str, lost_arn: str) -> bool:
        return self._arns[stream] != lost_arn

    return [_set(registrar.Registrar, "heal", heal)]


def a_consumer_that_is_going_is_waited_for() -> Patches:
    async def ensure_active(self: Any, stream_arn: str, name: str, may_register: Any) -> str:
        described = await self.describe(stream_arn, name)
        if described is None:
            described = await self._register(stream_arn, name, may_register)
        if described is None or described.status == "DELETING":
            raise errors.ConsumerError("gone")
        return str(described.arn)

    return [_set(Registration, "ensure_active", ensure_active)]


def a_consumer_that_somebody_else_registered_is_shared() -> Patches:
    class OtherError(Exception):
        pass

    from recordpublisher.publishers.fanout import registration

    return [_set(registration, "ResourceInUseError", OtherError)]


# --- many shards ----------------------------------------------------------------------------------------------------------------------


def failed_discovery_never_ends_a_job() -> Patches:
    async def look(self: Any, stream: str, looked: Any) -> None:
        await looked(stream, await self._lister._client.list_shards(self._lister._names[stream]))

    return [_set(Discovery, "_look", look)]


def child_shards_are_used_at_once() -> Patches:
    from recordpublisher.fetcher.data_fetcher import DataFetcher

    return [_set(DataFetcher, "_found_children", _nothing)]


def parents_come_before_children() -> Patches:
    return [_set(shard_table.ShardTable, "parents_finished", lambda self, shard: True)]


def a_shard_that_waits_says_nothing_about_its_parents() -> Patches:
    confirmed = shard_table.ShardEntry.confirmed_state.fget
    assert confirmed is not None
    return [
        _set(shard_table.ShardEntry, "confirmed_state", property(lambda self: replace(confirmed(self), waiting=False)))
    ]


def other_subtasks_hear_of_children_by_looking() -> Patches:
    async def run(self: Any, looked: Any) -> None:
        await asyncio.get_running_loop().create_future()

    return [_set(Discovery, "run", run)]


def latest_is_pinned_once_for_the_job() -> Patches:
    pinned = opening._pinned_start

    async def anew(restored: Any, parts: Any) -> Any:
        return await pinned(replace(restored, pinned_ms=None), parts)

    def from_now(listed: Any, restored: Any, start: Any) -> Any:
        states = seeding.seeded_states(listed, restored, start)
        return {key: replace(state, start=start) if state.position is None else state for key, state in states.items()}

    return [_set(opening, "_pinned_start", anew), _set(opening, "seeded_states", from_now)]


def found_shards_are_read_from_their_beginning() -> Patches:
    take = Roster.take

    def from_the_tip(self: Roster, shards: Any) -> None:
        with patch.object(StartingPosition, "trim_horizon", StartingPosition.latest):
            take(self, shards)

    return [_set(Roster, "take", from_the_tip)]


def an_old_listing_is_asked_for_again_at_the_start() -> Patches:
    return [_set(opening, "LOOKS", 1)]


RULES: dict[str, Callable[[], Patches]] = {
    "R2 expired iterators are renewed": expired_iterators_are_renewed,
    "R2 they are renewed from the read position": they_are_renewed_from_the_read_position,
    "R2 iterators older than four minutes are replaced before use": old_iterators_are_replaced_before_use,
    "R4 a refused shard is left alone for a second": a_refused_shard_is_left_alone_for_a_second,
    "R1 five calls a second at most": reads_keep_five_calls_a_second,
    "R4 failed calls are tried again": failed_calls_are_tried_again,
    "F4 a shard that is not found is looked into (polling)": a_shard_that_is_not_found_is_looked_into,
    "F4 a listing older than the shard is not believed": a_listing_older_than_the_shard_is_not_believed,
    "P1 polling goes on from the answered position": reading_goes_on_from_the_answered_position,
    "F3 throttling is known": throttling_is_known,
    "F3 server errors are known": server_errors_are_known,
    "R4 network errors are known": network_errors_are_known,
    "F3 broken answers and frames are known": broken_answers_are_known,
    "F3 frames are checked": frames_are_checked,
    "F2 a clean end is not the end of the shard": a_clean_end_is_not_the_end_of_the_shard,
    "P1 subscriptions go on from the answered position": subscriptions_go_on_from_the_answered_position,
    "F3 broken subscriptions are opened again": broken_subscriptions_are_opened_again,
    "F3 refused subscriptions are tried again": refused_subscriptions_are_tried_again,
    "F3 ResourceInUse is not counted": in_use_is_not_counted,
    "F2 five seconds between a success and the next call": five_seconds_lie_between_success_and_call,
    "F9 one second between calls": one_second_lies_between_calls,
    "F3 progress renews the budget": progress_renews_the_budget,
    "F5 silence has a limit": silence_has_a_limit,
    "F5 subscriptions left unread are given back": unread_subscriptions_are_given_back,
    "F4 a consumer that is not found is looked into": a_lost_consumer_is_looked_into,
    "F4 a lost consumer is registered again": a_lost_consumer_is_registered_again,
    "F8 a consumer that is being deleted is waited for": a_consumer_that_is_going_is_waited_for,
    "F8 a consumer that another registered is shared": a_consumer_that_somebody_else_registered_is_shared,
    "S3 failed discovery never ends a job": failed_discovery_never_ends_a_job,
    "S3 ChildShards are used at once": child_shards_are_used_at_once,
    "S2 parents before children": parents_come_before_children,
    "S5 a shard that waits says nothing about its parents": a_shard_that_waits_says_nothing_about_its_parents,
    "S3 a shard found later is read from its beginning": found_shards_are_read_from_their_beginning,
    "S3 other subtasks hear of children by looking": other_subtasks_hear_of_children_by_looking,
    "P3 LATEST is pinned once for the job": latest_is_pinned_once_for_the_job,
    "S5 a listing older than the state is asked for again": an_old_listing_is_asked_for_again_at_the_start,
}


@contextmanager
def without(rule: str) -> Iterator[None]:
    """The library without one of its rules, while the block runs."""
    with ExitStack() as stack:
        for each in RULES[rule]():
            stack.enter_context(each)
        yield
