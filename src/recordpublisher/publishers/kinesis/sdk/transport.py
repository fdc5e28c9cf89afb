"""SdkTransport sends calls with two clients of the SDK, one for calls and one for subscriptions."""

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import msgspec
from aiobotocore.config import AioConfig
from botocore import xform_name
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSPreparedRequest, AWSRequest
from botocore.utils import ensure_boolean

from recordpublisher.publishers.clock import Clock, SystemClock, observed_timeout
from recordpublisher.publishers.properties.groups.reading import HTTP_CLIENT, REQUEST_TIMEOUT
from recordpublisher.publishers.properties.properties import Properties

from ..ca_bundle import ca_bundle_path
from ..call_starts import CallStartLimiter
from ..codec.put_records import preset_body, replace_body
from ..codec.response_decoders import decode_object
from ..endpoint import endpoint_of, region_of
from ..error_mapping import with_new_token
from ..error_translation import translate_errors
from ..fast_path.call import FastPathCalls, error_in_response
from ..fast_path.http1_pool import CONNECT_SECONDS, Http1Pools
from ..fast_path.sigv4 import SignedPost, json_headers
from ..http2 import make_http2_sender
from ..queue_calls import QUEUE_CALLS, queue_url
from .credentials import renewal_of, session_with_credentials
from .internals import RecordParserFactory, http_session_of, tls_context_for

_UNLIMITED = 0
FAST_APIS = ("GetRecords", "PutRecords", "GetShardIterator")
"""The frequent calls, and the calls that a thousand shards make at once."""


