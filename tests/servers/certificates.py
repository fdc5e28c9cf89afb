"""Certificates for the servers of tests."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def self_signed(folder, address="127.0.0.1", days=1, alternative=True):
    """The files of a self-signed certificate for an address and of its key; `days`: how long it is valid, negative: expired.

    Without `alternative` the address is its common name only.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, address)])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(
        name, name, key.public_key(), x509.random_serial_number(), now - timedelta(9), now + timedelta(days)
    ).add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    if alternative:
        names = x509.SubjectAlternativeName([x509.IPAddress(ip_address(address))])
        builder = builder.add_extension(names, critical=False)
    made = builder.sign(key, hashes.SHA256())
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "certificate").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "key").write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    return str(folder / "certificate"), str(folder / "key")


SIGNS_CERTIFICATES = x509.KeyUsage(False, False, False, False, False, True, True, False, False)


class CertificateAuthority:
    """A CA with its certificate in a file of a folder; issues certificates for servers and clients."""

    def __init__(self, folder, name="CA"):
        self.folder, self.key = folder, ec.generate_private_key(ec.SECP256R1())
        self.name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self.count = 0
        made = (
            self._builder(self.name, self.key, 1, 9)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(SIGNS_CERTIFICATES, critical=True)
        )
        self.file = self._write(f"{name}.pem", made.sign(self.key, hashes.SHA256()))

    def issue(self, address="127.0.0.1", days=1, before=9, has_alternative_name=True, password=None):
        """The files of a certificate and its key; it is valid from `before` days ago until in `days` days."""
        self.count += 1
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, address)])
        made = self._builder(name, key, days, before)
        if has_alternative_name:
            made = made.add_extension(x509.SubjectAlternativeName([_alternative_name(address)]), critical=False)
        stem = f"{self.name.rfc4514_string()}-{self.count}"
        return self._write(f"{stem}.pem", made.sign(self.key, hashes.SHA256())), self._write_key(stem, key, password)

    def _builder(self, name, key, days, before):
        now = datetime.now(UTC)
        number = x509.random_serial_number()
        dates = (now - timedelta(before), now + timedelta(days))
        # Python 3.13's default context wants both identifiers
        return (
            x509.CertificateBuilder(self.name, name, key.public_key(), number, *dates)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()), critical=False)
        )

    def _write(self, name, certificate):
        (self.folder / name).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return str(self.folder / name)

    def _write_key(self, stem, key, password):
        how = serialization.BestAvailableEncryption(password) if password else serialization.NoEncryption()
        file = self.folder / f"{stem}.key"
        file.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, how))
        return str(file)


def _alternative_name(address):
    try:
        return x509.IPAddress(ip_address(address))
    except ValueError:
        return x509.DNSName(address)
