"""Calls S3 or DynamoDB for a conditional store, and translates the errors of the AWS SDK."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from recordpublisher.publishers.errors import (
    ConfigurationError,
    KinesisError,
    StateError,
    StoreUnavailableError,
    TransientError,
)
from recordpublisher.publishers.kinesis.sdk.aws_service import AwsService, OpenClient, Response
from recordpublisher.publishers.properties.job_properties import STATE_ENDPOINT
from recordpublisher.publishers.properties.properties import Properties

T = TypeVar("T")
_CALL_ATTEMPTS = 5
_CONDITION_FAILED = ("PreconditionFailed", "ConditionalRequestConflict", "ConditionalCheckFailedException")
_NOT_FOUND = ("NoSuchKey", "NoSuchUpload", "ResourceNotFoundException")


class AwsStoreCalls:
    """Calls S3 or DynamoDB for one location, and translates the errors of these services into the errors of a store.

    - `service`: s3 or dynamodb.
    - `place`: the location, as messages show it.

    Each call raises one of these errors:

    - ConditionFailedError: the condition of a write failed.
    - NotFoundError: the object or the table does not exist.
    - StoreUnavailableError: a later retry may help.
    - StateError: any other error.

    Raises: ConfigurationError if the properties have invalid credentials or no region.
    """

    def __init__(self, service: str, place: str, properties: Properties, open_client: OpenClient | None = None) -> None:
        self.place = place
        endpoint = properties.value(STATE_ENDPOINT)
        self._service = AwsService(service, properties, endpoint, attempts=_CALL_ATTEMPTS, open_client=open_client)

    async def call(self, api: str, parse: Callable[[Response], T], **parameters: Any) -> T:
        """Make one call. Return the result of `parse` for the response."""
        with self._as_state_errors(api):
            return await self._service.call(api, parse, **parameters)

    async def pages(
        self, api: str, parse: Callable[[Response], tuple[T, Response | None]], **parameters: Any
    ) -> AsyncIterator[T]:
        """Yield the result of `parse` for each page of a listing.

        `parse` also returns the parameters for the next page, or None at the end.
        """
        with self._as_state_errors(api):
            async for page in self._service.pages(api, parse, **parameters):
                yield page

    async def close(self) -> None:
        """Close the client. The next call opens a new one."""
        await self._service.close()

    @contextmanager
    def _as_state_errors(self, api: str) -> Iterator[None]:
        try:
            yield
        except (KinesisError, ConfigurationError) as error:
            # The text of a fatal error advises about streams, so the text of its cause is shown instead.
            words = error.__cause__ if error.__cause__ and not isinstance(error, TransientError) else error
            raise _class_of(error)(f"{api} at {self.place} failed: {words}") from error


def _class_of(error: KinesisError | ConfigurationError) -> type[StateError]:
    code = getattr(error, "code", "")
    if code in _CONDITION_FAILED:
        return ConditionFailedError
    if code in _NOT_FOUND:
        return NotFoundError
    return StoreUnavailableError if isinstance(error, TransientError) else StateError


class ConditionFailedError(StateError):
    """Raised if the condition of a write did not hold, or could not be checked because of a concurrent write."""


class NotFoundError(StateError):
    """Raised if the object, or the table, does not exist."""
