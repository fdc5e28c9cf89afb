"""DirectTransport sends the calls of most jobs without the AWS SDK. The SDK is not even imported.

A call is signed by `SignedPost`, sent by `Http1Pools`, and decoded while its response arrives. `FastPathCalls` combines these, at a tenth
of the SDK's CPU. `SdkTransport` also uses `FastPathCalls`, for the frequent calls.
"""

from __future__ import annotations

import asyncio
import hmac
import posixpath
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from functools import partial
from hashlib import sha256
from http import HTTPStatus
from typing import Any, Protocol, cast
from urllib.parse import quote, urlsplit

import msgspec

from ..clock import Clock, SystemClock, observed_timeout
from ..decoding_errors import UNDECODABLE
from ..errors import ConfigurationError, KinesisError
from ..properties.properties import Properties
from ..properties.reading_properties import CREDENTIALS_PROVIDER, REQUEST_TIMEOUT
from ..safe_text import MASK
from .access_without_sdk import AccessWithoutSdk, access_without_sdk
from .codec import READ, RESPONSE_DECODERS, Decode, IncrementalReadDecoder, decode_error, decode_object
from .credentials_without_sdk import Keys
from .endpoints import HOST_KINDS, QUEUE_CALLS, host_header, queue_url
from .error_mapping import EndpointCheck, error_for_code, refuse_foreign, retry_with_new_token
from .http1 import CONNECT_SECONDS, Http1Pools
from .http1_response import BodyReader, BufferedBody, ResponseHead
from .ports import Transport
from .trusted_cas import client_tls, environment_ca_bundle


class DirectTransport:
    """A Transport that makes the calls of `HOST_KINDS` and `QUEUE_CALLS` with this package's own HTTP/1.1 client and signatures.

    Other calls go through the SDK's transport. It is made at the first such call, and closed with this object. Calls have the same deadline
    as those of `SdkTransport`, and the same limit on how many start at once.

    Raises: ConfigurationError if the trusted CAs cannot be used.
    """

    def __init__(
        self,
        access: AccessWithoutSdk,
        properties: Properties,
        with_sdk: Callable[[], Transport],
        clock: Clock | None = None,
    ) -> None:
        self._access, self._properties = access, properties
        self._seconds = properties.value(REQUEST_TIMEOUT) / 1000
        self._clock = clock or SystemClock()
        self._with_sdk = with_sdk
        self._sdk: Transport | None = None
        self._start_limiter = CallStartLimiter()
        self._endpoint = EndpointCheck()
        self._routes: dict[tuple[str, str | None], SignedPost | None] = {}
        ca_bundle = environment_ca_bundle(access.endpoint or "https:")
        self._http = Http1Pools(partial(client_tls, ca_bundle), min(CONNECT_SECONDS, self._seconds))
        apis = (*HOST_KINDS, *QUEUE_CALLS)
        self._calls = {api: FastPathCalls(api, self._http, self._keys, partial(self._route, api)) for api in apis}

    async def call(self, api: str, **parameters: Any) -> dict[str, Any]:
        """Make one call, without retries, and return its response. The call has a deadline.

        Raises: KinesisError if the call fails; ConfigurationError if the credentials cannot be used.
        """
        response = await self._call(api, parameters, None)
        return response or await self._sdk_transport().call(api, **parameters)

    async def call_with_body(self, api: str, body: bytes, **parameters: Any) -> dict[str, Any]:
        """Make one call whose body is already encoded. `parameters` name the stream."""
        response = await self._call(api, parameters, body)
        return response or await self._sdk_transport().call_with_body(api, body, **parameters)

    async def subscribe(self, api: str, **parameters: Any) -> dict[str, Any]:
        """Make one call whose response stays open. The caller sets the deadline.

        Raises: KinesisError if the call fails; ConfigurationError if the credentials cannot be used.
        """
        return await self._sdk_transport().subscribe(api, **parameters)

    async def close(self) -> None:
        """Close every connection. Open subscriptions end."""
        await self._http.close()
        if self._sdk is not None:
            await self._sdk.close()

    async def _call(self, api: str, parameters: dict[str, Any], body: bytes | None) -> dict[str, Any] | None:
        """Make one call. Return None if only the SDK can make it."""
        if api not in self._calls:
            return None
        used = self._access.keys
        return await retry_with_new_token(
            partial(self._call_once, api, parameters, body), partial(self._has_other_keys, used)
        )

    async def _has_other_keys(self, used: Keys) -> bool:
        """Read the environment and the profile again. Return whether they now have other keys than `used`."""
        self._access = access_without_sdk(self._properties, self._access.region, None) or self._access
        return self._access.keys != used

    async def _call_once(self, api: str, parameters: dict[str, Any], body: bytes | None) -> dict[str, Any] | None:
        await self._start_limiter.wait_for_slot()
        with self._endpoint.translate_errors(api):
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


