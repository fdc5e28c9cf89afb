"""TlsHandshake: a client's connection until TLS is established; a `ServerConnection` over TLS follows it."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

from recordpublisher.publishers.kinesis.read_buffers import limit_handshake_read_ahead

from .server_connection import ConnectionListener, ServerConnection
from .tls import rejection_of_client


class TlsHandshake(asyncio.Protocol):
    """Owns one connection from its acceptance to the end of the TLS handshake.

    The listener counts it as unauthenticated from its first moment. (asyncio's own TLS servers show a connection only after its
    handshake: clients that connect and say nothing could not be limited.) Whatever a client sends fails only its own connection.
    """

    def __init__(self, listener: ConnectionListener, context: ssl.SSLContext, read_buffer: bytearray) -> None:
        """`read_buffer` is for encrypted bytes; all connections of the listener share it."""
        self._listener = listener
        self._context = context
        self._read_buffer = read_buffer
        self.last_request_at = listener.now()

    def connection_made(self, transport: Any) -> None:
        """Start the handshake."""
        self._transport: asyncio.Transport = transport
        self._listener.on_connected(self)
        self.task = asyncio.create_task(self._establish())

    def data_received(self, data: bytes) -> None:
        """Reject a client that sends before the challenge."""
        self._listener.on_rejected("malformed")
        self.abort()

    def abort(self) -> None:
        """Close the connection at once."""
        self._transport.abort()

    async def _establish(self) -> None:
        """Finish the handshake, or close the connection; the listener's timeout ends one that does not proceed."""
        secured: asyncio.Transport | None = None
        try:
            if not self._transport.is_closing():
                loop = asyncio.get_running_loop()
                # asyncio gives each TLS connection a buffer of 256 KiB; this runs when it has, and before it reads
                loop.call_soon(limit_handshake_read_ahead, self._transport, self._read_buffer)
                secured = await loop.start_tls(self._transport, self, self._context, server_side=True)
        except OSError as error:  # TLS errors are OSErrors, too
            self._listener.on_rejected(rejection_of_client(error))
        finally:
            self._listener.on_closed(self)
        if secured is not None and not secured.is_closing():  # None: the connection was lost meanwhile
            connection = ServerConnection(self._listener)
            secured.set_protocol(connection)
            connection.connection_made(secured)
