"""SdkTransport sends calls with two clients of the SDK, one for calls and one for subscriptions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
from aiobotocore.config import AioConfig
from botocore import xform_name
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSPreparedRequest, AWSRequest
from botocore.utils import ensure_boolean

from recordpublisher.install_commands import install_command
from recordpublisher.publishers.clock import Clock, SystemClock, observed_timeout
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.config_fields import values_of
from recordpublisher.publishers.properties.fan_out_properties import HTTP_PROTOCOL
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import HTTP_CLIENT, REQUEST_TIMEOUT

from ..codec import decode_object, preset_body, replace_body
from ..direct_transport import CallStartLimiter, FastPathCalls, SignedPost, error_in_response, json_headers
from ..endpoints import QUEUE_CALLS, endpoint_of, queue_url, region_of
from ..error_mapping import EndpointCheck, refuse_foreign, retry_with_new_token, translate_errors
from ..http1 import CONNECT_SECONDS, Http1Pools
from ..trusted_cas import ca_bundle_path
from .credentials import renewal_of, session_with_credentials
from .private_parts import RecordParserFactory, http_session_of, tls_context_for

if TYPE_CHECKING:
    from ..http2 import Http2Sender

_UNLIMITED = 0
FAST_APIS = ("GetRecords", "PutRecords", "GetShardIterator")
"""The calls that are sent without the SDK, because they are frequent, or because a thousand shards make them at once.

Only the first call for a stream uses the SDK.
"""


class SdkTransport:
    """A Transport that uses the SDK: a session and two clients. Each client is opened by its first call, on the event loop of that call.

    Each call has a deadline (`aws.request.timeout`). Time in which the process was suspended does not count, so a response that arrived in
    that time is read, and a write is not repeated needlessly.

    One of the clients is for subscriptions, and has no read time-out: `fanout` decides how long a subscription may be silent, because it
    can distinguish silence from back-pressure. With `aws.http.protocol.version=HTTP2` this client only builds and signs the requests, and
    `http2.py` sends them.

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
        self._endpoint_check = EndpointCheck()
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

        return await retry_with_new_token(subscribe_once, renewal_of(self._session))

    async def endpoint_url(self) -> str:
        """Return the URL that calls go to: the endpoint of the properties, or else that of the environment and the SDK's rules."""
        return str((await self._client("calls")).meta.endpoint_url)

    async def close(self) -> None:
        """Close both clients. Open subscriptions end.

        A call that starts in the meantime opens a client of its own, and nothing closes this client.
        """
        async with self._lock:
            closing, self._open = self._open, AsyncExitStack()
            self._clients.clear()
            self._fast_path.clear()
        for http in (self._http1, self._http2):
            if http is not None:
                await http.close()
        await closing.aclose()

    async def _call(self, api: str, parameters: dict[str, Any], body: bytes | None) -> dict[str, Any]:
        return await retry_with_new_token(partial(self._call_once, api, parameters, body), renewal_of(self._session))

    async def _call_once(self, api: str, parameters: dict[str, Any], body: bytes | None) -> dict[str, Any]:
        await self._start_limiter.wait_for_slot()
        with self._endpoint_check.translate_errors(api):
            async with observed_timeout(self._clock, self._seconds):
                client = await self._client("calls")
                response: dict[str, Any] | None = None
                if api in QUEUE_CALLS:
                    return await self._call_queue(client, api, parameters)
                # 1. Send a frequent call without the SDK, if the SDK has sent one for this stream before.
                if api in self._fast_path:
                    response = await self._fast_path[api].call(parameters, body)
                # 2. Let the SDK make any other call. The first call for a stream shows the route of later ones.
                if response is None:
                    with preset_body(body):
                        response = await getattr(client, xform_name(api))(**parameters)
                    _refuse_empty(response)
                return response

    async def _call_queue(self, client: Any, api: str, parameters: dict[str, Any]) -> dict[str, Any]:
        """Make a call about a queue. The SDK does not know these calls, so this method builds and signs the request.

        If the call needs a proxy, the SDK's HTTP session sends it.
        """
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
            self._fast_path[api] = FastPathCalls(
                api, http, self._frozen_credentials, RememberedRoutes(client, api).route_of
            )

    async def _frozen_credentials(self) -> Any | None:
        """Return the keys to sign a call with, or None. Each call asks the SDK for them, so that the SDK renews them as usual."""
        credentials = await self._session.get_credentials()
        return None if credentials is None else await credentials.get_frozen_credentials()

    def _create(self) -> Any:
        config = AioConfig(
            connect_timeout=CONNECT_SECONDS,
            read_timeout=None,  # `_call_once` sets the deadline.
            # With a limit, calls could wait behind subscriptions for ever (F1). No more connections are opened than one call and one
            # subscription for each shard need.
            max_pool_connections=_UNLIMITED,
            retries={"total_max_attempts": 1, "mode": "standard"},  # Our policies own the retries.
            warm_up_loader_caches=True,  # The service model is read outside the event loop.
        )
        return self._session.create_client(
            "kinesis", region_name=self._region, endpoint_url=self._endpoint, config=config
        )


