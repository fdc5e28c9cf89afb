"""TLS of the tracker: builds contexts from files, which are checked at once, and describes failed handshakes."""

import ssl
from pathlib import Path

from recordpublisher.publishers.errors import NOT_TLS, ConfigurationError
from recordpublisher.publishers.properties.groups.job import (
    TRACKER_ADDRESS,
    TRACKER_TLS_CA,
    TRACKER_TLS_CERTIFICATE,
    TRACKER_TLS_KEY,
)
from recordpublisher.publishers.properties.properties import Properties

_CERTIFICATES = "a file of certificates in PEM form"
_CERTIFICATE = "a file with a certificate in PEM form, and after it those of intermediate CAs"
_KEY = "a file with the private key of the certificate, in PEM form and without a password"
_OUT_OF_DATES = (9, 10)
"""OpenSSL's codes for a certificate that is not valid yet, and for one that has expired."""


def client_context(properties: Properties) -> ssl.SSLContext | None:
    """Return the TLS context of a subtask, or None without `flink.watermark.tracker.tls.ca`, because TLS is off then.

    Raises: ConfigurationError if a file cannot be used, or if a property that needs another one is set without it.
    """
    ca = properties.value(TRACKER_TLS_CA)
    certificate = properties.value(TRACKER_TLS_CERTIFICATE)
    key = properties.value(TRACKER_TLS_KEY)
    if ca is None:
        given = TRACKER_TLS_CERTIFICATE if certificate is not None else TRACKER_TLS_KEY
        if properties.is_set(given):
            raise ConfigurationError(TRACKER_TLS_CA.key, None, _CERTIFICATES, reason=f"needed by {given.key}")
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.hostname_checks_common_name = False
    _load_ca(context, TRACKER_TLS_CA.key, ca)
    _load_certificate(context, TRACKER_TLS_CERTIFICATE.key, certificate, TRACKER_TLS_KEY.key, key)
    return context


def server_context(
    certificate: str | None,
    key: str | None,
    client_ca: str | None = None,
    names: tuple[str, str, str] = ("certificate", "key", "client_ca"),
) -> ssl.SSLContext | None:
    """Return the TLS context of a tracker, or None without a certificate, because TLS is off then.

    With `client_ca` every client needs a certificate of that CA. Raises: ConfigurationError if a file is missing or cannot be used. The
    error calls the three files by `names`.
    """
    if certificate is None and key is None and client_ca is None:
        return None
    certificate_name, key_name, ca_name = names
    if certificate is None:
        reason = f"needed by {ca_name if key is None else key_name}"
        raise ConfigurationError(certificate_name, None, _CERTIFICATE, reason=reason)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION  # a client could ask for one handshake after another
    _load_certificate(context, certificate_name, certificate, key_name, key)
    if client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        _load_ca(context, ca_name, client_ca)
    return context


def check_context(context: ssl.SSLContext | None, wanted: ssl._SSLMethod) -> None:
    """Check that `context` is for the wanted side. A client's context at a server, or the reverse, would fail at every handshake.

    Raises: ConfigurationError if it is for the other side.
    """
    wrong = {ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT} - {wanted}
    if context is not None and (not isinstance(context, ssl.SSLContext) or context.protocol in wrong):
        raise ConfigurationError("tls", context, f"an ssl.SSLContext of ssl.{wanted.name}")


def connection_problem(error: BaseException) -> str:
    """Return why a subtask could not connect, in one line for a person."""
    if isinstance(error, ssl.SSLError):
        return _tls_problem(error)
    without_text: dict[type[BaseException], str] = {
        TimeoutError: "it did not answer in time",
        ConnectionResetError: "it closed the connection during the TLS handshake",
    }
    return str(error) or without_text.get(type(error), type(error).__name__)


