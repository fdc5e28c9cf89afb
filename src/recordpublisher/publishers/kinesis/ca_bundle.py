"""Checks the file of trusted CAs (AWS_CA_BUNDLE) before anything is sent, and makes the TLS contexts of our own connections."""

import functools
import os
import ssl
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..errors import ConfigurationError

CA_BUNDLE = "AWS_CA_BUNDLE"
CA_BUNDLE_HINT = f"the trusted CA file ({CA_BUNDLE}, or ca_bundle of the SDK's profile)"


def ca_bundle_path(session: Any) -> str | None:
    """Return the trusted CA file of an SDK session, or None for the SDK's own list.

    The SDK reads the file at the first call. Its error for a missing file neither names the file nor says that a retry
    cannot help.

    Raises: ConfigurationError if the file cannot be used.
    """
    return _checked(session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE"))


def environment_ca_bundle(url: str) -> str | None:
    """Return the trusted CA file that the environment sets for calls to `url`, or None. No profile is read.

    For an http URL the file must exist, but is not read.

    Raises: ConfigurationError if the file cannot be used.
    """
    return _checked(os.environ.get(CA_BUNDLE) or os.environ.get("REQUESTS_CA_BUNDLE"), is_read=_is_tls(url))


def client_tls(ca_bundle: str | None, url: str, protocol: str | None = None) -> ssl.SSLContext:
    """Return the context that checks the certificate of `url`, by this file, else by the SDK's list. For http no file is read.

    `protocol` is the protocol to agree on in the handshake. The context is not Python's default one, which rejects
    certificates that boto3 accepts (since Python 3.13).
    """
    if not _is_tls(url):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return _trusting(ca_bundle or _sdk_list(), protocol)


def _is_tls(url: str) -> bool:
    return url.startswith("https:")


@functools.cache
def _trusting(path: str, protocol: str | None) -> ssl.SSLContext:
    """Load the file once for each process and protocol: the list of an operating system takes 20 ms of CPU."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_NO_TICKET
    context.load_verify_locations(path)
    if protocol is not None:
        context.set_alpn_protocols([protocol])
    return context


def _sdk_list() -> str:
    """Return the CAs of the package certifi, else the SDK's. Neither package is imported if its file is found next to it."""
    specs = [spec for spec in map(find_spec, ("certifi", "botocore")) if spec is not None and spec.origin is not None]
    beside = Path(specs[0].origin or "").with_name("cacert.pem")
    if beside.is_file():
        return str(beside)
    from certifi import where  # a Linux distribution's certifi, which names the list of the operating system

    return where()


def _checked(path: str | None, *, is_read: bool = True) -> str | None:
    if path:
        try:
            _trusting(path, None) if is_read else os.stat(path)
        except OSError as error:  # TLS errors are also OSErrors
            valid = "a file of certificates in PEM form; without it, the SDK's own list is used"
            reason = f"here, in REQUESTS_CA_BUNDLE or in the SDK's profile (ca_bundle): {error}"
            raise ConfigurationError(CA_BUNDLE, path, valid, reason=reason) from error
    return path or None
