"""A whole job over HTTP/2, in the clear and over TLS, while the stream is split."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address

import boto3
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from http2_front import front_of
from kinesis_talk import talking
from live_job import LiveJob, split

from recordpublisher.plugins.local import serve_in_thread


@pytest.fixture
def certificate(tmp_path):
    """Files of a certificate that 127.0.0.1 signed for itself, and of its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(
            name, name, key.public_key(), x509.random_serial_number(), now - timedelta(1), now + timedelta(1)
        )
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (tmp_path / "certificate").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (tmp_path / "key").write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    return str(tmp_path / "certificate"), str(tmp_path / "key")


@pytest.mark.parametrize("tls", [False, True], ids=["h2c", "tls"])
async def test_a_job_reads_every_record_once_and_in_order_through_a_split(tls, certificate, monkeypatch):
    if tls:
        monkeypatch.setenv("AWS_CA_BUNDLE", certificate[0])
    session = boto3.Session(aws_access_key_id="local", aws_secret_access_key="local", region_name="us-east-1")
    with serve_in_thread() as endpoint, talking(session.client("kinesis", endpoint_url=endpoint.url), 2) as talk:
        async with front_of(endpoint.url, certificate=certificate if tls else None) as front:
            efo = {
                "flink.stream.recordpublisher": "EFO",
                "aws.http.protocol.version": "HTTP2",
                "aws.endpoint": front.url,
            }
            job = LiveJob(talk, **efo)
            await job.live(split(0, 2**126))
            await job.live()

    assert job.read == job.sent
    assert job.open_shards == 3
    assert "2" in front.versions
    assert len(front.clients) >= 4
