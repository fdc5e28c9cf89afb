"""The SDK's clients of one job: one for calls, one for subscriptions."""

from __future__ import annotations

import asyncio
import functools
from collections import deque
from collections.abc import Iterable
from contextlib import AsyncExitStack
from typing import Any

from aiobotocore.config import AioConfig
from botocore import xform_name
from botocore.loaders import create_loader

from ..clock import Clock, SystemClock, observed_timeout
from ..properties.properties import Properties
from ..properties.table import HTTP_CLIENT, REQUEST_TIMEOUT
from .codec.put_records import preset_body, replace_body
from .codec.sdk_parser import RecordParserFactory
from .credentials import session_with_credentials
from .endpoint import endpoint_of, region_of
from .error_mapping import translate_errors
from .fast_path.call import APIS, FastPathCalls
from .fast_path.http1_client import Http1Client
from .http2 import make_http2_sender
from .tls import ca_bundle_path

_UNLIMITED = 0
_CONNECT_SECONDS = 10.0


@functools.cache
def _loader(data_path: str | None) -> Any:
    """The SDK's models and endpoint rules, read once for all clients of the process: 70 ms of CPU for each further one otherwise."""
    return create_loader(data_path)


class SdkTransport:
    """Owns an SDK session and two clients, opened at the first call, on the loop of that call.

    Calls have a deadline each (`aws.request.timeout`), which a process that stood still does not use up: what was answered meanwhile is
    read, and a write is not sent again for nothing. Subscriptions have a client of their own, without a read time-out: how long
    silence may last is decided by the fan-out room, which knows back-pressure from it (F5). Neither pool is limited: on a
    sized one, calls behind subscriptions hang without an error (F1), and there is at most one of each for a shard. With
    `aws.http.protocol.version=HTTP2` the client of subscriptions builds and signs, and what it built goes out over HTTP/2.
    """

    def __init__(self, properties: Properties, streams: Iterable[str] = (), clock: Clock | None = None) -> None:
        """Check endpoint, region, credential properties and the CA bundle. Raises: ConfigurationError."""
        self._endpoint = endpoint_of(properties)
        self._region = region_of(properties, streams)
        self._seconds = properties.value(REQUEST_TIMEOUT) / 1000
        self._clock = clock or SystemClock()
        self._uses_fast_path = properties.value(HTTP_CLIENT) == "OWN"
        self._session = session_with_credentials(properties, self._region)
        self._session.register_component("response_parser_factory", RecordParserFactory())
        self._session.register_component("data_loader", _loader(self._session.get_config_variable("data_path")))
        self._open = AsyncExitStack()
        self._clients: dict[str, Any] = {}
        self._fast_path: dict[str, FastPathCalls] = {}
        self._lock = asyncio.Lock()
        self._http1: Http1Client | None = None
        self._start_limiter = CallStartLimiter()
        self._http2 = make_http2_sender(properties, self._seconds, ca_bundle_path(self._session))

    async def call(self, api: str, **parameters: Any) -> dict[str, Any]:
        """One call with a deadline and without retries. Raises: the translated error."""
        return await self._call(api, parameters, None)

    async def call_with_body(self, api: str, body: bytes, **parameters: Any) -> dict[str, Any]:
        """A call whose body was encoded by us; `parameters` are what the SDK needs to find the way."""
        return await self._call(api, parameters, body)

    async def subscribe(self, api: str, **parameters: Any) -> dict[str, Any]:
        """One call whose answer stays open; the caller sets the deadline. Raises: the translated error."""
        with translate_errors(api):
            client = await self._client("subscriptions")
            answer: dict[str, Any] = await getattr(client, xform_name(api))(**parameters)
            return answer

    async def close(self) -> None:
        """Close both clients; open subscriptions end."""
        self._clients.clear()
        self._fast_path.clear()
        for http in (self._http1, self._http2):
            if http is not None:
                await http.close()
        await self._open.aclose()

    async def _call(self, api: str, parameters: dict[str, Any], body: bytes | None) -> dict[str, Any]:
        await self._start_limiter.wait_for_slot()
        with translate_errors(api):
            async with observed_timeout(self._clock, self._seconds):
                client = await self._client("calls")
                answer: dict[str, Any] | None = None
                if api in self._fast_path:
                    answer = await self._fast_path[api].call(parameters, body)
                if answer is None:
                    with preset_body(body):
                        answer = await getattr(client, xform_name(api))(**parameters)
                return answer

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
        http_session = getattr(getattr(client, "_endpoint", None), "http_session", None)
        self._http1 = http = Http1Client(http_session, min(_CONNECT_SECONDS, self._seconds))
        self._fast_path.update({api: FastPathCalls(self._session, client, http, api) for api in APIS})

    def _create(self) -> Any:
        config = AioConfig(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=None,  # deadlines are ours
            max_pool_connections=_UNLIMITED,
            retries={"total_max_attempts": 1, "mode": "standard"},  # our policies own retries
            warm_up_loader_caches=True,  # reads the service model off the loop
        )
        return self._session.create_client(
            "kinesis", region_name=self._region, endpoint_url=self._endpoint, config=config
        )


MAX_STARTS_PER_LOOP_ITERATION = 32
"""Signing and sending a call is half a millisecond of CPU: a turn that begins a thousand reads no answer for that long (F1)."""


class CallStartLimiter:
    """Lets so many pass in one turn of the loop, the others in the next ones, in order; how long a call then takes delays nobody (P7)."""

    def __init__(self, per_iteration: int = MAX_STARTS_PER_LOOP_ITERATION) -> None:
        self._at_once = per_iteration
        self._free = per_iteration
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait_for_slot(self) -> None:
        """Wait for a slot in a turn."""
        loop = asyncio.get_running_loop()
        if self._free == self._at_once:
            loop.call_soon(self._start_iteration, loop)
        if self._free:
            self._free -= 1
            return
        slot = loop.create_future()
        self._waiting.append(slot)
        await slot

    def _start_iteration(self, loop: asyncio.AbstractEventLoop) -> None:
        """A new turn: who waits goes first."""
        self._free = self._at_once
        while self._free and self._waiting:
            slot = self._waiting.popleft()
            if not slot.done():
                slot.set_result(None)
                self._free -= 1
        if self._free < self._at_once:
            loop.call_soon(self._start_iteration, loop)
