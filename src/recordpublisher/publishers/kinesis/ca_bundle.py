"""The file of trusted CAs (AWS_CA_BUNDLE), checked before anything is sent; and how our own connections check certificates."""

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
    """The trusted CA file of an SDK session; None: the SDK's own list. Raises: ConfigurationError when the file cannot be used.

    The SDK reads it at the first call. Its error for a missing file neither names the file nor tells that a retry cannot help.
    """
    return _checked(session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE"))


def environment_ca_bundle(url: str) -> str | None:
    """The same for calls to `url`, where no profile names one. For http the file must exist, and is not read."""
    return _checked(os.environ.get(CA_BUNDLE) or os.environ.get("REQUESTS_CA_BUNDLE"), is_read=_is_tls(url))


def client_tls(ca_bundle: str | None, url: str, protocol: str | None = None) -> ssl.SSLContext:
    """How the certificate of `url` is checked: by this file, else by the list that the SDK uses. For http nothing is read.

    `protocol`: the one to agree on in the handshake. Python's own default context rejects certificates that boto3 accepts (since 3.13).
    """
    if not _is_tls(url):
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return _trusting(ca_bundle or _sdk_list(), protocol)


def _is_tls(url: str) -> bool:
    return url.startswith("https:")


@functools.cache
def _trusting(path: str, protocol: str | None) -> ssl.SSLContext:
    """Load the file, once for the process and protocol: the list of an operating system takes 20 ms of CPU."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.options |= ssl.OP_NO_TICKET
    context.load_verify_locations(path)
    if protocol is not None:
        context.set_alpn_protocols([protocol])
    return context


def _sdk_list() -> str:
    """The CAs of the package certifi, else those that come with the SDK; neither is imported if its file is beside it."""
    specs = [spec for spec in map(find_spec, ("certifi", "botocore")) if spec is not None and spec.origin is not None]
    beside = Path(specs[0].origin or "").with_name("cacert.pem")
    if beside.is_file():
        return str(beside)
    from certifi import where  # of a Linux distribution: it names the list of the operating system

    return where()


def _checked(path: str | None, *, is_read: bool = True) -> str | None:
    if path:
        try:
            _trusting(path, None) if is_read else os.stat(path)
        except OSError as error:  # TLS errors are OSErrors, too
            valid = "a file of certificates in PEM form, or not set for the SDK's own list"
            reason = f"here, in REQUESTS_CA_BUNDLE or in the SDK's profile (ca_bundle): {error}"
            raise ConfigurationError(CA_BUNDLE, path, valid, reason=reason) from error
    return path or None
