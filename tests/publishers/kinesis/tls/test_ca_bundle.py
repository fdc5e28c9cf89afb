"""What a job reports when the server's certificate, or the trusted CA file, is wrong."""

import asyncio
import ssl
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

import recordpublisher as rp
from recordpublisher.publishers.errors import ConfigurationError, FatalKinesisError, TransientError
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.kinesis.trusted_cas import client_tls
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shards import Shard

from servers.certificates import CertificateAuthority, self_signed
from servers.scripted_kinesis import PROPERTIES, drop_connection, stub_and_client

SHARD = Shard("orders", "shardId-000000000000")
CONSUMER = "arn:aws:kinesis:eu-west-1:123456789012:stream/orders/consumer/app:1"
CLIENTS = [
    {"flink.stream.recordpublisher": publisher, "aws.http.client": client}
    for publisher in ("POLLING", "EFO")
    for client in ("OWN", "SDK")
]
"""Publishers, and the HTTP client of their calls."""


@pytest.fixture(autouse=True)
def no_other_trusted_certificates(monkeypatch):
    for variable in ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"):
        monkeypatch.delenv(variable, raising=False)


@asynccontextmanager
async def server_with(certificate):
    """The address of a server with this certificate, which closes each connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    server = await asyncio.start_server(lambda _, writer: writer.transport.abort(), "127.0.0.1", 0, ssl=context)
    async with server:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def job_ends_with(error, endpoint, client):
    """Start a job; it fails at once, retries do not help."""
    given = {
        **PROPERTIES,
        **client,
        "aws.endpoint": endpoint,
        "flink.stream.efo.registration": "NONE",
        "flink.stream.efo.consumerarn.orders": CONSUMER,
    }
    with pytest.raises(error) as raised:
        async with rp.DataFetcher(["orders"], given, sink=rp.MemorySink()) as fetcher:
            await fetcher.run()
    return str(raised.value)


@pytest.mark.slow
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: "-".join(client.values()))
@pytest.mark.parametrize(
    ("certificate", "is_known", "reason"),
    [
        ({}, False, "self-signed certificate"),
        ({"address": "10.1.2.3"}, True, "not valid for '127.0.0.1'"),
        ({"days": -1}, True, "certificate has expired"),
    ],
    ids=["untrusted", "another host's", "expired"],
)
async def test_an_untrusted_certificate_ends_the_job_with_a_hint(
    certificate, is_known, reason, client, tmp_path, monkeypatch
):
    files = self_signed(tmp_path, **certificate)
    if is_known:
        monkeypatch.setenv("AWS_CA_BUNDLE", files[0])
    async with server_with(files) as endpoint:
        message = await job_ends_with(FatalKinesisError, endpoint, client)
    assert [text for text in (endpoint, reason, "aws.endpoint", "AWS_CA_BUNDLE") if text not in message] == []


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: "-".join(client.values()))
@pytest.mark.parametrize("variable", ["AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE"])
async def test_a_missing_ca_file_ends_the_job_at_once(variable, client, monkeypatch):
    """The SDK reports it like a network error, without its name; then it would be retried."""
    monkeypatch.setenv(variable, "/nowhere/ca.pem")
    message = await job_ends_with(ConfigurationError, "https://127.0.0.1:1", client)
    assert [text for text in ("AWS_CA_BUNDLE", "/nowhere/ca.pem", "No such file") if text not in message] == []


@pytest.mark.parametrize("protocol", ["HTTP1_1", "HTTP2"])
def test_a_ca_file_without_certificates_is_refused_before_anything_is_sent(protocol, tmp_path, monkeypatch):
    (tmp_path / "ca.pem").write_text("not in PEM form")
    monkeypatch.setenv("AWS_CA_BUNDLE", str(tmp_path / "ca.pem"))
    given = {**PROPERTIES, "aws.endpoint": "https://127.0.0.1:1", "aws.http.protocol.version": protocol}
    with pytest.raises(ConfigurationError, match="PEM"):
        KinesisClient(Properties(given))


def test_a_profile_may_name_the_ca_file(tmp_path, monkeypatch):
    (tmp_path / "config").write_text("[default]\nca_bundle = /nowhere/of-profile.pem\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    with pytest.raises(ConfigurationError, match=r"/nowhere/of-profile\.pem"):
        KinesisClient(Properties({**PROPERTIES, "aws.endpoint": "https://127.0.0.1:1"}))


@pytest.mark.parametrize("client", ["OWN", "SDK"])
async def test_a_certificate_that_changes_while_a_job_runs_is_fatal(client, tmp_path, monkeypatch):
    """The first connection succeeds; the next one gets another certificate."""
    certificate = self_signed(tmp_path)
    monkeypatch.setenv("AWS_CA_BUNDLE", certificate[0])
    async with stub_and_client(certificate=certificate, aws_http_client=client) as (stub, reader):
        stub.script("GetRecords", {"Records": []}, drop_connection)
        await reader.get_records(SHARD, "it", 1)
        (tmp_path / "other").mkdir()
        stub.tls.load_cert_chain(*self_signed(tmp_path / "other"))
        with suppress(TransientError, FatalKinesisError):  # the connection is lost; OWN replaces it at once
            await reader.get_records(SHARD, "it", 1)
        with pytest.raises(FatalKinesisError, match="AWS_CA_BUNDLE") as raised:
            await reader.get_records(SHARD, "it", 1)
    assert stub.url in str(raised.value)


def test_the_list_of_an_operating_system_is_used_where_certifi_has_no_file_of_its_own(tmp_path, monkeypatch):
    system_list, package = CertificateAuthority(tmp_path).file, tmp_path / "certifi"
    package.mkdir()
    (package / "__init__.py").write_text(f"def where():\n    return {str(system_list)!r}\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "certifi", None)
    del sys.modules["certifi"]

    (trusted,) = client_tls(None, "https://kinesis.eu-west-1.amazonaws.com").get_ca_certs(binary_form=True)

    assert trusted == ssl.PEM_cert_to_DER_cert(Path(system_list).read_text())
