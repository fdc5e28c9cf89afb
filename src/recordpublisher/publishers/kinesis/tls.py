"""TLS: the file of trusted CAs, checked before anything is sent, and the read buffers of encrypted connections."""

from __future__ import annotations

import functools
import os
import ssl
from typing import Any

from ..errors import ConfigurationError

CA_BUNDLE = "AWS_CA_BUNDLE"
CA_BUNDLE_HINT = f"the trusted CA file ({CA_BUNDLE}, or ca_bundle of the SDK's profile)"


def ca_bundle_path(session: Any) -> str | None:
    """The trusted CA file of an SDK session; None: the SDK's own list. Raises: ConfigurationError when the file cannot be used.

    The SDK reads it at the first call. Its error for a missing file neither names the file nor tells that a retry cannot help.
    """
    path: str | None = session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE")
    if path:
        try:
            _load_ca_bundle(path)
        except OSError as error:  # TLS errors are OSErrors, too
            valid = "a file of certificates in PEM form, or not set for the SDK's own list"
            reason = f"here, in REQUESTS_CA_BUNDLE or in the SDK's profile (ca_bundle): {error}"
            raise ConfigurationError(CA_BUNDLE, path, valid, reason=reason) from error
    return path or None


@functools.cache
def _load_ca_bundle(path: str) -> None:
    """Load the file, once for the process: the list of an operating system takes 20 ms of CPU."""
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)


def share_read_buffer(transport: Any, read_buffer: bytearray) -> None:
    """Receive encrypted bytes in `read_buffer`. All connections of an event loop may share it: asyncio empties it at once.

    Without TLS, and on other event loops than asyncio's, nothing is changed.
    """
    protocol: Any = getattr(transport, "_ssl_protocol", None)
    if hasattr(protocol, "_ssl_buffer_view"):
        protocol._ssl_buffer, protocol._ssl_buffer_view = read_buffer, memoryview(read_buffer)


def limit_read_ahead(transport: Any, read_buffer: bytearray) -> None:
    """Read no more at once than `read_buffer` holds, and stop when as many encrypted bytes are buffered.

    asyncio would read 256 KiB at once and buffer 512 KiB. Other event loops may lack these limits: then nothing is changed.
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
