"""CBOR as the AWS SDK for Java sends and reads it: blobs are bytes, times are milliseconds under tag 1."""

import http.client

import cbor2
import pytest

from recordpublisher.local import event_stream
from recordpublisher.local.api_errors import ApiError
from recordpublisher.local.http import wire_formats

MILLISECONDS = {1: lambda value, _: ("ms", value)}
ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"


def decoded(body):
    return cbor2.loads(body, semantic_decoders=MILLISECONDS)


class Client:
    """Sends CBOR bodies."""

    def __init__(self, endpoint):
        self.connection = http.client.HTTPConnection("127.0.0.1", endpoint.port)

    def send(self, operation, body):
        headers = {"X-Amz-Target": f"Kinesis_20131202.{operation}", "Content-Type": "application/x-amz-cbor-1.1"}
        self.connection.request("POST", "/", body, headers)
        return self.connection.getresponse()

    def call(self, operation, **fields):
        response = self.send(operation, cbor2.dumps(fields))
        body = response.read()
        assert response.headers["Content-Type"] == "application/x-amz-cbor-1.1"
        return response.status, decoded(body) if body else None


@pytest.fixture
def endpoint(serve, clock):
    return serve(streams={"orders": 1}, clock=clock)[0]


@pytest.fixture
def client(endpoint):
    client = Client(endpoint)
    yield client
    client.connection.close()


def test_a_record_travels_as_bytes_and_its_arrival_as_milliseconds(client, clock):
    status, put = client.call("PutRecord", StreamName="orders", Data=b"\x00\xff", PartitionKey="k")
    assert (status, put["ShardId"]) == (200, "shardId-000000000000")
    start = {"StreamName": "orders", "ShardId": put["ShardId"], "ShardIteratorType": "AT_TIMESTAMP"}
    _, opened = client.call("GetShardIterator", **start, Timestamp=cbor2.CBORTag(1, clock.now_ms()))
    _, read = client.call("GetRecords", ShardIterator=opened["ShardIterator"])
    [record] = read["Records"]
    assert record["Data"] == b"\x00\xff"
    assert record["ApproximateArrivalTimestamp"] == ("ms", clock.now_ms())


def test_a_start_by_time_is_in_milliseconds(client, clock):
    start = {"StreamName": "orders", "ShardId": "shardId-000000000000", "ShardIteratorType": "AT_TIMESTAMP"}
    status, error = client.call("GetShardIterator", **start, Timestamp=cbor2.CBORTag(1, clock.now_ms() + 1))
    assert (status, error["__type"]) == (400, "InvalidArgumentException")


def test_an_operation_without_output_has_no_body(client):
    assert client.call("AddTagsToStream", StreamName="orders", Tags={"team": "blue"}) == (200, None)


def test_times_of_streams_and_consumers(client, clock):
    _, consumer = client.call("RegisterStreamConsumer", StreamARN=ARN, ConsumerName="c")
    assert consumer["Consumer"]["ConsumerCreationTimestamp"] == ("ms", clock.now_ms())
    _, summary = client.call("DescribeStreamSummary", StreamName="orders")
    assert summary["StreamDescriptionSummary"]["StreamCreationTimestamp"] == ("ms", clock.now_ms())


@pytest.mark.parametrize("body", [b"\xff", b"{}", cbor2.dumps([1]), cbor2.dumps("text"), b"\xa1\x61a\xc1\x61x"])
def test_a_body_that_is_no_request_is_an_error(client, body):
    response = client.send("ListStreams", body)
    assert response.status == 400
    assert decoded(response.read())["__type"] in ("SerializationException", "ValidationException")


def test_events_of_a_subscription_are_in_cbor(endpoint, client, clock):
    _, registered = client.call("RegisterStreamConsumer", StreamARN=ARN, ConsumerName="c")
    endpoint.call(clock.advance, 1000)
    client.call("PutRecord", StreamName="orders", Data=b"\x00\xff", PartitionKey="k")
    start = {"Type": "TRIM_HORIZON"}
    arn = registered["Consumer"]["ConsumerARN"]
    body = cbor2.dumps({"ConsumerARN": arn, "ShardId": "shardId-000000000000", "StartingPosition": start})
    response = client.send("SubscribeToShard", body)
    first, second = read_frame(response), read_frame(response)
    assert first == (
        {":message-type": "event", ":event-type": "initial-response", ":content-type": wire_formats.CBOR_TYPE},
        {},
    )
    headers, event = second
    assert headers[":content-type"] == wire_formats.CBOR_TYPE
    assert event["Records"][0]["Data"] == b"\x00\xff"
    assert event["Records"][0]["ApproximateArrivalTimestamp"] == ("ms", clock.now_ms())
    response.close()


def read_frame(response):
    start = response.read(4)
    frame = start + response.read(int.from_bytes(start, "big") - 4)
    headers, payload = event_stream.parse(frame)
    return headers, decoded(payload)


def test_a_damaged_frame_stays_damaged():
    frame = event_stream.event("SubscribeToShardEvent", b'{"Records":[{"Data":"AAAA"}]}')
    for damaged in (frame[:-1], frame[:5], event_stream.corrupted(frame), b""):
        assert wire_formats.CBOR.frame_from_json(damaged) == damaged


def test_without_the_extra_the_error_says_what_to_install(monkeypatch, client):
    monkeypatch.setattr(wire_formats, "find_spec", lambda name: None)
    response = client.send("ListStreams", b"")
    assert response.headers["Content-Type"] == "application/x-amz-json-1.1"
    assert b"[local]'" in response.read()


def test_a_response_that_a_fault_has_cut_stays_cut(endpoint, client):
    endpoint.call(endpoint.endpoint.faults.start_random, "half@ListStreams*1", 1)
    response = client.send("ListStreams", cbor2.dumps({}))
    with pytest.raises(cbor2.CBORDecodeError):
        cbor2.loads(response.read())


def shared(depth):
    """Each list has ten references to the list before: 10 to the power of `depth` values."""
    lists = [b"\xd8\x1c\x8a" + b"\x01" * 10]
    lists += [b"\xd8\x1c\x8a" + (b"\xd8\x1d" + bytes([number])) * 10 for number in range(depth - 1)]
    return b"\xa1\x61X" + bytes([0x80 + len(lists)]) + b"".join(lists)


@pytest.mark.parametrize(
    "body",
    [
        shared(9),
        b"\xd8\x1c\x81\xd8\x1d\x00",  # a list that contains itself
        b"\xd9\x01\x00\x82\x63aaa\xd8\x19\x00",  # a reference to a text
        cbor2.dumps({"Limit": 10**400}),
        cbor2.dumps(cbor2.CBORTag(7_777, 1)),
        b"\x81" * 100_000,
    ],
    ids=["shared", "cyclic", "text", "bignum", "unknown tag", "deep"],
)
def test_no_tag_but_that_of_times_is_decoded(body):
    with pytest.raises(ApiError, match="not CBOR"):
        wire_formats.CBOR.to_json(body)
