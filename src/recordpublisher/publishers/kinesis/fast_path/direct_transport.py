"""DirectTransport sends the calls of most jobs without the AWS SDK, which is not even imported."""

from collections.abc import Callable
from functools import partial
from typing import Any

from recordpublisher.publishers.clock import Clock, SystemClock, observed_timeout
from recordpublisher.publishers.properties.groups.reading import REQUEST_TIMEOUT
from recordpublisher.publishers.properties.properties import Properties

from ..ca_bundle import client_tls, environment_ca_bundle
from ..call_starts import CallStartLimiter
from ..error_mapping import with_new_token
from ..error_translation import translate_errors
from ..known_access import CALLS, Keys, KnownAccess, known_access
from ..ports import Transport
from ..queue_calls import QUEUE_CALLS, queue_url
from .call import FastPathCalls
from .http1_pool import CONNECT_SECONDS, Http1Pools
from .sigv4 import SignedPost, json_headers


class DirectTransport:
    """Implements the Transport port for `CALLS` and `QUEUE_CALLS`, over our own HTTP/1.1 and signatures.

    It passes every other call to the SDK's transport, which it owns as well, and makes at the first such call. Calls
    have the same deadline and limit of starts as in `SdkTransport`.

    Raises: ConfigurationError if the trusted CAs cannot be used.
    """

    def __init__(
        self, access: KnownAccess, properties: Properties, with_sdk: Callable[[], Transport], clock: Clock | None = None
    ) -> None:
        self._access, self._properties = access, properties
        self._seconds = properties.value(REQUEST_TIMEOUT) / 1000
        self._clock = clock or SystemClock()
        self._with_sdk = with_sdk
        self._sdk: Transport | None = None
        self._start_limiter = CallStartLimiter()
        self._routes: dict[tuple[str, str | None], SignedPost | None] = {}
        ca_bundle = environment_ca_bundle(access.endpoint or "https:")
        self._http = Http1Pools(partial(client_tls, ca_bundle), min(CONNECT_SECONDS, self._seconds))
        apis = (*CALLS, *QUEUE_CALLS)
        self._calls = {api: FastPathCalls(api, self._http, self._keys, partial(self._route, api)) for api in apis}

    async def call(self, api: str, **parameters: Any) -> dict[str, Any]:
        """Make one call with a deadline and without retries.

        Raises: KinesisError if the call fails, ConfigurationError if the credentials cannot be used.
        """
        response = await self._call(api, parameters, None)
        return response or await self._sdk_transport().call(api, **parameters)

    async def call_with_body(self, api: str, body: bytes, **parameters: Any) -> dict[str, Any]:
        """Make a call whose body is already encoded; `parameters` name the stream."""
        response = await self._call(api, parameters, body)
        return response or await self._sdk_transport().call_with_body(api, body, **parameters)

    async def subscribe(self, api: str, **parameters: Any) -> dict[str, Any]:
        """Make one call whose response stays open; the caller sets the deadline.

        Raises: KinesisError if the call fails, ConfigurationError if the credentials cannot be used.
        """
        return await self._sdk_transport().subscribe(api, **parameters)

    async def close(self) -> None:
        """Close every connection; open subscriptions end."""
        await self._http.close()
        if self._sdk is not None:
            await self._sdk.close()

    async def _call(self, api: str, parameters: dict[str, Any], body: bytes | None) -> dict[str, Any] | None:
        """Return the response, or None if the SDK must make this call."""
        if api not in self._calls:
            return None
        used = self._access.keys
        return await with_new_token(
            partial(self._call_once, api, parameters, body), partial(self._has_other_keys, used)
        )

    async def _has_other_keys(self, used: Keys) -> bool:
        """Read the environment and the profile again, and return whether they now have other keys."""
        self._access = known_access(self._properties, self._access.region, None) or self._access
        return self._access.keys != used

    async def _call_once(self, api: str, parameters: dict[str, Any], body: bytes | None) -> dict[str, Any] | None:
        await self._start_limiter.wait_for_slot()
        with translate_errors(api):
            async with observed_timeout(self._clock, self._seconds):
                return await self._calls[api].call(parameters, body)

    def _sdk_transport(self) -> Transport:
        if self._sdk is None:
            self._sdk = self._with_sdk()
        return self._sdk

    async def _keys(self) -> Keys:
        return self._access.keys

    def _route(self, api: str, parameters: dict[str, Any]) -> SignedPost | None:
        named = api, parameters.get("StreamARN", parameters.get("QueueARN"))
        if named not in self._routes:
            url = self._access.url_of(None if api in QUEUE_CALLS else named[1], api)
            url = queue_url(url, api, named[1]) if url is not None and api in QUEUE_CALLS else url
            region = self._access.region
            self._routes[named] = None if url is None else SignedPost(url, json_headers(api), region)
        return self._routes[named]
