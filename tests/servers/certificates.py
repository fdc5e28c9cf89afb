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
