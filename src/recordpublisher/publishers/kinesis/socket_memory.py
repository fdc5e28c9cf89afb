"""How much memory asyncio holds for each connection: over TLS half a megabyte that nobody needs, were it left alone."""

from __future__ import annotations

from typing import Any


def lend_block(transport: Any, block: bytearray) -> None:
    """Let what comes encrypted be written to `block`, which all connections of a loop may share: asyncio takes it off at once.

    Without TLS there is no such block, and other event loops keep theirs to themselves: nothing is changed then.
    """
    protocol: Any = getattr(transport, "_ssl_protocol", None)
    if hasattr(protocol, "_ssl_buffer_view"):
        protocol._ssl_buffer, protocol._ssl_buffer_view = block, memoryview(block)


def read_little(transport: Any, block: bytearray) -> None:
    """Take no more off the socket at once than `block` holds, and stop when as much is kept that is still encrypted.

    `block` is lent as above. asyncio would take 256 KiB at once and keep 512 KiB. Where another event loop has no such limits its own hold.
    """
    most = len(block)
    if hasattr(transport, "set_read_buffer_limits"):
        transport.set_read_buffer_limits(high=most)
        protocol: Any = getattr(transport, "_ssl_protocol", None)
        if hasattr(protocol, "max_size"):
            protocol.max_size = most
        lend_block(transport, block)
    elif hasattr(transport, "max_size"):
        transport.max_size = most
