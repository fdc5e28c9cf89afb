"""How commands call the service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from recordpublisher.publishers.properties.groups.retries import LIST_SHARDS_RETRIES
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.retry import call_with_retries

from .execution import run_to_end

if TYPE_CHECKING:
    from recordpublisher.publishers.kinesis.management.client import ManagementClient

T = TypeVar("T")


def ask_service(
    properties: Properties, question: Callable[[ManagementClient], Awaitable[T]], stream: str | None = None
) -> T:
    """Ask the service something, with the retries of ListShards; otherwise as `call_service`."""
    policy = LIST_SHARDS_RETRIES.policy(properties)
    return call_service(properties, lambda service: call_with_retries(lambda: question(service), policy), stream)


def call_service(
    properties: Properties, work: Callable[[ManagementClient], Awaitable[T]], stream: str | None = None
) -> T:
    """Do something with a client of the service. Nothing is retried: a change that was made, but whose response was lost, would fail the
    second time. A signal ends the command, without a result.

    An ARN of `stream` may give the region. Raises: ConfigurationError, RecordPublisherError.
    """
    properties.check()
    return run_to_end(_call(properties, work, [] if stream is None else [stream]))


async def _call(properties: Properties, work: Callable[[ManagementClient], Awaitable[T]], streams: list[str]) -> T:
    from recordpublisher.publishers.kinesis.management.client import ManagementClient  # brings the AWS SDK

    async with ManagementClient(properties, streams) as client:
        return await work(client)
