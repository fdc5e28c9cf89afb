"""Serves a few pages over HTTP, on TCP or on a Unix socket. No client can slow down or end the job through this server."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web

log = logging.getLogger("recordpublisher.metrics")
_log_of_peers = logging.getLogger("recordpublisher.metrics.peers")
# Aiohttp logs a traceback for each malformed request, so a client could fill the job's log.
_log_of_peers.disabled = True

MAX_CONNECTIONS = 64
IDLE_SECONDS = 30.0
"""A connection without a complete request is closed after this time (seconds)."""
CLOSE_SECONDS = 1.0
BROWSER_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
"""Headers of servers for this machine. Browsers then store no response, and use only the given content type."""
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")


class HttpPages:
    """Serves pages over HTTP. Owns the listening socket and its connections, of which there are at most `MAX_CONNECTIONS`.

    A further connection replaces the oldest one that waits for a request, so idle clients cannot keep a probe away.

    - `pages`: the function that makes each page.
    - `is_local`: whether to refuse requests that name another host than `localhost` or a loopback address. Then no other site in a browser
      can read the pages, even if the site's name resolves to this machine.
    """

    def __init__(self, pages: Pages, is_local: bool = False) -> None:
        self._pages = pages
        self._is_local = is_local
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> int:
        """Listen on TCP, and return the port. Raises: OSError if the address cannot be used."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._protocol_factory(), host, port)
        return int(self._server.sockets[0].getsockname()[1])

    async def listen_on_path(self, path: Path) -> None:
        """Listen on a Unix socket. Raises: OSError if the path cannot be used."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(self._protocol_factory(), path)

    async def close(self) -> None:
        """Close the socket and every connection."""
        if self._server is not None:
            self._server.close()
            await self._requests.shutdown(CLOSE_SECONDS)

    def _protocol_factory(self) -> Callable[[], asyncio.Protocol]:
        self._requests = _BoundedServer(
            self._respond, logger=_log_of_peers, access_log=None, keepalive_timeout=IDLE_SECONDS
        )
        return self._requests.accept

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        with self._requests.answering(request.protocol):
            return await self._response_to(request)

    async def _response_to(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method not in ("GET", "HEAD"):
            return web.Response(status=405, headers={"Allow": "GET, HEAD"})
        if self._is_local and _name_of(request.headers.get("Host", LOCAL_NAMES[0])) not in LOCAL_NAMES:
            return web.Response(status=403, text=f"the name of the host must be one of {', '.join(LOCAL_NAMES)}\n")
        page = self._pages.get(request.path)
        if page is None:
            return web.Response(status=404, text=f"not found; the pages are {', '.join(self._pages)}\n")
        try:
            made = await page()
        except Exception:
            # The client gets no details, because a page may be public.
            log.exception("the page %s cannot be made, so the client gets status 500", request.path)
            return web.Response(status=500, text="the page cannot be made; see the log of the job\n")
        headers = {**(BROWSER_HEADERS if self._is_local else {}), **made.headers, "Content-Type": made.content_type}
        return web.Response(body=made.body, status=made.status, headers=headers)


@dataclass(frozen=True, slots=True)
class Page:
    """The response to a request for a page."""

    body: bytes
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


Pages = Mapping[str, Callable[[], Awaitable[Page]]]
"""A function for each path. It returns the response to GET and HEAD."""


def _name_of(host: str) -> str:
    """Return a host without its port. The port may differ behind a tunnel."""
    name, _, port = host.rpartition(":")
    return name.lower() if name and port.isdecimal() else host.lower()


class _BoundedServer(web.Server):
    """A server with a limited number of connections. Owns the open ones, the oldest first, and the set of those that are being answered."""

    def __init__(self, *given: Any, **settings: Any) -> None:
        super().__init__(*given, **settings)
        self._open: dict[web.RequestHandler, None] = {}
        self._answering: set[asyncio.Protocol] = set()

    def accept(self) -> asyncio.Protocol:
        if len(self._open) >= MAX_CONNECTIONS and not self._close_oldest():
            return _Refusal()  # All connections are being answered, so none may be closed for this one.
        accepted = self()
        self._open[accepted] = None
        return accepted

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        """Forget the connection. Called by aiohttp."""
        self._open.pop(handler, None)
        super().connection_lost(handler, exc)

    @contextmanager
    def answering(self, connection: asyncio.Protocol) -> Iterator[None]:
        """Mark the connection as being answered during the block."""
        self._answering.add(connection)
        try:
            yield
        finally:
            self._answering.discard(connection)

    def _close_oldest(self) -> bool:
        """Close the oldest connection that waits for a request. Return False if every connection is being answered."""
        waiting = next((connection for connection in self._open if connection not in self._answering), None)
        if waiting is not None:
            del self._open[waiting]
            waiting.force_close()
        return waiting is not None


class _Refusal(asyncio.Protocol):
    """The protocol of a connection that is refused: it closes the connection at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
