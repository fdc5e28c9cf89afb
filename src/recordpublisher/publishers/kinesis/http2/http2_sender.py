"""Http2Sender sends requests that the SDK has signed over a pool of HTTP/2 connections, and returns their responses to the SDK."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any
from urllib.parse import SplitResult, urlsplit

from botocore.awsrequest import AWSPreparedRequest, HeadersDict

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.groups.reading import HTTP_PROTOCOL

from ..ca_bundle import client_tls
from ..endpoint import host_header, tls_name
from ..error_mapping import StreamLostError
from ..proxies import proxy_for
from .http2_connection import Http2Connection, Http2Settings
from .http2_stream import Http2Stream


class Http2ConnectionPool:
    """Owns its connections. A request never waits for other streams (F1): if no connection has capacity, another is opened.

    All waiting requests share the connection that is being opened, or its error.
    """

    def __init__(self, url: SplitResult, settings: Http2Settings) -> None:
        self._url = url
        self._settings = settings
        self._connections: list[Http2Connection] = []
        self._opening: asyncio.Task[None] | None = None

    async def connection(self) -> Http2Connection:
        """Return a connection with capacity for one more stream. The caller must open the stream without awaiting in between.

        Raises: StreamLostError if the pool is closed or the connection is lost, ConfigurationError if the server does
        not support HTTP/2, and the errors of connecting.
        """
        while True:
            self._connections = [connection for connection in self._connections if not connection.is_closed]
            for connection in self._connections:
                if connection.has_capacity and await connection.is_alive() and connection.has_capacity:
                    return connection
            await self._open_another()

    async def close(self) -> None:
        """Close every connection; open streams end."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        connections, self._connections = self._connections, []
        for connection in connections:
            connection.close()
        for connection in connections:
            await connection.wait_closed()

    async def _open_another(self) -> None:
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._open())
            # All waiters may be gone. The callback marks the exception as retrieved.
            self._opening.add_done_callback(lambda task: task.cancelled() or task.exception())
        opening = self._opening
        await asyncio.wait([opening])  # a cancelled waiter does not cancel it for the others
        if opening.cancelled():
            raise StreamLostError("closed")
        opening.result()

    async def _open(self) -> None:
        settings, host, tls = self._settings, self._url.hostname or "", self._url.scheme == "https"
        async with asyncio.timeout(settings.open_seconds):
            context = await asyncio.to_thread(client_tls, settings.ca_bundle, self._url.geturl(), "h2") if tls else None
            _, connection = await asyncio.get_running_loop().create_connection(
                partial(Http2Connection, settings),
                host,
                self._url.port or (443 if tls else 80),
                ssl=context,
                server_hostname=tls_name(self._url) if tls else None,
            )
            try:
                await connection.ready()
            except BaseException:
                connection.close()
                raise
        self._connections.append(connection)


_HTTP1_ONLY_HEADERS = {"host", "connection", "transfer-encoding", "keep-alive", "upgrade", "proxy-connection"}
_MAX_ERROR_BODY_BYTES = 64 * 1024


class Http2Sender:
    """Owns a connection pool for each server. The SDK still does endpoint rules, signing, user agent and error parsing."""

    def __init__(self, settings: Http2Settings) -> None:
        self._settings = settings
        self._pools: dict[str, Http2ConnectionPool] = {}

    async def send(self, request: AWSPreparedRequest, **_: Any) -> Http2Response:
        """Send a request and return the response: the handler of the SDK's event `before-send`.

        Raises: ConfigurationError if the SDK would use a proxy, StreamLostError if the stream is lost, OSError if the
        connection fails, TimeoutError if it takes too long.
        """
        url = urlsplit(request.url)
        connection = await self._pool_of(url).connection()
        stream = connection.request(_headers(request, url), request.body)
        try:
            await stream.wait_for_headers()
        except BaseException:
            stream.close()
            raise
        return Http2Response(stream)

    async def close(self) -> None:
        """Close every connection; open streams end."""
        pools, self._pools = self._pools, {}
        for pool in pools.values():
            await pool.close()

    def _pool_of(self, url: SplitResult) -> Http2ConnectionPool:
        server = f"{url.scheme}://{url.netloc}"
        if server not in self._pools:
            _refuse_proxy(url)
            self._pools[server] = Http2ConnectionPool(url, self._settings)
        return self._pools[server]


def _refuse_proxy(url: SplitResult) -> None:
    """Refuse a direct connection if the SDK would use a proxy, because a network may forbid it.

    Raises: ConfigurationError if a proxy is set for `url`.
    """
    if proxy_for(url.geturl()) is None:
        return
    name = f"{url.scheme.upper()}_PROXY"
    raise ConfigurationError(
        HTTP_PROTOCOL.key,
        "HTTP2",
        f"HTTP1_1, or HTTP2 with {url.hostname} in NO_PROXY",
        reason=f"requests to {url.hostname} go through a proxy ({name}), and subscriptions over HTTP/2 cannot",
    )


class Http2Response:
    """A response in the form that the SDK expects from its HTTP client."""

    def __init__(self, stream: Http2Stream) -> None:
        self.status_code = stream.status
        self.headers = HeadersDict(stream.headers)
        self.raw = stream

    @property
    async def content(self) -> bytes:
        """The body of an error response. A long page of a proxy is truncated."""
        body = b""
        try:
            while len(body) < _MAX_ERROR_BODY_BYTES and (data := await self.raw.readany()):
                body += data
        finally:
            self.raw.close()
        return body


def _headers(request: AWSPreparedRequest, url: SplitResult) -> list[tuple[str, str]]:
    """Return the request's headers in HTTP/2 form: names in lower case, the signed host as authority."""
    given = {
        name.lower(): value.decode() if isinstance(value, bytes) else str(value)
        for name, value in request.headers.items()
    }
    path = f"{url.path or '/'}{f'?{url.query}' if url.query else ''}"
    pseudo = {":method": request.method, ":authority": host_header(url), ":scheme": url.scheme, ":path": path}
    return [*pseudo.items(), *((name, value) for name, value in given.items() if name not in _HTTP1_ONLY_HEADERS)]