def _tls_problem(error: ssl.SSLError) -> str:
    reason = error.reason or ""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is rejected: {error.verify_message}. Valid: one of the CA in {TRACKER_TLS_CA.key}, "
            f"within its dates, and with the host of {TRACKER_ADDRESS.key} as a subject alternative name"
        )
    if reason in NOT_TLS:
        return f"it does not speak TLS, and {TRACKER_TLS_CA.key} is set"
    if "CERTIFICATE" in reason or "UNKNOWN_CA" in reason:
        return f"it rejects this subtask's certificate ({TRACKER_TLS_CERTIFICATE.key}): {_words(error)}"
    return f"TLS failed: {_words(error)}"


def silence_hint(context: ssl.SSLContext | None) -> str:
    """Return what may be wrong when a tracker closes the connection or stays silent before it has sent anything."""
    if context is None:
        return f"if it serves TLS, set {TRACKER_TLS_CA.key}"
    return f"it may want a client certificate, or another one ({TRACKER_TLS_CERTIFICATE.key})"


def rejection_of_client(error: OSError) -> str:
    """Return why a tracker could not finish the TLS handshake of a client: one of a few texts for the statistics line."""
    reason = getattr(error, "reason", None) or ""
    if reason in NOT_TLS:
        return "no TLS"
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "no client certificate"
    return "client certificate" if isinstance(error, ssl.SSLCertVerificationError) else "TLS handshake"


def _load_ca(context: ssl.SSLContext, name: str, path: str) -> None:
    _check_readable(name, path, _CERTIFICATES)
    try:
        context.load_verify_locations(path)
    except ssl.SSLError as error:
        raise ConfigurationError(name, path, _CERTIFICATES, reason=f"it has no certificate: {_words(error)}") from error


def _load_certificate(
    context: ssl.SSLContext, certificate_name: str, certificate: str | None, key_name: str, key: str | None
) -> None:
    if certificate is None and key is None:
        return
    if certificate is None:
        raise ConfigurationError(certificate_name, None, _CERTIFICATE, reason=f"needed by {key_name}")
    if key is None:
        raise ConfigurationError(key_name, None, _KEY, reason=f"needed by {certificate_name}")
    _check_readable(certificate_name, certificate, _CERTIFICATE)
    _check_readable(key_name, key, _KEY)
    checking = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        checking.load_verify_locations(certificate)
    except ssl.SSLError as error:
        reason = f"it has no certificate: {_words(error)}"
        raise ConfigurationError(certificate_name, certificate, _CERTIFICATE, reason=reason) from error
    try:
        context.load_cert_chain(certificate, key, password=_no_password)
    except _PasswordWantedError:
        raise ConfigurationError(key_name, key, _KEY, reason="the key is encrypted") from None
    except ssl.SSLError as error:
        is_other = error.reason == "KEY_VALUES_MISMATCH"
        reason = f"it is not the key of {certificate}" if is_other else f"it has no private key: {_words(error)}"
        raise ConfigurationError(key_name, key, _KEY, reason=reason) from error
    _check_dates(checking, certificate_name, certificate, key)


def _check_dates(checking: ssl.SSLContext, name: str, certificate: str, key: str) -> None:
    """Check that a certificate is valid today, with a handshake in memory, because the `ssl` module offers no other way.

    Raises: ConfigurationError if it is not valid today.
    """
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(certificate, key)
    checking.check_hostname = False
    checking.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    client, server = checking.wrap_bio(back, there), own.wrap_bio(there, back, server_side=True)
    for side in (client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            if error.verify_code in _OUT_OF_DATES:
                reason, valid = error.verify_message, "a certificate that is valid today"
                raise ConfigurationError(name, certificate, valid, reason=reason) from error
        except ssl.SSLError:  # other faults are reported by the peer during the handshake
            return


def _check_readable(name: str, path: str, valid: str) -> None:
    """Check that the file can be read, because OpenSSL's own error does not name it. Raises: ConfigurationError if it cannot be read."""
    try:
        Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a null character
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(name, path, valid, reason=reason) from error


class _PasswordWantedError(Exception):
    """Raised when OpenSSL requests the password of a key. Without this error it would ask on the terminal."""


def _no_password() -> str:
    raise _PasswordWantedError


def _words(error: ssl.SSLError) -> str:
    """Return OpenSSL's reason in words, without the line of its source."""
    return (error.reason or "").replace("_", " ").lower() or str(error)
