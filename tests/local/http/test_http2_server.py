"""The endpoint over HTTP/2: asked by this library's own HTTP/2 client, and by boto3 over HTTP/1.1 on the same port."""

import asyncio
import socket
import sys

import msgspec
import pytest
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import DataReceived, ResponseReceived, StreamEnded
from hyperframe.frame import GoAwayFrame

import recordpublisher as rp
from recordpublisher.local import LocalKinesis
from recordpublisher.publishers.errors import ConfigurationError


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


def test_without_the_extra_the_error_says_what_to_install(monkeypatch):
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
