"""The server for HTTP/1.1, based on aiohttp."""

import logging

from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError

from .api_requests import MAX_BODY_BYTES, ApiRequests
from .certificate import Certificate
from .request_checks import Request

log = logging.getLogger("recordpublisher.local.http")


def _without_traceback(entry: logging.LogRecord) -> bool:
    """Log a malformed request, such as one with TLS, as one line. aiohttp would log a traceback."""
    error = entry.exc_info[1] if entry.exc_info else None
    if isinstance(error, (HttpProcessingError, web.RequestPayloadError)):
        entry.msg, entry.args, entry.exc_info = "malformed request: %.200s", (" ".join(str(error).split()),), None
    return True


log.addFilter(_without_traceback)


class AiohttpServer:
    """Owns a listener for HTTP/1.1, with TLS if there is a certificate."""

    def __init__(self, requests: ApiRequests, certificate: Certificate | None = None) -> None:
        self._requests = requests
        self._certificate = certificate
        app = web.Application(client_max_size=MAX_BODY_BYTES)
        app.on_response_prepare.append(_without_made_up_type)
        app.router.add_route("*", "/{tail:.*}", self._handle)
        self._runner = web.AppRunner(
            app,
            handler_cancellation=True,
            access_log=None,
            logger=log,
            shutdown_timeout=0.05,  # then open subscriptions are cancelled; 0 would wait for ever
        )

    async def start(self, host: str, port: int) -> int:
        """Listen, and return the port. Raises: OSError or OverflowError if that is not possible."""
        await self._runner.setup()
        context = None if self._certificate is None else self._certificate.server_context()
        try:
            await web.TCPSite(self._runner, host, port, ssl_context=context).start()
        except BaseException:
            await self._runner.cleanup()
            raise
        listening: int = self._runner.addresses[0][1]
        return listening

    async def close(self) -> None:
        """Stop listening and end every response."""
        await self._runner.cleanup()

    async def _handle(self, http: web.Request) -> web.StreamResponse:
        streams: list[_HttpResponseStream] = []

        def open_stream(headers: dict[str, str]) -> _HttpResponseStream:
            streams.append(_HttpResponseStream(http, headers))
            return streams[0]

        try:
            body = await http.read()
        except web.RequestPayloadError:  # aiohttp logs it when it has the response
            return web.Response(status=400, text="The body of the request cannot be read.")
        request = Request(http.method, http.headers, body, http.rel_url.raw_query_string)
        try:
            response = await self._requests.answer(request, open_stream)
        except ConnectionAbortedError:
            return _drop(http)
        if response is None:
            return streams[0].response
        return web.Response(status=response.status, headers=response.headers, body=response.body)


class _HttpResponseStream:
    """An HTTP response that stays open."""

    def __init__(self, request: web.Request, headers: dict[str, str]) -> None:
        self._request = request
        self.response = web.StreamResponse(headers=headers)

    async def start(self) -> None:
        await self.response.prepare(self._request)

    async def write(self, data: bytes) -> None:
        await self.response.write(data)

    async def end(self) -> None:
        await self.response.write_eof()

    def abort(self) -> None:
        if self._request.transport is not None:
            self._request.transport.abort()


async def _without_made_up_type(_: web.Request, response: web.StreamResponse) -> None:
    """Remove the content type that aiohttp adds to a response without one."""
    if response.headers.get(hdrs.CONTENT_TYPE) == "application/octet-stream":
        del response.headers[hdrs.CONTENT_TYPE]


def _drop(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)
