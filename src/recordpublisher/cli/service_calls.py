"""How commands call the service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.table import LIST_SHARDS_RETRIES
from recordpublisher.publishers.retry import call_with_retries

from .execution import run_until_signal

if TYPE_CHECKING:
    from recordpublisher.publishers.kinesis.management.client import ManagementClient

T = TypeVar("T")


def ask_service(
    properties: Properties, question: Callable[[ManagementClient], Awaitable[T]], stream: str | None = None
) -> T | None:
    """Ask the service something, with the retries of ListShards; None when a signal ended the command.

    An ARN of `stream` may give the region. Raises: ConfigurationError, RecordPublisherError.
    """
    properties.check()
    return run_until_signal(_ask(properties, question, [] if stream is None else [stream]))


async def _ask(properties: Properties, question: Callable[[ManagementClient], Awaitable[T]], streams: list[str]) -> T:
    from recordpublisher.publishers.kinesis.management.client import ManagementClient  # brings the AWS SDK

    async with ManagementClient(properties, streams) as client:
        return await call_with_retries(lambda: question(client), LIST_SHARDS_RETRIES.policy(properties))
