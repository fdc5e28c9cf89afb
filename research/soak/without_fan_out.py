"""Patches that remove rules of fan-out, one each (F2 to F9, P1)."""

from __future__ import annotations

from typing import Any

from recordpublisher.publishers import errors
from recordpublisher.publishers.base import RunResult
from recordpublisher.publishers.fanout import publisher as fan_out_publisher
from recordpublisher.publishers.fanout import registration
from recordpublisher.publishers.fanout.publisher import FanOutRecordPublisher, OpenSubscription, ResubscribePolicy
from recordpublisher.publishers.fanout.registration import ConsumerRegistrar, RegistrationCalls

from .patches import Patches, nothing, raise_error, replace_attribute


def a_clean_end_is_not_the_end_of_the_shard() -> Patches:
    publish = FanOutRecordPublisher._publish

    async def ended(self: Any, *given: Any) -> RunResult:
        await publish(self, *given)
        return RunResult.COMPLETE

    return [replace_attribute(FanOutRecordPublisher, "_publish", ended)]


def subscriptions_resume_from_the_returned_position() -> Patches:
    return [replace_attribute(fan_out_publisher, "_next_start", lambda position, answered: position)]


def broken_subscriptions_are_opened_again() -> Patches:
    def broken(self: Any, error: Exception, arn: str, *, was_backpressured: bool) -> None:
        raise error

    return [replace_attribute(ResubscribePolicy, "on_read_error", broken)]


def refused_subscriptions_are_tried_again() -> Patches:
    return [replace_attribute(ResubscribePolicy, "on_subscribe_error", lambda self, error, arn: raise_error(error))]


def in_use_is_not_counted() -> Patches:
    return [replace_attribute(ResubscribePolicy, "_wait_until_free", lambda self, error: self._count(error))]


def five_seconds_lie_between_success_and_call() -> Patches:
    return [replace_attribute(fan_out_publisher, "SECONDS_BETWEEN_SUBSCRIPTIONS", 0.0)]


def one_second_lies_between_calls() -> Patches:
    return [replace_attribute(fan_out_publisher, "SECONDS_BETWEEN_SUBSCRIBE_CALLS", 0.0)]


def progress_resets_the_retry_budget() -> Patches:
    return [replace_attribute(ResubscribePolicy, "on_event", nothing)]


def a_silent_subscription_is_closed() -> Patches:
    async def next_event(self: OpenSubscription) -> Any:
        return await anext(self._events, None)

    return [replace_attribute(OpenSubscription, "next_event", next_event)]


def unread_subscriptions_are_closed() -> Patches:
    return [replace_attribute(OpenSubscription, "_close_unread", nothing)]


def a_lost_consumer_is_investigated() -> Patches:
    async def resolve(*_: Any) -> bool:
        return False

    return [replace_attribute(fan_out_publisher, "resolve_not_found", resolve)]


def a_lost_consumer_is_registered_again() -> Patches:
    async def reregister_if_gone(self: Any, stream: str, lost_arn: str) -> bool:
        return self._arns[stream] != lost_arn

    return [replace_attribute(ConsumerRegistrar, "reregister_if_gone", reregister_if_gone)]


def a_consumer_that_is_being_deleted_is_waited_for() -> Patches:
    async def ensure_active(self: Any, stream_arn: str, name: str, may_register: Any) -> str:
        described = await self.describe(stream_arn, name)
        if described is None:
            described = await self._register(stream_arn, name, may_register)
        if described is None or described.status == "DELETING":
            raise errors.ConsumerError("gone")
        return str(described.arn)

    return [replace_attribute(RegistrationCalls, "ensure_active", ensure_active)]


def a_consumer_that_somebody_else_registered_is_shared() -> Patches:
    class OtherError(Exception):
        pass

    return [replace_attribute(registration, "ResourceInUseError", OtherError)]
