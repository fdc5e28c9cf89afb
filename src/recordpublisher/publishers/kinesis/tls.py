"""Whose certificates are believed over TLS: the SDK's own list, or a file instead of it, which is read before anything is sent."""

from __future__ import annotations

import functools
import os
import ssl
from typing import Any

from ..errors import ConfigurationError

CA_BUNDLE = "AWS_CA_BUNDLE"
WHERE = f"the file of certificates that are believed ({CA_BUNDLE}, or ca_bundle of the SDK's profile)"


def ca_bundle_of(session: Any) -> str | None:
    """The file that an SDK session takes instead of its own list, None for its own. Raises: ConfigurationError when it cannot be used.

    The SDK reads it at the first call, and says of a file that is missing neither its name nor that no retry can help.
    """
    path: str | None = session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE")
    if path:
        try:
            _read(path)
        except OSError as error:  # those of TLS are of its kind
            valid = "a file of certificates in PEM form, or nothing: then the SDK's own list is taken"
            reason = f"here, in REQUESTS_CA_BUNDLE or in the SDK's profile (ca_bundle): {error}"
            raise ConfigurationError(CA_BUNDLE, path, valid, reason=reason) from error
    return path or None


@functools.cache
def _read(path: str) -> None:
    """Once for the process: 20 ms of CPU for the list of an operating system."""
    ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