# --- one call -----------------------------------------------------------------------------------------------------------------------

_PHRASES = {status.value: status.phrase for status in HTTPStatus}


class FastPathCalls:
    """Makes the calls of one API with this package's own signature, HTTP client and decoders.

    It leaves a call to the SDK if the call's URL or keys are not known, or if it needs a proxy.

    - `credentials`: returns the keys. It is called before each request, so that expired keys are renewed.
    """

    def __init__(
        self, api: str, http: Http1Pools, credentials: Callable[[], Awaitable[Credentials | None]], route_of: RouteOf
    ) -> None:
        self._api = api
        self._http = http
        self._credentials = credentials
        self._route_of = route_of

    async def call(self, parameters: dict[str, Any], body: bytes | None = None) -> dict[str, Any] | None:
        """Make a call, and return the response in the SDK's form. Return None if the SDK must make this call.

        - `body`: the body of the request, or None to encode `parameters`.

        Raises: KinesisError if the response is an error; network errors, which `translate_errors` maps.
        """
        # 1. Find the URL, a connection and the keys.
        route = self._route_of(parameters)
        if route is None or (pool := self._http.pool(route.url)) is None:
            return None
        credentials = await self._credentials()
        if credentials is None:
            return None
        # 2. Sign and send. If an idle connection was lost, the request is repeated over a new one, except for a write, because its records
        #    might be written twice.
        request = route.build(body or _encode(parameters), credentials, time.time())
        head, reader = await pool.exchange(request, self._reader, self._api != "PutRecords")
        # 3. Decode the response. The records of a read were decoded while they arrived.
        if isinstance(reader, IncrementalReadDecoder):
            return {READ: reader.body}
        content = cast("BufferedBody", reader).content
        if head.status >= 300:
            raise error_in_response(self._api, head.status, content)
        decode: Decode = RESPONSE_DECODERS.get(f"{self._api}Output", decode_object)
        try:
            decoded = decode(content)
        except UNDECODABLE:
            refuse_foreign(head.headers, content.decode(errors="replace"))
            raise
        if decode is decode_object and decoded and not any(name[:1].isupper() for name in decoded):
            refuse_foreign(head.headers, content.decode(errors="replace"))
        return {**decoded, "ResponseMetadata": {"HTTPHeaders": head.headers}}

    def _reader(self, head: ResponseHead) -> BodyReader:
        return IncrementalReadDecoder() if self._api == "GetRecords" and head.status < 300 else BufferedBody()


def _encode(parameters: dict[str, Any]) -> bytes:
    """Return the parameters as JSON. A time becomes a number of epoch seconds, as the SDK sends it."""
    at = parameters.get("Timestamp")
    if isinstance(at, datetime):
        parameters = {**parameters, "Timestamp": at.timestamp()}
    return msgspec.json.encode(parameters)


def error_in_response(api: str, status: int, body: bytes) -> KinesisError:
    """Return the error in a response. As in the SDK, its code is the name in `__type`, or else the HTTP status."""
    text = body.strip()
    if status >= 500 and (not text or text.startswith(b"<html>")):  # A load balancer has answered, not the service.
        return error_for_code(api, str(status), _PHRASES.get(status, ""), status)
    details = decode_error(body)
    code = details.get("__type", str(status)).partition(":")[0].rpartition("#")[2]
    return error_for_code(api, code, details.get("message", details.get("Message", "")), status)


# --- the signature (Signature Version 4) --------------------------------------------------------------------------------------------

SERVICE = "kinesis"
JSON = "application/x-amz-json-1.1"
API_VERSION = "Kinesis_20131202"


class Credentials(Protocol):
    """The keys that sign a request. Frozen credentials of the SDK and `Keys` have these attributes."""

    access_key: str
    secret_key: str
    token: str | None


