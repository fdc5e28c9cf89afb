"""FastPathCalls: sends frequent calls to the SDK's endpoint with the SDK's signature, but without its HTTP client."""

import time
from typing import Any, cast

import msgspec
from botocore.awsrequest import AWSPreparedRequest
from botocore.exceptions import ClientError

from ..codec.incremental_decoder import IncrementalReadDecoder
from ..codec.response_decoders import READ, RESPONSE_DECODERS
from ..sdk_internals import RecordParser
from .http1_pool import Http1Pools
from .http1_response import BodyReader, BufferedBody, ResponseHead
from .sigv4 import SignedPost

APIS = ("GetRecords", "PutRecords", "GetShardIterator")
"""The frequent calls, and those that a thousand shards make at once."""
_ROUTE_HEADERS = ("User-Agent", "X-Amz-Target", "Content-Type")


class _StreamParameter(msgspec.Struct):
    """The stream that a body names; other fields are ignored."""

    StreamARN: str = ""
    StreamName: str = ""


_STREAM_PARAMETER = msgspec.json.Decoder(_StreamParameter)
_PARSER = RecordParser()


class FastPathCalls:
    """The calls of one of `APIS` for a tenth of the SDK's CPU: signed by `SignedPost`, sent by `Http1Pools`, decoded while they arrive.

    Owns the route of each stream. The first call for a stream goes through the SDK, with its endpoint rules, hooks and user agent, and
    `remember_route` keeps the URL and headers. Credentials are read from the SDK at each call, so they are renewed as usual. The SDK also
    keeps every call that the fast path does not cover: through a proxy, or with an SDK that keeps its HTTP session elsewhere.
    """

    def __init__(self, session: Any, client: Any, http: Http1Pools, api: str) -> None:
        self._session = session
        self._http = http
        self._api = api
        self._region = client.meta.region_name
        self._routes: dict[str, SignedPost] = {}
        client.meta.events.register_last(f"before-send.kinesis.{api}", self.remember_route)

    def remember_route(self, request: AWSPreparedRequest, **_: Any) -> None:
        """Handler of the SDK's event `before-send`: keep URL and headers of calls for this stream."""
        body = request.body if isinstance(request.body, bytes) else request.body.getvalue()
        named = _STREAM_PARAMETER.decode(body)
        headers = {name: _text(request.headers[name]) for name in _ROUTE_HEADERS if name in request.headers}
        self._routes[named.StreamARN or named.StreamName] = SignedPost(request.url, headers, "kinesis", self._region)

    async def call(self, parameters: dict[str, Any], body: bytes | None = None) -> dict[str, Any] | None:
        """Return the response as the SDK would; None: the SDK must make this call. `body`: encoded by the caller.

        Raises: the SDK's ClientError and network errors, which `translate_errors` maps, as for the SDK's own calls.
        """
        route = self._routes.get(parameters.get("StreamARN") or parameters.get("StreamName", ""))
        if "Timestamp" in parameters:  # the SDK serialises timestamps in its own format
            return None
        if route is None or (pool := self._http.pool(route.url)) is None:
            return None
        credentials = await self._session.get_credentials()
        if credentials is None:
            return None
        frozen = await credentials.get_frozen_credentials()
        request = route.build(body or msgspec.json.encode(parameters), frozen, time.time())
        head, reader = await pool.exchange(request, self._reader, self._api != "PutRecords")
        if isinstance(reader, IncrementalReadDecoder):
            return {READ: reader.body}
        content = cast("BufferedBody", reader).content
        if head.status >= 300:
            response = {"status_code": head.status, "headers": head.headers, "body": content}
            raise ClientError(await _PARSER.parse(response, None), self._api)
        return RESPONSE_DECODERS[f"{self._api}Output"](content)

    def _reader(self, head: ResponseHead) -> BodyReader:
        return IncrementalReadDecoder() if self._api == "GetRecords" and head.status < 300 else BufferedBody()


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
