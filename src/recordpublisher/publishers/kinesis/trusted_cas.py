"""Finds the CAs (certificate authorities) that are trusted, and makes the TLS contexts that check the certificates of servers."""

from __future__ import annotations

import functools
import os
import ssl
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..errors import ConfigurationError

CA_BUNDLE = "AWS_CA_BUNDLE"


def client_tls(ca_bundle: str | None, url: str, protocol: str | None = None) -> ssl.SSLContext:
    """Return the TLS context with which a client checks the certificate of `url`.

    - `ca_bundle`: the file of trusted CAs, or None for the SDK's list. For an http URL no file is read.
    - `protocol`: the protocol that the handshake must agree on (ALPN).
    """
    # Python's default context is not used, because since Python 3.13 it rejects certificates that boto3 accepts.
    if not _is_tls(url):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return _context_with(ca_bundle or _sdk_list(), protocol)


def ca_bundle_path(session: Any) -> str | None:
    """Return the path of the file of trusted CAs that an SDK session uses, or None if it uses the SDK's own list.

    Raises: ConfigurationError if the file cannot be used.
    """
    # The file is checked here, because the SDK reads it only at the first call, and its error neither names the file nor says that a retry
    # cannot help.
    return _check_ca_bundle(session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE"))


def environment_ca_bundle(url: str) -> str | None:
    """Return the path of the file of trusted CAs that the environment sets for calls to `url`, or None. AWS profiles are not read.

    For an http URL the file must exist, but is not read.

    Raises: ConfigurationError if the file cannot be used.
    """
    return _check_ca_bundle(os.environ.get(CA_BUNDLE) or os.environ.get("REQUESTS_CA_BUNDLE"), is_read=_is_tls(url))


def _check_ca_bundle(path: str | None, *, is_read: bool = True) -> str | None:
    if path:
        try:
            _context_with(path, None) if is_read else os.stat(path)
        except OSError as error:  # TLS errors are also OSErrors
            valid = "a file of certificates in PEM form; without it, the SDK's own list is used"
            reason = f"the path is from {CA_BUNDLE}, REQUESTS_CA_BUNDLE or the SDK's profile (ca_bundle): {error}"
            raise ConfigurationError(CA_BUNDLE, path, valid, reason=reason) from error
    return path or None


def _is_tls(url: str) -> bool:
    return url.startswith("https:")


@functools.cache
def _context_with(path: str, protocol: str | None) -> ssl.SSLContext:
    """Return the TLS context that trusts the CAs of a file. It is kept for later calls: reading a system's list takes 20 ms of CPU."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_NO_TICKET
    context.load_verify_locations(path)
    if protocol is not None:
        context.set_alpn_protocols([protocol])
    return context


def _sdk_list() -> str:
    """Return the path of the file of trusted CAs of the package certifi, or else of the SDK.

    The package is imported only if the file is not in the package's folder.
    """
    specs = [spec for spec in map(find_spec, ("certifi", "botocore")) if spec is not None and spec.origin is not None]
    beside = Path(specs[0].origin or "").with_name("cacert.pem")
    if beside.is_file():
        return str(beside)
    from certifi import where  # This is a Linux distribution's certifi, which names the list of the operating system.

    return where()
