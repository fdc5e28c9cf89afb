"""AwsService: the calls of another AWS service than Kinesis (S3, DynamoDB, DynamoDB Streams, Glue), with one guard round each."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from functools import partial
from typing import Any, TypeVar

from aiobotocore.config import AioConfig
from botocore import xform_name
from botocore.exceptions import ClientError

from recordpublisher.publishers.errors import TransientError
from recordpublisher.publishers.password_masking import mask_passwords
from recordpublisher.publishers.properties.groups.access import REQUEST_TIMEOUT
from recordpublisher.publishers.properties.properties import Properties

from ..endpoint import region_of
from ..error_mapping import reject_malformed, translate_errors, with_new_token
from .credentials import renewal_of, session_with_credentials
from .internals import read_body

T = TypeVar("T")
Response = dict[str, Any]
OpenClient = Callable[[], AbstractAsyncContextManager[Any]]
CONCURRENCY = 32
"""The most calls of one client at a time."""
_CHUNK_BYTES = 2**18


class AwsService:
    """Owns a client of the SDK, opened by the first call on the event loop of that call. Its credentials are renewed while it lives.

    Every call raises: KinesisError, as calls to Kinesis do; ConfigurationError without credentials. A response that is not as documented is
    a TransientError: a proxy wrote or truncated it.
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
        """`service`: the SDK's name of it. `endpoint`: None is the service's own. `attempts`: how often the SDK sends a call that failed by
        a transient error, with jitter. `open_client`: instead of the SDK's. Raises: ConfigurationError for wrong credentials or no region.
        """
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
        """One call; returns what `parse` takes from the response, of which the `Body` was read."""
        call_once = partial(self._call_once, api, parse, parameters)
        return (
            await call_once() if self._session is None else await with_new_token(call_once, renewal_of(self._session))
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
        """The pages of a listing. `parse` takes one from a response, with the parameters that ask for the next one; None after the last."""
        asked: list[Response | None] = []
        following: Response | None = {}
        while following is not None:
            asked.append(following)
            page, following = await self.call(api, parse, **{**parameters, **following})
            if following in asked:
                raise TransientError(api, "MalformedResponse", f"the same page comes again and again: {following}")
            yield page

    async def endpoint_url(self) -> str:
        """Where calls go: as set, else by the environment and the rules of the SDK."""
        return str((await self._opened()).meta.endpoint_url)

    async def close(self) -> None:
        """Close the client. The next call opens a new one."""
        async with self._opening:
            closing, self._exit_stack, self._client = self._exit_stack, AsyncExitStack(), None
        await closing.aclose()  # a call that comes meanwhile has a client of its own, which stays

    async def _send(self, api: str, parameters: dict[str, Any]) -> Response:
        try:
            response: Response = await getattr(await self._opened(), xform_name(api))(**parameters)
        except ClientError as error:
            status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
            if error.response.get("Error", {}).get("Code", "") not in ("", str(status)):
                raise
            # every error of AWS has a code, for which the SDK puts the status where a proxy or another server has answered
            words = f"HTTP {status} without an error code, from {mask_passwords(await self.endpoint_url())}"
            raise TransientError(api, "MalformedResponse", words) from error
        return response

    async def _opened(self) -> Any:
        async with self._opening:
            if self._client is None:
                self._client = await self._exit_stack.enter_async_context(self._open_client())
            return self._client


def _sdk_client(session: Any, service: str, properties: Properties, endpoint: str | None, attempts: int) -> OpenClient:
    config = AioConfig(
        read_timeout=properties.value(REQUEST_TIMEOUT) / 1000,
        max_pool_connections=CONCURRENCY,
        retries={"total_max_attempts": attempts, "mode": "standard"},
        warm_up_loader_caches=True,  # reads the service model off the loop
    )
    return partial(
        session.create_client, service, region_name=region_of(properties), endpoint_url=endpoint, config=config
    )
