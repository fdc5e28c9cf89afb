"""Whose certificates are believed over TLS: the SDK's own list, or a file instead of it, which is read before anything is sent."""

from __future__ import annotations

import functools
import os
import ssl
from typing import Any

from ..errors import ConfigurationError

CA_BUNDLE = "AWS_CA_BUNDLE"
CA_BUNDLE_HINT = f"the file of certificates that are believed ({CA_BUNDLE}, or ca_bundle of the SDK's profile)"


def ca_bundle_path(session: Any) -> str | None:
    """The file that an SDK session takes instead of its own list, None for its own. Raises: ConfigurationError when it cannot be used.

    The SDK reads it at the first call, and says of a file that is missing neither its name nor that no retry can help.
    """
    path: str | None = session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE")
    if path:
        try:
            _load_ca_bundle(path)
        except OSError as error:  # those of TLS are of its kind
            valid = "a file of certificates in PEM form, or nothing: then the SDK's own list is taken"
            reason = f"here, in REQUESTS_CA_BUNDLE or in the SDK's profile (ca_bundle): {error}"
            raise ConfigurationError(CA_BUNDLE, path, valid, reason=reason) from error
    return path or None


@functools.cache
def _load_ca_bundle(path: str) -> None:
    """Once for the process: 20 ms of CPU for the list of an operating system."""
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)


def share_read_buffer(transport: Any, read_buffer: bytearray) -> None:
    """Let what comes encrypted be written to `read_buffer`, which all connections of a loop may share: asyncio takes it off at once.

    Without TLS there is no such read_buffer, and other event loops keep theirs to themselves: nothing is changed then.
    """
    protocol: Any = getattr(transport, "_ssl_protocol", None)
    if hasattr(protocol, "_ssl_buffer_view"):
        protocol._ssl_buffer, protocol._ssl_buffer_view = read_buffer, memoryview(read_buffer)


def limit_read_ahead(transport: Any, read_buffer: bytearray) -> None:
    """Take no more off the socket at once than `read_buffer` holds, and stop when as much is kept that is still encrypted.

    asyncio would read 256 KiB at once and keep 512 KiB. `read_buffer` is shared as above. Other event loops may lack these limits: then
    nothing is changed.
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
