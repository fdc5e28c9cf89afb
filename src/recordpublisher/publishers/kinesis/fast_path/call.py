"""FastPathCalls makes the frequent calls of one API with our own signature, HTTP client and decoders."""

import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from http import HTTPStatus
from typing import Any, cast

import msgspec

from recordpublisher.publishers.errors import KinesisError

from ..codec.incremental_decoder import IncrementalReadDecoder
from ..codec.response_decoders import READ, RESPONSE_DECODERS, Decode, decode_error, decode_object
from ..error_mapping import error_for_code
from .http1_pool import Http1Pools
from .http1_response import BodyReader, BufferedBody, ResponseHead
from .sigv4 import Credentials, SignedPost

_PHRASES = {status.value: status.phrase for status in HTTPStatus}
RouteOf = Callable[[dict[str, Any]], SignedPost | None]
"""Returns the route of a call, from its parameters, or None if the SDK must make the call."""


class FastPathCalls:
    """Makes calls for a tenth of the SDK's CPU: signed by `SignedPost`, sent by `Http1Pools`, decoded while they arrive.

    It asks for credentials at each call, so they are renewed as usual. It leaves to the SDK a call without a route or
    credentials, or through a proxy.
    """

    def __init__(
        self, api: str, http: Http1Pools, credentials: Callable[[], Awaitable[Credentials | None]], route_of: RouteOf
    ) -> None:
        self._api = api
        self._http = http
        self._credentials = credentials
        self._route_of = route_of

    async def call(self, parameters: dict[str, Any], body: bytes | None = None) -> dict[str, Any] | None:
        """Return the response as the SDK would, or None if the SDK must make this call.

        `body` is the request body if the caller has encoded it.

        Raises: KinesisError if the response is an error; network errors, which `translate_errors` maps.
        """
        route = self._route_of(parameters)
        if route is None or (pool := self._http.pool(route.url)) is None:
            return None
        credentials = await self._credentials()
        if credentials is None:
            return None
        request = route.build(body or _encoded(parameters), credentials, time.time())
        head, reader = await pool.exchange(request, self._reader, self._api != "PutRecords")
        if isinstance(reader, IncrementalReadDecoder):
            return {READ: reader.body}
        content = cast("BufferedBody", reader).content
        if head.status >= 300:
            raise error_in_response(self._api, head.status, content)
        decode: Decode = RESPONSE_DECODERS.get(f"{self._api}Output", decode_object)
        return {**decode(content), "ResponseMetadata": {"HTTPHeaders": head.headers}}

    def _reader(self, head: ResponseHead) -> BodyReader:
        return IncrementalReadDecoder() if self._api == "GetRecords" and head.status < 300 else BufferedBody()


def _encoded(parameters: dict[str, Any]) -> bytes:
    """Return the parameters as JSON. A time is epoch seconds, as the SDK sends it."""
    at = parameters.get("Timestamp")
    if isinstance(at, datetime):
        parameters = {**parameters, "Timestamp": at.timestamp()}
    return msgspec.json.encode(parameters)


def error_in_response(api: str, status: int, body: bytes) -> KinesisError:
    """Return the error in a response, as the SDK reads it: its code is the name in `__type`, else the status."""
    text = body.strip()
    if status >= 500 and (not text or text.startswith(b"<html>")):  # the response of a load balancer
        return error_for_code(api, str(status), _PHRASES.get(status, ""), status)
    details = decode_error(body)
    code = details.get("__type", str(status)).partition(":")[0].rpartition("#")[2]
    return error_for_code(api, code, details.get("message", details.get("Message", "")), status)
