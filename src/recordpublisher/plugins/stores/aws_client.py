"""AwsService: a client of S3 or DynamoDB with the job's credentials, which limits concurrent calls and translates the SDK's errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AsyncExitStack
from typing import Any, TypeVar

from aiobotocore.config import AioConfig
from botocore import xform_name
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from recordpublisher.fetcher.conditional_store import VersionedValue
from recordpublisher.publishers.errors import StateError, StoreUnavailableError, TransientError
from recordpublisher.publishers.kinesis.bounded_http_session import read_body
from recordpublisher.publishers.kinesis.credentials import session_with_credentials
from recordpublisher.publishers.kinesis.endpoint import region_of
from recordpublisher.publishers.kinesis.error_mapping import MalformedResponseError, translate
from recordpublisher.publishers.properties.groups.access import REQUEST_TIMEOUT
from recordpublisher.publishers.properties.groups.discovery_and_state import STATE_ENDPOINT
from recordpublisher.publishers.properties.properties import Properties

T = TypeVar("T")
CONCURRENCY = 32
"""The most calls of one client at a time."""
_CONDITION_FAILED = {"PreconditionFailed", "ConditionalRequestConflict", "ConditionalCheckFailedException"}
_NOT_FOUND = {"NoSuchKey", "404", "ResourceNotFoundException"}
_CHUNK_BYTES = 2**18


_NOT_AS_DOCUMENTED = (
    MalformedResponseError,
    ResponseParserError,
    RecursionError,
    AttributeError,
    TypeError,
    ValueError,
)
"""What the SDK's parsers raise. RecursionError: nested too deeply."""


class ConditionFailedError(StateError):
    """The condition of a write did not hold, or a concurrent write kept the service from checking it."""


class NotFoundError(StateError):
    """The object, or the table, does not exist."""


def _class_of(code: str, api: str, error: Exception) -> type[StateError]:
    """By the error code; every other error means what it means in a call to Kinesis."""
    if code in _CONDITION_FAILED:
        return ConditionFailedError
    if code in _NOT_FOUND:
        return NotFoundError
    return StoreUnavailableError if isinstance(translate(api, error), TransientError) else StateError


async def side_by_side(calls: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The results of calls that run at the same time, in order. The first error ends the others."""
    tasks = [asyncio.create_task(call) for call in calls]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


async def get_side_by_side(
    get: Callable[[str], Coroutine[Any, Any, VersionedValue | None]], names: Iterable[str]
) -> dict[str, VersionedValue]:
    """The stored values of these names, without those that have none, read by `get` at the same time."""
    names = list(names)
    found = await side_by_side(map(get, names))
    return {name: value for name, value in zip(names, found, strict=True) if value is not None}


class AwsService:
    """Owns an SDK client, opened by the first call on the event loop of that call. `place` is the location, as messages name it.

    Its credentials are renewed as those of any client of the SDK, so it may be kept for as long as the process lives.
    """

    def __init__(self, service: str, place: str, properties: Properties) -> None:
        """Raises: ConfigurationError for wrong credentials or no region."""
        self.place = place
        self._service = service
        self._region = region_of(properties)
        self._endpoint = properties.value(STATE_ENDPOINT)
        self._seconds = properties.value(REQUEST_TIMEOUT) / 1000
        self._session = session_with_credentials(properties, self._region)
        self._exit_stack = AsyncExitStack()
        self._client: Any = None
        self._opening = asyncio.Lock()
        self._slots = asyncio.Semaphore(CONCURRENCY)

    async def call(self, api: str, **parameters: Any) -> dict[str, Any]:
        """One call; the SDK retries transient errors with jitter, five attempts at most. The `Body` of a response is read.

        Raises: ConditionFailedError, NotFoundError; StoreUnavailableError when a later retry may help, StateError for everything else.
        """
        try:
            async with self._slots:
                response: dict[str, Any] = await getattr(await self._get_client(), xform_name(api))(**parameters)
                if "Body" in response:
                    async with response["Body"] as body:
                        response["Body"] = await read_body(body.iter_chunks(_CHUNK_BYTES), self.place)
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            raise _class_of(code, api, error)(f"{api} at {self.place} failed with {code}: {error}") from error
        except (BotoCoreError, OSError) as error:
            raise _class_of("", api, error)(f"{api} at {self.place} failed: {error}") from error
        except _NOT_AS_DOCUMENTED as error:
            kind = _class_of("", api, error)
            raise kind(f"the response of {api} at {self.place} is not as documented: {error!r}") from error
        return response

    async def close(self) -> None:
        """Close the client. The next call opens a new one."""
        self._client = None
        await self._exit_stack.aclose()

    async def _get_client(self) -> Any:
        async with self._opening:
            if self._client is None:
                config = AioConfig(
                    read_timeout=self._seconds,
                    max_pool_connections=CONCURRENCY,
                    retries={"total_max_attempts": 5, "mode": "standard"},
                )
                self._client = await self._exit_stack.enter_async_context(
                    self._session.create_client(
                        self._service, region_name=self._region, endpoint_url=self._endpoint, config=config
                    )
                )
            return self._client