class SignedPost:
    """Builds signed POST requests to one URL of Kinesis. The signature is that of the SDK, in a tenth of its time.

    The parts that are the same in all requests are made once.

    - `headers`: must have `Content-Type` and `X-Amz-Target`. These are signed, as are host, time and session token. Other headers are sent
      unsigned.
    """

    def __init__(self, url: str, headers: Mapping[str, str], region: str) -> None:
        parts = urlsplit(url)
        self.url = url
        self._headers = headers
        self._region = region
        self._key = ("", ""), b""
        self._host = host_header(parts)
        self._fixed = f"POST\n{quote(_normalize(parts.path), safe='/~')}\n\n"
        sent = {"Host": self._host, **headers, "Accept-Encoding": "identity"}
        self._start = f"POST {parts.path or '/'} HTTP/1.1\r\n" + "".join(f"{k}: {v}\r\n" for k, v in sent.items())

    def build(self, body: bytes, credentials: Credentials, now: float) -> bytes:
        """Return the bytes of a request (head and body), signed at the time `now` (epoch seconds).

        Raises: ConfigurationError if the access key or the token has control characters.
        """
        if not (credentials.access_key + (credentials.token or "")).isprintable():
            raise ConfigurationError(
                CREDENTIALS_PROVIDER.key, MASK, "an access key and a token without control characters"
            )
        at = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
        signed = {
            "content-type": self._headers["Content-Type"],
            "host": self._host,
            "x-amz-date": at,
            **({"x-amz-security-token": credentials.token} if credentials.token else {}),
            "x-amz-target": self._headers["X-Amz-Target"],
        }
        names = ";".join(signed)
        lines = "".join([f"{name}:{' '.join(value.split())}\n" for name, value in signed.items()])
        canonical = f"{self._fixed}{lines}\n{names}\n{sha256(body).hexdigest()}"
        scope = f"{at[:8]}/{self._region}/{SERVICE}/aws4_request"
        text = f"AWS4-HMAC-SHA256\n{at}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
        signature = hmac.digest(self._signing_key(credentials.secret_key, at[:8]), text.encode(), "sha256").hex()
        token = f"X-Amz-Security-Token: {credentials.token}\r\n" if credentials.token else ""
        head = (
            f"{self._start}X-Amz-Date: {at}\r\n{token}"
            f"Authorization: AWS4-HMAC-SHA256 Credential={credentials.access_key}/{scope}, "
            f"SignedHeaders={names}, Signature={signature}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def _signing_key(self, secret: str, day: str) -> bytes:
        # The signing key is kept, because it takes four rounds of HMAC, and is the same for a day and a secret.
        if self._key[0] != (secret, day):
            key = f"AWS4{secret}".encode()
            for part in (day, self._region, SERVICE, "aws4_request"):
                key = hmac.digest(key, part.encode(), "sha256")
            self._key = ((secret, day), key)
        return self._key[1]


RouteOf = Callable[[dict[str, Any]], SignedPost | None]
"""A function that returns, for a call's parameters, the `SignedPost` of its URL, or None if the SDK must make the call."""


def json_headers(api: str) -> dict[str, str]:
    """Return the headers of a JSON call to Kinesis that is sent without the SDK."""
    return {"User-Agent": "recordpublisher", "X-Amz-Target": f"{API_VERSION}.{api}", "Content-Type": JSON}


def _normalize(path: str) -> str:
    """Return a path as it is signed: without empty segments, and with the segments `.` and `..` resolved."""
    normal = posixpath.normpath(f"/{path}").lstrip("/")
    return f"/{normal}/" if normal and path.endswith("/") else f"/{normal}"


# --- the start of calls -------------------------------------------------------------------------------------------------------------

MAX_STARTS_PER_LOOP_ITERATION = 32
"""The most calls that start in one iteration of the event loop.

Signing and sending a call takes half a millisecond of CPU. A thousand calls at once would block the loop for half a second.
"""


class CallStartLimiter:
    """Limits how many calls start in one iteration of the event loop. Further calls start in the next iterations, in order.

    The number of open calls is not limited, so a slow call delays no other call.
    """

    def __init__(self, per_iteration: int = MAX_STARTS_PER_LOOP_ITERATION) -> None:
        self._at_once = per_iteration
        self._free = per_iteration
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait_for_slot(self) -> None:
        """Wait until the call may start."""
        loop = asyncio.get_running_loop()
        # The first call of an iteration schedules the next iteration, so that an idle limiter costs nothing.
        if self._free == self._at_once:
            loop.call_soon(self._start_iteration, loop)
        if self._free:
            self._free -= 1
            return
        slot = loop.create_future()
        self._waiting.append(slot)
        await slot

    def _start_iteration(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin a new iteration of the event loop. Calls that wait come first."""
        self._free = self._at_once
        while self._free and self._waiting:
            slot = self._waiting.popleft()
            if not slot.done():
                slot.set_result(None)
                self._free -= 1
        if self._free < self._at_once:
            loop.call_soon(self._start_iteration, loop)
