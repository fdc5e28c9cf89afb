"""The endpoint over TLS with its own certificate, and over HTTP/2 beside HTTP/1.1 on one port."""

import asyncio
import socket
import stat
import sys

import boto3
import msgspec
import pytest
from botocore.config import Config
from botocore.exceptions import SSLError
from cryptography import x509
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, ResponseReceived, StreamEnded
from hyperframe.frame import GoAwayFrame

import recordpublisher as rp
from recordpublisher.local import LocalKinesis, serve_in_thread
from recordpublisher.publishers.errors import ConfigurationError

KEYS = {"aws_access_key_id": "local", "aws_secret_access_key": "local", "region_name": "us-east-1"}
ONE_ATTEMPT = Config(retries={"total_max_attempts": 1})


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
    client = boto3.client("kinesis", endpoint_url=endpoint.url, verify=verify, config=ONE_ATTEMPT, **KEYS)
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


@pytest.mark.parametrize("publisher", ["EFO", "POLLING"])
def test_a_job_reads_over_http2(serve, publisher):
    endpoint, kinesis = serve(streams={"orders": 1}, http2=True)
    for number in range(3):
        kinesis.put_record(StreamName="orders", Data=b"%d" % number, PartitionKey="k")
    efo = {"flink.stream.efo.consumername": "app", "aws.http.protocol.version": "HTTP2"}
    properties = {**endpoint.endpoint.properties(), **efo, "flink.stream.initpos": "TRIM_HORIZON"}
    records = rp.consume(["orders"], properties, publisher=publisher, stop_at_tip=True)
    assert [record.value for record in records] == [b"0", b"1", b"2"]


def test_clients_without_http2_use_the_same_port(serve):
    _, kinesis = serve(streams={"orders": 1}, http2=True)
    assert kinesis.list_streams()["StreamNames"] == ["orders"]
    assert kinesis.put_record(StreamName="orders", Data=b"x", PartitionKey="k")["ShardId"]


def test_a_taken_port_is_an_error(serve):
    endpoint, _ = serve(http2=True)

    async def main():
        with pytest.raises(ConfigurationError, match="a free port"):
            await LocalKinesis(port=endpoint.port, http2=True).start()

    asyncio.run(main())


def test_without_the_extra_http2_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "hypercorn", None)
    with pytest.raises(ConfigurationError, match=r"pip install .*\[local\]"):
        LocalKinesis(http2=True)


class Client:
    """One HTTP/2 connection. With `says_goaway` it ends the connection when a response begins, as the AWS SDK for JavaScript does."""

    def __init__(self, endpoint, says_goaway=False):
        self.socket = socket.create_connection(("127.0.0.1", endpoint.endpoint.port), timeout=60)
        self.h2 = H2Connection()
        self.h2.initiate_connection()
        self.says_goaway = says_goaway

    def call(self, operation, **fields):
        stream = self.h2.get_next_available_stream_id()
        target = ("x-amz-target", f"Kinesis_20131202.{operation}")
        json_type = ("content-type", "application/x-amz-json-1.1")
        head = [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", "localhost"),
            (":path", "/"),
            target,
            json_type,
        ]
        self.h2.send_headers(stream, head)
        self.h2.send_data(stream, msgspec.json.encode(fields), end_stream=True)
        body = b""
        while True:
            self.socket.sendall(self.h2.data_to_send())
            received = self.socket.recv(65_536)
            assert received, f"the connection ended after {len(body)} bytes"
            for event in self.h2.receive_data(received):
                if isinstance(event, ResponseReceived) and self.says_goaway:
                    self.socket.sendall(GoAwayFrame(last_stream_id=0, error_code=ErrorCodes.NO_ERROR).serialize())
                if isinstance(event, DataReceived):
                    body += event.data
                    self.h2.acknowledge_received_data(event.flow_controlled_length, stream)
                if isinstance(event, StreamEnded):
                    return msgspec.json.decode(body)

    def close(self):
        self.socket.close()


@pytest.fixture
def client(serve):
    """Returns a client of an endpoint with a stream and its client of boto3."""
    clients = []

    def made(**options):
        endpoint, kinesis = serve(streams={"orders": 1}, http2=True)
        clients.append(Client(endpoint, **options))
        return clients[-1], kinesis

    yield made
    for each in clients:
        each.close()


@pytest.mark.slow
def test_a_response_goes_on_after_the_client_has_said_goaway(client):
    connection, kinesis = client(says_goaway=True)
    kinesis.put_record(StreamName="orders", Data=bytes(500_000), PartitionKey="k")
    start = {"ShardId": "shardId-000000000000", "ShardIteratorType": "TRIM_HORIZON"}
    iterator = kinesis.get_shard_iterator(StreamName="orders", **start)["ShardIterator"]
    assert len(connection.call("GetRecords", ShardIterator=iterator)["Records"][0]["Data"]) > 500_000


@pytest.mark.slow
def test_a_connection_carries_any_number_of_requests(client):
    connection, _ = client()
    for _ in range(1_200):
        assert connection.call("ListStreams")["StreamNames"] == ["orders"]
