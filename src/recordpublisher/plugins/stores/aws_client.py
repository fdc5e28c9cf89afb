"""AwsService: one client of S3 or DynamoDB, with the job's credentials; the SDK's errors end here."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

from aiobotocore.config import AioConfig
from botocore import xform_name
from botocore.exceptions import BotoCoreError, ClientError, HTTPClientError

from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.kinesis.credentials import session_with_credentials
from recordpublisher.publishers.kinesis.endpoint import region_of
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.table import REQUEST_TIMEOUT, STATE_ENDPOINT

_CONDITION_FAILED = {"PreconditionFailed", "ConditionalRequestConflict", "ConditionalCheckFailedException"}
_NOT_FOUND = {"NoSuchKey", "404", "ResourceNotFoundException"}


class ConditionFailedError(Exception):
    """A conditional write found something else than it expected."""


class NotFoundError(Exception):
    """The object, or the table, does not exist."""


class AwsService:
    """Owns an SDK client, opened at the first call on the loop of that call. `place` is what messages call it."""

    def __init__(self, service: str, place: str, properties: Properties) -> None:
        """Raises: ConfigurationError for wrong credentials or no region."""
        self.place = place
        self._service = service
        self._region = region_of(properties)
        self._endpoint = properties.value(STATE_ENDPOINT)
        self._seconds = properties.value(REQUEST_TIMEOUT) / 1000
        self._session = session_with_credentials(properties, self._region)
        self._open = AsyncExitStack()
        self._client: Any = None

    async def call(self, api: str, **parameters: Any) -> dict[str, Any]:
        """One call; the SDK tries again what may pass, with jitter, five times at most.

        Raises: ConditionFailedError, NotFoundError, StateError for everything else.
        """
        try:
            answer: dict[str, Any] = await getattr(await self._opened(), xform_name(api))(**parameters)
        except ClientError as error:
            code = error.response.get("Error", {}).get("Code", "")
            if code in _CONDITION_FAILED:
                raise ConditionFailedError(code) from error
            if code in _NOT_FOUND:
                raise NotFoundError(code) from error
            raise StateError(f"{api} at {self.place} failed with {code}: {error}") from error
        except (BotoCoreError, HTTPClientError, OSError) as error:
            raise StateError(f"{api} at {self.place} failed: {error}") from error
        return answer

    async def close(self) -> None:
        """Close the client. May be used again, with a new one."""
        self._client = None
        await self._open.aclose()

    async def _opened(self) -> Any:
        if self._client is None:
            config = AioConfig(read_timeout=self._seconds, retries={"total_max_attempts": 5, "mode": "standard"})
            self._client = await self._open.enter_async_context(
                self._session.create_client(
                    self._service, region_name=self._region, endpoint_url=self._endpoint, config=config
                )
            )
        return self._client