def make_http2_sender(properties: Properties, ca_bundle: str | None) -> Http2Sender | None:
    """Return the sender of subscribe requests over HTTP/2, or None if the properties do not select HTTP/2.

    Raises: ConfigurationError if the extra `http2` is not installed.
    """
    if properties.value(HTTP_PROTOCOL) != "HTTP2":
        return None
    try:
        from ..http2 import Http2Sender, Http2Settings
    except ImportError as error:
        reason = f"HTTP2 needs the extra 'http2': {install_command('http2')}"
        raise ConfigurationError(HTTP_PROTOCOL.key, "HTTP2", HTTP_PROTOCOL.valid, reason=reason) from error
    return Http2Sender(Http2Settings(ca_bundle, **values_of(Http2Settings, properties)))


def _refuse_empty(response: dict[str, Any]) -> None:
    """Check that a response in which the SDK has found no field is from the service.

    Raises: ForeignResponseError if another server has sent it.
    """
    if len(response) != 1:
        return
    headers = response.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    kind = headers.get("content-type", "")
    # Nothing, or `{}`, is the response of calls without a result.
    is_empty = headers.get("content-length") in (
        "0",
        "2",
    )
    if not is_empty:
        refuse_foreign(headers, f"of the type {kind} and has no field of the API")


class _StreamParameter(msgspec.Struct):
    """The name of the stream in a request body. Other fields are ignored."""

    StreamARN: str = ""
    StreamName: str = ""


_STREAM_PARAMETER = msgspec.json.Decoder(_StreamParameter)
_ROUTE_HEADERS = ("User-Agent", "X-Amz-Target", "Content-Type")


class RememberedRoutes:
    """Remembers, for one API and for each stream, the URL and headers of the last call that the SDK has sent.

    So the SDK's endpoint rules, hooks and user agent also apply to later calls that are sent without the SDK.
    """

    def __init__(self, client: Any, api: str) -> None:
        self._region = client.meta.region_name
        self._routes: dict[str, SignedPost] = {}
        client.meta.events.register_last(f"before-send.kinesis.{api}", self.remember)

    def route_of(self, parameters: dict[str, Any]) -> SignedPost | None:
        """Return the URL and headers of a call with these parameters, or None before the SDK has sent a call for its stream."""
        return self._routes.get(parameters.get("StreamARN") or parameters.get("StreamName", ""))

    def remember(self, request: AWSPreparedRequest, **_: Any) -> None:
        """Remember the URL and headers of a call. This handles the SDK's event `before-send`."""
        body = request.body if isinstance(request.body, bytes) else request.body.getvalue()
        named = _STREAM_PARAMETER.decode(body)
        headers = {name: _text(request.headers[name]) for name in _ROUTE_HEADERS if name in request.headers}
        self._routes[named.StreamARN or named.StreamName] = SignedPost(request.url, headers, self._region)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
