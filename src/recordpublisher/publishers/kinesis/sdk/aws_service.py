"""Calls AWS services other than Kinesis: S3, DynamoDB, DynamoDB Streams, Glue.

`AwsService` makes calls through the SDK, and maps their errors. `AwsAccess` finds the endpoint, region and keys for clients of other
packages.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import Any, NamedTuple, TypeVar

from aiobotocore.config import AioConfig
from botocore import xform_name
from botocore.exceptions import ClientError

from recordpublisher.publishers.errors import StoreUnavailableError, TransientError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import REQUEST_TIMEOUT
from recordpublisher.publishers.safe_text import mask_passwords

from ..endpoints import region_of
from ..error_mapping import reject_malformed, retry_with_new_token, translate_errors
from ..trusted_cas import ca_bundle_path
from .credentials import credentials_of, renewal_of, session_with_credentials
from .private_parts import read_body

T = TypeVar("T")
Response = dict[str, Any]
OpenClient = Callable[[], AbstractAsyncContextManager[Any]]
CONCURRENCY = 32
"""The most calls of one client at a time."""
_CHUNK_BYTES = 2**18


class AwsService:
    """A client of the SDK for one AWS service. The first call opens it, on that call's event loop. Its credentials are renewed.

    Every call raises the same KinesisErrors as a call to Kinesis, or ConfigurationError if there are no credentials. A response that is not
    as documented raises TransientError, because a proxy may have written or truncated it.

    - `service`: the SDK's name of the service.
    - `endpoint`: the URL to call, or None for the service's own.
    - `attempts`: how often the SDK sends a call that fails with a transient error, with jitter.
    - `open_client`: opens a client instead of the SDK.

    Raises: ConfigurationError if the credentials are invalid or there is no region.
    """

    def __init__(
        self,
        service: str,
        properties: Properties,
        endpoint: str | None,
        *,
        attempts: int = 1,
        open_client: OpenClient | None = None,
    ) -> None:
        self._session: Any = None
        if open_client is None:
            self._session = session_with_credentials(properties, region_of(properties))
            open_client = _sdk_client(self._session, service, properties, endpoint, attempts)
        self._open_client = open_client
        self._exit_stack = AsyncExitStack()
        self._client: Any = None
        self._opening = asyncio.Lock()
        self._slots = asyncio.Semaphore(CONCURRENCY)

    async def call(self, api: str, parse: Callable[[Response], T], **parameters: Any) -> T:
        """Make the call `api`, and return what `parse` returns for the response. If the response has a `Body`, `parse` gets it as bytes."""
        call_once = partial(self._call_once, api, parse, parameters)
        return (
            await call_once()
            if self._session is None
            else await retry_with_new_token(call_once, renewal_of(self._session))
        )

    async def _call_once(self, api: str, parse: Callable[[Response], T], parameters: Response) -> T:
        with translate_errors(api), reject_malformed(api):
            async with self._slots:
                response = await self._send(api, parameters)
                if "Body" in response:
                    async with response["Body"] as body:
                        response["Body"] = await read_body(body.iter_chunks(_CHUNK_BYTES), api)
            return parse(response)

    async def pages(
        self, api: str, parse: Callable[[Response], tuple[T, Response | None]], **parameters: Any
    ) -> AsyncIterator[T]:
        """Yield the pages of a listing.

        `parse` returns the page that a response contains, and the parameters that request the next page, or None after the last page.
        """
        asked: list[Response | None] = []
        following: Response | None = {}
        while following is not None:
            asked.append(following)
            page, following = await self.call(api, parse, **{**parameters, **following})
            if following in asked:
                raise TransientError(
                    api, "MalformedResponse", f"the service returns the same page again and again: {following}"
                )
            yield page

    async def endpoint_url(self) -> str:
        """Return the URL that calls go to: the given endpoint, or else the one that the environment and the SDK's rules give."""
        return str((await self._get_client()).meta.endpoint_url)

    async def close(self) -> None:
        """Close the client. The next call opens a new one."""
        async with self._opening:
            closing, self._exit_stack, self._client = self._exit_stack, AsyncExitStack(), None
        await closing.aclose()  # A call that is made during this wait opens a client of its own, which stays open.

    async def _send(self, api: str, parameters: dict[str, Any]) -> Response:
        try:
            response: Response = await getattr(await self._get_client(), xform_name(api))(**parameters)
        except ClientError as error:
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            if error.response.get("Error", {}).get("Code", "") not in ("", str(status)):
                raise
            # Every error of AWS has a code. If a proxy or another server has answered, the SDK uses the HTTP status as the code.
            words = f"HTTP {status} without an error code, from {mask_passwords(await self.endpoint_url())}"
            raise TransientError(api, "MalformedResponse", words) from error
        return response

    async def _get_client(self) -> Any:
        async with self._opening:
            if self._client is None:
                self._client = await self._exit_stack.enter_async_context(self._open_client())
            return self._client


