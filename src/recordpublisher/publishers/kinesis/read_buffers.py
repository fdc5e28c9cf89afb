"""The read buffers of encrypted connections, which connections share, and their limits."""

from typing import Any

SUBSCRIPTION_BUFFER_BYTES = 64 * 1024
"""Limit of the bytes that asyncio reads at once (its default is 256 KiB), and of the encrypted bytes that it buffers (512 KiB).

Bytes after an event stay in memory until the next event is requested (P6).
"""


def share_read_buffer(transport: Any, read_buffer: bytearray) -> None:
    """Receive encrypted bytes in `read_buffer`. All connections of an event loop may share it, because asyncio empties it at once.

    Without TLS, and on event loops other than asyncio's, this changes nothing.
    """
    protocol: Any = getattr(transport, "_ssl_protocol", None)
    if hasattr(protocol, "_ssl_buffer_view"):
        protocol._ssl_buffer, protocol._ssl_buffer_view = read_buffer, memoryview(read_buffer)


def limit_read_ahead(transport: Any, read_buffer: bytearray) -> None:
    """Read no more at once than `read_buffer` holds, and stop when as many encrypted bytes are buffered.

    asyncio would read 256 KiB at once and buffer 512 KiB. On an event loop without these limits this changes nothing.
    """
    max_bytes = len(read_buffer)
    if hasattr(transport, "set_read_buffer_limits"):
        transport.set_read_buffer_limits(high=max_bytes)
        protocol: Any = getattr(transport, "_ssl_protocol", None)
        if hasattr(protocol, "max_size"):
            protocol.max_size = max_bytes
        share_read_buffer(transport, read_buffer)
    elif hasattr(transport, "max_size"):
        transport.max_size = max_bytes


def limit_handshake_read_ahead(transport: Any, read_buffer: bytearray) -> None:
    """Call `limit_read_ahead` for a plain transport on which `start_tls` has just begun a handshake, before its first bytes arrive."""
    secured = getattr(transport.get_protocol(), "_app_transport", None)
    if secured is not None:
        limit_read_ahead(secured, read_buffer)
