"""The endpoint over TLS, with the certificate that it makes: jobs read from it, clients that do not trust it are refused."""

import stat
import sys

import boto3
import pytest
from botocore.exceptions import SSLError
from cryptography import x509

import recordpublisher as rp
from recordpublisher.local import LocalKinesis, serve_in_thread
from recordpublisher.publishers.errors import ConfigurationError

KEYS = {"aws_access_key_id": "local", "aws_secret_access_key": "local", "region_name": "us-east-1"}


@pytest.mark.parametrize("http", ["HTTP1_1", "HTTP2"])
@pytest.mark.parametrize("publisher", ["EFO", "POLLING"])
def test_a_job_reads_over_tls(monkeypatch, publisher, http):
    with serve_in_thread(streams={"orders": 1}, tls=True, http2=http == "HTTP2") as endpoint:
        monkeypatch.setenv("AWS_CA_BUNDLE", str(endpoint.endpoint.certificate_file))
        endpoint.stream("orders").put(b"0", b"1")
        how = {"aws.http.protocol.version": http}
        start = {"flink.stream.initpos": "TRIM_HORIZON", "flink.stream.efo.consumername": "app"}
        given = {**endpoint.properties(), **how, **start}
        records = rp.consume(["orders"], given, publisher=publisher, stop_at_tip=True)
        assert [record.value for record in records] == [b"0", b"1"]


@pytest.fixture
def endpoint():
    with serve_in_thread(streams={"orders": 1}, tls=True) as endpoint:
        yield endpoint


def streams(endpoint, verify):
    client = boto3.client("kinesis", endpoint_url=endpoint.url, verify=verify, **KEYS)
    try:
        return client.list_streams()["StreamNames"]
    finally:
        client.close()


def test_clients_that_trust_the_file_connect(endpoint):
    assert streams(endpoint, str(endpoint.endpoint.certificate_file)) == ["orders"]


def test_other_clients_refuse_the_certificate(endpoint):
    with pytest.raises(SSLError):
        streams(endpoint, None)


def test_only_this_user_reads_the_key_and_closing_deletes_it():
    with serve_in_thread(tls=True) as endpoint:
        folder = endpoint.endpoint.certificate_file.parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not folder.exists()


def test_the_certificate_has_the_names_of_the_host(endpoint):
    made = x509.load_pem_x509_certificate(endpoint.endpoint.certificate_file.read_bytes())
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]


def test_without_the_extra_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ConfigurationError, match=r"pip install .*\[local\]"):
        LocalKinesis(tls=True)