def _sdk_client(session: Any, service: str, properties: Properties, endpoint: str | None, attempts: int) -> OpenClient:
    config = AioConfig(
        read_timeout=properties.value(REQUEST_TIMEOUT) / 1000,
        max_pool_connections=CONCURRENCY,
        retries={"total_max_attempts": attempts, "mode": "standard"},
        warm_up_loader_caches=True,  # The service model is read outside the event loop.
    )
    return partial(
        session.create_client, service, region_name=region_of(properties), endpoint_url=endpoint, config=config
    )


class AwsSettings(NamedTuple):
    """The settings for a client of another package, so that it makes the same calls as the SDK.

    - `ca_bundle`: the file of trusted CAs, or None for the client's own list.
    - `found_by`: the SDK's name of the provider that has given the keys.
    """

    endpoint: str
    region: str
    ca_bundle: str | None
    access_key: str = ""
    secret_key: str = ""
    token: str | None = None
    found_by: str = ""


class AwsAccess:
    """Finds the endpoint, region and keys for a client of another package, such as obstore. The SDK finds and renews them.

    The settings that were found last are kept in `found`, because a client may need them in a thread without an event loop.

    - `endpoint`, `region`: the ones set for this service, if any.
    - `needs_keys`: whether to find keys. False if the client has keys already.

    Raises: ConfigurationError if the credentials are invalid or there is no region.
    """

    def __init__(
        self,
        service: str,
        properties: Properties,
        endpoint: str | None = None,
        region: str | None = None,
        *,
        needs_keys: bool = True,
    ) -> None:
        self.service, self._given, self._needs_keys = service, endpoint, needs_keys
        self._region = region or region_of(properties)
        self._session = session_with_credentials(properties, self._region)
        self._client: Any = None
        self._found: AwsSettings | None = None

    @property
    def found(self) -> AwsSettings:
        """The settings that were found last."""
        if self._found is None:
            raise AssertionError(
                "internal error: settings were requested before `refresh` was called. Please report it"
            )
        return self._found

    async def refresh(self) -> AwsSettings:
        """Find the settings that apply now, with valid credentials, and return them. Call this before each use of a client.

        Raises: KinesisError if a call fails, ConfigurationError if there are no credentials, StoreUnavailableError if the provider of the
        credentials cannot be reached.
        """
        try:
            self._found = await self._settings()
        except TransientError as error:
            raise StoreUnavailableError(f"the credentials for {self.service} cannot be found now: {error}") from error
        return self._found

    async def _settings(self) -> AwsSettings:
        ca_bundle = ca_bundle_path(self._session)
        keys = await credentials_of(self._session) if self._needs_keys else None
        if self._client is None:
            # This client sends nothing. So if keys are not needed, it is made with invalid ones.
            given = {} if self._needs_keys else {"aws_access_key_id": "-", "aws_secret_access_key": "-"}
            with translate_errors("CreateClient"):
                opened = self._session.create_client(
                    self.service, region_name=self._region, endpoint_url=self._given, **given
                )
                async with opened as client:
                    self._client = client.meta
        where = AwsSettings(str(self._client.endpoint_url), str(self._client.region_name), ca_bundle)
        if keys is None:
            return where
        found_by = (await self._session.get_credentials()).method
        return where._replace(
            access_key=keys.access_key, secret_key=keys.secret_key, token=keys.token or None, found_by=found_by
        )
