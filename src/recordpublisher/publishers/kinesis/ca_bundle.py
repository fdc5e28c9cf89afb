"""The file of trusted CAs (AWS_CA_BUNDLE), checked before anything is sent."""

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
