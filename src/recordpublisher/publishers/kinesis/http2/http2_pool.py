"""Http2ConnectionPool: the connections to one server, as many as its limit of streams requires."""

from __future__ import annotations

import asyncio
import ssl
from urllib.parse import SplitResult

from botocore.httpsession import create_urllib3_context, get_cert_path

from ..error_mapping import StreamLostError
from .http2_connection import Http2Connection


class Http2ConnectionPool:
    """Owns its connections. A request never waits for other streams (F1): when no connection has capacity, another is opened.

    All waiting requests share the connection that is being opened, or its error.
    """

    def __init__(self, url: SplitResult, seconds: float, ca_bundle: str | None) -> None:
        """`seconds`: the deadline of opening a connection; `ca_bundle`: a file instead of the SDK's certificates."""
        self._url = url
        self._seconds = seconds
        self._ca_bundle = ca_bundle
        self._connections: list[Http2Connection] = []
        self._opening: asyncio.Task[None] | None = None

    async def connection(self) -> Http2Connection:
        """Return a connection with capacity for one more stream. The caller must open the stream without awaiting in between.

        Raises: StreamLostError, ConfigurationError (the server does not support HTTP/2), what connecting raises.
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
            # all waiters may be gone; this marks the exception as retrieved
            self._opening.add_done_callback(lambda task: task.cancelled() or task.exception())
        opening = self._opening
        await asyncio.wait([opening])  # a cancelled waiter does not cancel it for the others
        if opening.cancelled():
            raise StreamLostError("closed")
        opening.result()

    async def _open(self) -> None:
        host, tls = self._url.hostname or "", self._url.scheme == "https"
        async with asyncio.timeout(self._seconds):
            context = await asyncio.to_thread(self._context) if tls else None
            _, connection = await asyncio.get_running_loop().create_connection(
                Http2Connection, host, self._url.port or (443 if tls else 80), ssl=context
            )
            try:
                await connection.ready()
            except BaseException:
                connection.close()
                raise
        self._connections.append(connection)

    def _context(self) -> ssl.SSLContext:
        """The SDK's rules: Python's own default context rejects certificates that boto3 accepts (since 3.13)."""
        context: ssl.SSLContext = create_urllib3_context()
        context.check_hostname = True
        context.load_verify_locations(get_cert_path(self._ca_bundle or True))
        context.set_alpn_protocols(["h2"])
        return context
