"""HttpPages: a small HTTP server for a few pages, on TCP or on a Unix socket. No peer can disturb the job through it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aiohttp import web

log = logging.getLogger("recordpublisher.metrics")
_log_of_peers = logging.getLogger("recordpublisher.metrics.peers")
_log_of_peers.disabled = True  # aiohttp logs a traceback for each malformed request: a peer could fill the job's log

MAX_CONNECTIONS = 64
IDLE_SECONDS = 30.0
"""A connection without a complete request is closed after this time."""
CLOSE_SECONDS = 1.0
BROWSER_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
"""Of servers for this machine, which browsers read: they keep no response, and take each for what its type says."""
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")


@dataclass(frozen=True, slots=True)
class Page:
    """One response."""

    body: bytes
    status: int = 200
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = field(default_factory=dict)


Pages = Mapping[str, Callable[[], Awaitable[Page]]]
"""What each path responds to GET and HEAD."""


class HttpPages:
    """Owns the listening socket and its connections, of which there are at most `MAX_CONNECTIONS`: further ones are closed at once."""

    def __init__(self, pages: Pages, is_local: bool = False) -> None:
        """`is_local`: refuse requests that do not name this machine as `localhost` or by a loopback address.

        A browser sends the name by which it found the server. So a page of another site, whose name leads to this machine, cannot read.
        """
        self._pages = pages
        self._is_local = is_local
        self._server: asyncio.Server | None = None

    async def listen(self, host: str, port: int) -> int:
        """Listen on TCP; returns the port. Raises: OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._protocol_factory(), host, port)
        return int(self._server.sockets[0].getsockname()[1])

    async def listen_on_path(self, path: Path) -> None:
        """Listen on a Unix socket. Raises: OSError."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(self._protocol_factory(), path)

    async def close(self) -> None:
        """Close the socket and every connection."""
        if self._server is not None:
            self._server.close()
            await self._requests.shutdown(CLOSE_SECONDS)

    def _protocol_factory(self) -> Callable[[], asyncio.Protocol]:
        requests = self._requests = web.Server(
            self._respond, logger=_log_of_peers, access_log=None, keepalive_timeout=IDLE_SECONDS
        )
        return lambda: requests() if len(requests.connections) < MAX_CONNECTIONS else _Refusal()

    async def _respond(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.method not in ("GET", "HEAD"):
            return web.Response(status=405, headers={"Allow": "GET, HEAD"})
        if self._is_local and _name_of(request.headers.get("Host", "")) not in LOCAL_NAMES:
            return web.Response(status=403, text=f"the name must be one of {', '.join(LOCAL_NAMES)}\n")
        page = self._pages.get(request.path)
        if page is None:
            return web.Response(status=404, text=f"not found; there are {', '.join(self._pages)}\n")
        try:
            made = await page()
        except Exception:
            log.exception("the page %s cannot be made", request.path)
            return web.Response(status=500, text="see the log of the job\n")
        headers = {**(BROWSER_HEADERS if self._is_local else {}), **made.headers, "Content-Type": made.content_type}
        return web.Response(body=made.body, status=made.status, headers=headers)


def _name_of(host: str) -> str:
    """Without the port, which differs behind a tunnel."""
    name, _, port = host.rpartition(":")
    return name.lower() if name and port.isdecimal() else host.lower()


class _Refusal(asyncio.Protocol):
    """Closes a connection at once."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()
