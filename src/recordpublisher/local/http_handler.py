"""AWS JSON 1.1 and CBOR 1.1 over HTTP: decodes a request, dispatches it, encodes the response."""

from collections.abc import Mapping
from email.utils import formatdate
from uuid import uuid4

import msgspec
from aiohttp import web

from .api_errors import ApiError
from .dispatcher import HTML_PAGE, HtmlPageError, RequestDispatcher
from .event_writer import write_events
from .operations.table import OPERATIONS
from .sigv4 import check_signature
from .streams.account import Account
from .wire_formats import JSON, WireFormat, format_of

TARGET_PREFIX = "Kinesis_20131202."
MAX_BODY_BYTES = 32 << 20  # 10 MiB of records are 14 MB of base64 text, keys and JSON around them


class HttpHandler:
    """Handles the HTTP requests of an account."""

    def __init__(self, account: Account, secrets: Mapping[str, str] | None) -> None:
        self._account = account
        self._dispatcher = RequestDispatcher(account)
        self._secrets = secrets

    def application(self) -> web.Application:
        """Return the aiohttp application that serves the account."""
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.router.add_route("*", "/{tail:.*}", self.handle)
        return app

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Handle one request."""
        headers = self._headers()
        received = await request.read()
        wire = JSON
        try:
            wire = format_of(request.headers.get("Content-Type", ""))
            operation = self._operation(request, received)
            body = wire.to_json(received)
            if operation == "SubscribeToShard":
                subscription = await self._dispatcher.subscribe(body)
                stream = _HttpResponseStream(request, headers, wire)
                await write_events(subscription, stream, self._account)
                return stream.response
            response = await self._dispatcher.call(operation, body)
        except ApiError as error:
            return _error(error, headers, wire)
        except HtmlPageError:
            return web.Response(status=503, body=HTML_PAGE, headers={**headers, "Content-Type": "text/html"})
        except ConnectionAbortedError:
            return _drop(request)
        return web.Response(body=wire.from_json(response), headers={**headers, "Content-Type": wire.content_type})

    def _operation(self, request: web.Request, body: bytes) -> str:
        """Return the name of the requested operation; raises ApiError for an unknown or unsigned one."""
        prefix, _, operation = request.headers.get("X-Amz-Target", "").rpartition(".")
        known = operation in OPERATIONS or operation == "SubscribeToShard"
        if request.method != "POST" or prefix + "." != TARGET_PREFIX or not known:
            raise ApiError("UnknownOperationException", f"No such operation here: {operation or request.method}")
        if self._secrets is not None:
            check_signature(request.headers, body, self._secrets)
        return operation

    def _headers(self) -> dict[str, str]:
        date = formatdate(self._account.clock.now_ms() / 1000, usegmt=True)
        return {"x-amzn-RequestId": str(uuid4()), "Date": date}


class _HttpResponseStream:
    """An HTTP response that stays open."""

    def __init__(self, request: web.Request, headers: Mapping[str, str], wire: WireFormat) -> None:
        self._request = request
        self._frame_from_json = wire.frame_from_json
        self.response = web.StreamResponse(headers={**headers, "Content-Type": "application/vnd.amazon.eventstream"})

    async def start(self) -> None:
        await self.response.prepare(self._request)

    async def write(self, data: bytes) -> None:
        await self.response.write(self._frame_from_json(data))

    async def end(self) -> None:
        await self.response.write_eof()

    def abort(self) -> None:
        if self._request.transport is not None:
            self._request.transport.abort()


def _error(error: ApiError, headers: dict[str, str], wire: WireFormat) -> web.Response:
    body = msgspec.json.encode({"__type": error.code, "message": error.message})
    return web.Response(
        status=error.status, body=wire.from_json(body), headers={**headers, "Content-Type": wire.content_type}
    )


def _drop(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)
