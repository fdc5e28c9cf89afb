"""A TLS certificate that the endpoint creates for itself. Clients trust it by its file."""

from __future__ import annotations

import datetime
import ssl
from ipaddress import ip_address
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from recordpublisher.extras import install_command
from recordpublisher.publishers.errors import ConfigurationError

if TYPE_CHECKING:
    from cryptography import x509

VALID_DAYS = 365


class Certificate:
    """Owns a folder with the certificate and its key, which only this user can read.

    The certificate is valid for a year, for `localhost` and the host. Raises: ConfigurationError without the extra local.
    """

    def __init__(self, host: str) -> None:
        try:
            import cryptography  # noqa: F401
        except ImportError as error:
            valid = f"False, or True with the extra local: {install_command('local')}"
            raise ConfigurationError("tls", True, valid) from error
        self._folder = TemporaryDirectory(prefix="recordpublisher-tls-")
        self.file = Path(self._folder.name) / "certificate.pem"
        self.key_file = Path(self._folder.name) / "key.pem"
        certificate, key = _self_signed(host)
        self.file.write_bytes(certificate)
        self.key_file.write_bytes(key)

    def server_context(self) -> ssl.SSLContext:
        """Return the TLS context that a server listens with."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.file, self.key_file)
        return context

    def close(self) -> None:
        """Delete the folder."""
        self._folder.cleanup()


def _self_signed(host: str) -> tuple[bytes, bytes]:
    """Return a certificate for this host that is its own authority, and its key, as PEM."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "recordpublisher local endpoint")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=VALID_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .add_extension(x509.SubjectAlternativeName(_names(host)), critical=False)
        .sign(key, hashes.SHA256())
    )
    encoding, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return certificate.public_bytes(encoding), key.private_bytes(encoding, form, serialization.NoEncryption())


def _names(host: str) -> list[x509.GeneralName]:
    from cryptography import x509

    names: list[x509.GeneralName] = []
    for each in dict.fromkeys(["localhost", "127.0.0.1", "::1", host]):
        try:
            names.append(x509.IPAddress(ip_address(each)))
        except ValueError:
            names.append(x509.DNSName(each))
    return names