class SdkTransport:
    """Implements the Transport port. Owns an SDK session and two clients, which the first call opens on its event loop.

    Each call has a deadline (`aws.request.timeout`). Time in which the process was suspended does not count: a response
    that arrived in that time is read, and a write is not repeated needlessly.

    Subscriptions have their own client without a read time-out: `fanout` decides how long a subscription may be silent,
    because it can tell silence from back-pressure (F5). Neither connection pool has a limit: with one, calls could wait
    behind subscriptions for ever (F1), and a shard needs at most one connection of each. With
    `aws.http.protocol.version=HTTP2` the client still builds and signs subscribe requests, and `http2` sends them.

    - `region`: the region to call, instead of the region of properties and streams.
    - `role`: the ARN of a role that the provider's credentials assume.

    Raises: ConfigurationError if endpoint, region, credential properties or the CA bundle are missing or invalid.
    """

    def __init__(
        self,
        properties: Properties,
        streams: Iterable[str] = (),
        clock: Clock | None = None,
        *,
        region: str | None = None,
        role: str | None = None,
    ) -> None:
        self._region = region or region_of(properties, streams)
        self._endpoint = endpoint_of(properties, self._region)
        self._seconds = properties.value(REQUEST_TIMEOUT) / 1000
        self._clock = clock or SystemClock()
        self._uses_fast_path = properties.value(HTTP_CLIENT) == "OWN"
        self._session = session_with_credentials(properties, self._region, role)
        self._session.register_component("response_parser_factory", RecordParserFactory())
        self._open = AsyncExitStack()
        self._clients: dict[str, Any] = {}
        self._fast_path: dict[str, FastPathCalls] = {}
        self._lock = asyncio.Lock()
        self._http1: Http1Pools | None = None
        self._queue_routes: dict[str, SignedPost] = {}
        self._start_limiter = CallStartLimiter()
        self._http2 = make_http2_sender(properties, ca_bundle_path(self._session))

    async def call(self, api: str, **parameters: Any) -> dict[str, Any]:
        """Make one call with a deadline and without retries.

        Raises: KinesisError if the call fails, ConfigurationError if there are no usable credentials.
        """
        return await self._call(api, parameters, None)

    async def call_with_body(self, api: str, body: bytes, **parameters: Any) -> dict[str, Any]:
        """Make a call whose body is already encoded. The SDK needs `parameters` to find the endpoint."""
        return await self._call(api, parameters, body)

    async def subscribe(self, api: str, **parameters: Any) -> dict[str, Any]:
        """Make one call whose response stays open; the caller sets the deadline.

        Raises: KinesisError if the call fails, ConfigurationError if there are no usable credentials.
        """

        async def subscribe_once() -> dict[str, Any]:
            with translate_errors(api):
                client = await self._client("subscriptions")
                response: dict[str, Any] = await getattr(client, xform_name(api))(**parameters)
                return response

        return await with_new_token(subscribe_once, renewal_of(self._session))

    async def endpoint_url(self) -> str:
        """Return the URL that calls go to: as set, else by the environment and the rules of the SDK."""
        return str((await self._client("calls")).meta.endpoint_url)

    async def close(self) -> None:
        """Close both clients; open subscriptions end. A call that starts during the close has a client of its own, which stays open."""
        async with self._lock:
            closing, self._open = self._open, AsyncExitStack()
            self._clients.clear()
            self._fast_path.clear()
        for http in (self._http1, self._http2):
            if http is not None:
                await http.close()
        await closing.aclose()

    async def _call(self, api: str, parameters: dict[str, Any], body: bytes | None) -> dict[str, Any]:
        return await with_new_token(partial(self._call_once, api, parameters, body), renewal_of(self._session))

    async def _call_once(self, api: str, parameters: dict[str, Any], body: bytes | None) -> dict[str, Any]:
        await self._start_limiter.wait_for_slot()
        with translate_errors(api):
            async with observed_timeout(self._clock, self._seconds):
                client = await self._client("calls")
                response: dict[str, Any] | None = None
                if api in QUEUE_CALLS:
                    return await self._call_queue(client, api, parameters)
                if api in self._fast_path:
                    response = await self._fast_path[api].call(parameters, body)
                if response is None:
                    with preset_body(body):
                        response = await getattr(client, xform_name(api))(**parameters)
                return response

    async def _call_queue(self, client: Any, api: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """Make a call that the SDK does not know. If the fast path cannot make it, as through a proxy, the SDK's HTTP session sends it."""
        is_fips = ensure_boolean(self._session.get_config_variable("use_fips_endpoint") or False)
        url = queue_url(client.meta.endpoint_url, api, parameters.get("QueueARN"), is_fips)
        region = client.meta.region_name
        route = self._queue_routes.setdefault(f"{api} {url}", SignedPost(url, json_headers(api), region))
        if self._http1 is not None:
            calls = FastPathCalls(api, self._http1, self._frozen_credentials, lambda _: route)
            if (response := await calls.call(parameters)) is not None:
                return response
        url = url if urlsplit(url).path else f"{url}/"
        request = AWSRequest("POST", url, json_headers(api), msgspec.json.encode(parameters))
        SigV4Auth(await self._frozen_credentials(), "kinesis", region).add_auth(request)
        session: Any = http_session_of(client)
        sent = await session.send(request.prepare())
        content = await sent.content
        if sent.status_code >= 300:
            raise error_in_response(api, sent.status_code, content)
        headers = {name.lower(): value for name, value in sent.headers.items()}
        return {**decode_object(content), "ResponseMetadata": {"HTTPHeaders": headers}}

    async def _client(self, purpose: str) -> Any:
        async with self._lock:
            if purpose not in self._clients:
                self._clients[purpose] = client = await self._open.enter_async_context(self._create())
                client.meta.events.register("before-call.kinesis.PutRecords", replace_body)
                if purpose == "calls" and self._uses_fast_path:
                    self._set_up_fast_path(client)
                elif purpose != "calls" and self._http2 is not None:
                    client.meta.events.register_last("before-send.kinesis.SubscribeToShard", self._http2.send)
            return self._clients[purpose]

    def _set_up_fast_path(self, client: Any) -> None:
        tls_for = partial(tls_context_for, http_session_of(client))
        self._http1 = http = Http1Pools(tls_for, min(CONNECT_SECONDS, self._seconds))
        for api in FAST_APIS:
            self._fast_path[api] = FastPathCalls(api, http, self._frozen_credentials, RememberedRoutes(client, api).of)

    async def _frozen_credentials(self) -> Any | None:
        """Read the credentials from the SDK at each call, so that they are renewed as usual."""
        credentials = await self._session.get_credentials()
        return None if credentials is None else await credentials.get_frozen_credentials()

    def _create(self) -> Any:
        config = AioConfig(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=None,  # `_call` sets the deadline
            max_pool_connections=_UNLIMITED,
            retries={"total_max_attempts": 1, "mode": "standard"},  # our policies own retries
            warm_up_loader_caches=True,  # reads the service model outside the event loop
        )
        return self._session.create_client(
            "kinesis", region_name=self._region, endpoint_url=self._endpoint, config=config
        )


class _StreamParameter(msgspec.Struct):
    """The stream that a body names. Other fields are ignored."""

    StreamARN: str = ""
    StreamName: str = ""


_STREAM_PARAMETER = msgspec.json.Decoder(_StreamParameter)
_ROUTE_HEADERS = ("User-Agent", "X-Amz-Target", "Content-Type")


class RememberedRoutes:
    """Owns the routes by which the SDK has sent the calls of one API, for each stream.

    The first call for a stream goes through the SDK, with its endpoint rules, hooks and user agent.
    """

    def __init__(self, client: Any, api: str) -> None:
        self._region = client.meta.region_name
        self._routes: dict[str, SignedPost] = {}
        client.meta.events.register_last(f"before-send.kinesis.{api}", self.remember)

    def of(self, parameters: dict[str, Any]) -> SignedPost | None:
        """Return the route of a call with these parameters, or None before the first call for its stream."""
        return self._routes.get(parameters.get("StreamARN") or parameters.get("StreamName", ""))

    def remember(self, request: AWSPreparedRequest, **_: Any) -> None:
        """Store URL and headers of a call for its stream. This handles the SDK's event `before-send`."""
        body = request.body if isinstance(request.body, bytes) else request.body.getvalue()
        named = _STREAM_PARAMETER.decode(body)
        headers = {name: _text(request.headers[name]) for name in _ROUTE_HEADERS if name in request.headers}
        self._routes[named.StreamARN or named.StreamName] = SignedPost(request.url, headers, self._region)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
