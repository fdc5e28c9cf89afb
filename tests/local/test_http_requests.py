"""HTTP requests: what is refused before its input is read, the formats of bodies, and the fields of every response."""

import base64
import http.client
import json
import socket
from base64 import b64decode
from datetime import UTC, datetime
from typing import Any

import cbor2
import msgspec
import pytest

from recordpublisher.local import Delays, event_stream, serve_in_thread
from recordpublisher.local import http_requests as wire_formats
from recordpublisher.local.errors import ApiError
from recordpublisher.local.event_stream import parse

from servers.sdk.every_operation import converse
from servers.sdk.service_model import served_operations, stored_model

JSON = "application/x-amz-json-1.1"
CBOR = "application/x-amz-cbor-1.1"
OLD = "application/json"
LIST = "Kinesis_20131202.ListStreams"
DENIED = "Unable to determine service/operation name to be authorized"
ALL_MISSING_IN_HEADER = (
    "Authorization header requires 'Credential' parameter. Authorization header requires 'Signature' parameter. "
    "Authorization header requires 'SignedHeaders' parameter. "
    "Authorization header requires existence of either a 'X-Amz-Date' or a 'Date' header. Authorization=X"
)
ALL_MISSING_IN_QUERY = " ".join(
    f"AWS query-string parameters must include '{name}'."
    for name in ("X-Amz-Algorithm", "X-Amz-Credential", "X-Amz-Signature", "X-Amz-SignedHeaders", "X-Amz-Date")
)
BOTH = "Found both 'X-Amz-Algorithm' as a query-string param and 'Authorization' as HTTP header."


FOREIGN = {
    "Host": "attacker.example:4567",
    "Origin": "http://attacker.example",
}

MILLISECONDS = {1: lambda value, _: ("ms", value)}
ARN = "arn:aws:kinesis:us-east-1:000000000000:stream/orders"

MODEL = stored_model()
SHAPES = MODEL["shapes"]
TYPES = {"integer": int, "long": int, "boolean": bool, "timestamp": (int, float), "string": str, "blob": str}


TIMES = {1: lambda milliseconds, _: datetime.fromtimestamp(milliseconds / 1000, UTC)}


@pytest.fixture(params=["HTTP1_1", "HTTP2"], scope="module")
def servers(request):
    """An endpoint that accepts every signature, and one that checks them: of aiohttp, and of hypercorn."""
    options = {"http2": request.param == "HTTP2"}
    with serve_in_thread(**options) as anyone, serve_in_thread(credentials={"me": "secret"}, **options) as known:
        yield {False: anyone, True: known}


@pytest.fixture
def send(servers):
    """Send a request; returns its status, content type and body."""

    def send(body="", content_type=None, target=None, method="POST", path="/", checked=False, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", servers[checked].port)
        given = {"Content-Type": content_type, "X-Amz-Target": target, **headers}
        connection.request(method, path, body, {name: value for name, value in given.items() if value is not None})
        response = connection.getresponse()
        received = response.status, response.headers["Content-Type"], response.read()
        connection.close()
        assert len(base64.b64decode(response.headers["x-amz-id-2"])) == 72
        return received

    return send


def xml(code, message=None):
    return f"<{code}>\n  <Message>{message}</Message>\n</{code}>\n".encode() if message else f"<{code}/>\n".encode()


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
def test_only_posts_name_an_operation(send, method):
    assert send(method=method, target=LIST, content_type=JSON) == (403, None, xml("AccessDeniedException", DENIED))


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (None, (403, None, xml("AccessDeniedException", DENIED))),
        (LIST, (404, None, xml("UnknownOperationException"))),
    ],
)
def test_a_body_needs_a_content_type(send, target, expected):
    assert send("{}", target=target) == expected


@pytest.mark.parametrize(
    ("content_type", "answered"),
    [(JSON, JSON), ("  application/x-amz-json-1.1 ;x", JSON), (CBOR, CBOR), (None, CBOR), (OLD, CBOR), ("a/b", CBOR)],
)
@pytest.mark.parametrize(
    ("target", "code"),
    [(LIST, "SerializationException"), ("Whatever.ListStreams", "UnknownOperationException")],
)
def test_an_empty_body_is_answered_in_cbor_unless_it_is_json(send, content_type, answered, target, code):
    status, found, body = send(content_type=content_type, target=target)
    assert (status, found) == (400, answered)
    assert (json.loads if answered == JSON else cbor2.loads)(body) == {"__type": code}


@pytest.mark.parametrize(
    ("body", "status", "code"), [("hello", 400, "SerializationException"), ("{}", 404, "UnknownOperationException")]
)
def test_application_json_is_answered_in_an_old_format(send, body, status, code):
    found = send(body, content_type=OLD, target=LIST)
    assert found[:2] == (status, OLD)
    assert json.loads(found[2]) == {"Output": {"__type": f"com.amazon.coral.service#{code}"}, "Version": "1.0"}


@pytest.mark.parametrize(("body", "content_type"), [("hello", JSON), ("[]", JSON), ("\xff", CBOR)])
@pytest.mark.parametrize("target", [LIST, "Kinesis_20131202.Whatever"])
def test_a_body_that_is_no_object_is_refused_before_operation_and_signature(send, body, content_type, target):
    status, _, answer = send(body.encode("latin-1"), content_type=content_type, target=target, checked=True)
    assert (status, b"SerializationException" in answer) == (400, True)


@pytest.mark.parametrize(
    ("path", "headers", "code", "message"),
    [
        ("/", {}, "MissingAuthenticationTokenException", "Missing Authentication Token"),
        ("/?X-Amz-Date=d", {}, "MissingAuthenticationTokenException", "Missing Authentication Token"),
        ("/", {"Authorization": "X"}, "IncompleteSignatureException", ALL_MISSING_IN_HEADER),
        ("/?X-Amz-Algorithm", {"Authorization": "X"}, "InvalidSignatureException", BOTH),
        (
            "/",
            {"Authorization": "AWS4- Signature=b, Credential=a", "Date": "a"},
            "IncompleteSignatureException",
            "Authorization header requires 'SignedHeaders' parameter. Authorization=AWS4- Signature=b, Credential=a",
        ),
        (
            "/?X-Amz-Algorithm",
            {},
            "IncompleteSignatureException",
            f"{ALL_MISSING_IN_QUERY} Re-examine the query-string parameters.",
        ),
        (
            "/?X-Amz-Algorithm=a&X-Amz-Credential=b&X-Amz-Signature=c&X-Amz-SignedHeaders=d&X-Amz-Date=e",
            {},
            "InvalidSignatureException",
            "The embedded endpoint accepts signatures only in the Authorization header.",
        ),
    ],
)
def test_an_endpoint_with_credentials_says_what_a_signature_lacks(send, path, headers, code, message):
    status, content_type, body = send("{}", content_type=JSON, target=LIST, path=path, checked=True, **headers)
    assert (status, content_type, json.loads(body)) == (400, JSON, {"__type": code, "message": message})
    refused = send(method="GET", path=path, checked=True, **headers)
    assert refused == (403, None, xml(code, message))


def test_an_endpoint_without_credentials_does_not_look_at_signatures(send):
    assert send("{}", content_type=JSON, target=LIST, Authorization="X")[0] == 200


@pytest.mark.parametrize("header", FOREIGN)
def test_what_a_page_of_another_site_sends_is_refused(send, header):
    status, kind, body = send("{}", JSON, LIST, **{header: FOREIGN[header]})

    assert (status, kind, json.loads(body)["__type"]) == (403, JSON, "AccessDeniedException")


@pytest.mark.parametrize("header", [{"Host": "localhost:1"}, {"Host": "[::1]:1"}, {"Origin": "http://localhost:3000"}])
def test_what_this_machine_sends_is_answered(send, header):
    assert send("{}", JSON, LIST, **header)[0] == 200


def test_an_endpoint_for_other_machines_has_any_name_and_serves_no_page_of_another_site():
    with serve_in_thread(allow_remote=True) as served:
        answered = []
        for headers in ({"Host": "kinesis:4567"}, FOREIGN):
            connection = http.client.HTTPConnection("127.0.0.1", served.port)
            connection.request("POST", "/", "{}", {"Content-Type": JSON, "X-Amz-Target": LIST, **headers})
            answered.append(connection.getresponse().status)
            connection.close()

    assert answered == [200, 403]


def test_a_malformed_request_is_one_line(caplog):
    with serve_in_thread() as served, socket.create_connection(("127.0.0.1", served.port)) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nno header\r\n\r\n")
        assert b"400" in connection.recv(4096)

    assert [entry.getMessage()[:18] for entry in caplog.records] == ["malformed request:"]
    assert caplog.records[0].exc_info is None


def test_a_body_that_cannot_be_decoded_is_one_line(caplog):
    headers = {"Content-Type": JSON, "X-Amz-Target": LIST, "Content-Encoding": "gzip"}
    with serve_in_thread() as served:
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=10)
        connection.request("POST", "/", b"no gzip", headers)
        assert connection.getresponse().status == 400
        connection.close()

    assert [entry.getMessage()[:18] for entry in caplog.records] == ["malformed request:"]
    assert caplog.records[0].exc_info is None


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
    with pytest.raises(ApiError, match="cannot be used as CBOR"):
        wire_formats.CBOR.to_json(body)


class RawClient:
    """Sends requests of the API without an SDK, and compares the answers with the model."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.called: list[str] = []

    def __call__(self, operation: str, **fields: object) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        headers = {"X-Amz-Target": f"Kinesis_20131202.{operation}", "Content-Type": "application/x-amz-json-1.1"}
        body = msgspec.json.encode(fields)  # bytes become base64
        connection.request("POST", "/", body, headers)
        response = connection.getresponse()
        self.called.append(operation)
        if operation == "SubscribeToShard":
            return {"SubscribeToShardEvent": self._event(response)}
        content = response.read()
        connection.close()
        assert response.status == 200, content
        answer = msgspec.json.decode(content or b"{}")
        output = MODEL["operations"][operation].get("output")
        assert (output is None) == (content == b""), operation
        return checked(answer, output, operation) if output else answer

    @staticmethod
    def _event(response: http.client.HTTPResponse) -> Any:
        def frame() -> bytes:
            length = response.read(4)
            return length + response.read(int.from_bytes(length, "big") - 4)

        frame()  # the initial response
        _, payload = parse(frame()) or ({}, b"{}")
        response.close()
        return checked(msgspec.json.decode(payload), "SubscribeToShardEvent", "SubscribeToShard")


def checked(value: Any, name: str, path: str) -> Any:
    """Return the value with its blobs decoded; fails where it is not what the model says."""
    shape = SHAPES[name]
    match shape["type"]:
        case "structure":
            members = shape["members"]
            assert value.keys() <= members.keys(), f"{path}: not in the model: {value.keys() - members.keys()}"
            assert value.keys() >= set(shape.get("required", ())), f"{path}: missing in {sorted(value)}"
            return {key: checked(each, members[key], f"{path}.{key}") for key, each in value.items()}
        case "list":
            return [checked(each, shape["member"], f"{path}[]") for each in value]
        case "blob":
            return b64decode(value)
    assert isinstance(value, TYPES[shape["type"]]), f"{path}: {value!r}"
    if "enum" in shape:
        assert value in shape["enum"], f"{path}: {value!r}"
    return value


class CborClient:
    """Speaks CBOR, as the SDKs for Java do; blobs are bytes and times are tagged there."""

    def __init__(self, port: int) -> None:
        self._port = port

    def __call__(self, operation: str, **fields: object) -> dict[str, Any]:
        if operation == "SubscribeToShard":
            return RawClient(self._port)(operation, **fields)
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
        headers = {"X-Amz-Target": f"Kinesis_20131202.{operation}", "Content-Type": "application/x-amz-cbor-1.1"}
        connection.request("POST", "/", cbor2.dumps(fields), headers)
        response = connection.getresponse()
        content = response.read()
        connection.close()
        assert response.status == 200, content
        output = MODEL["operations"][operation].get("output")
        return with_times_tagged(cbor2.loads(content, semantic_decoders=TIMES), output, operation) if output else {}


def with_times_tagged(value: Any, name: str, path: str) -> Any:
    """Return the value; fails where a time has no tag, or what is no time has one."""
    shape = SHAPES[name]
    if shape["type"] == "structure":
        members = shape["members"]
        return {key: with_times_tagged(each, members[key], f"{path}.{key}") for key, each in value.items()}
    if shape["type"] == "list":
        return [with_times_tagged(each, shape["member"], f"{path}[]") for each in value]
    assert isinstance(value, datetime) == (shape["type"] == "timestamp"), path
    assert isinstance(value, bytes) == (shape["type"] == "blob"), path
    return value


def test_each_is_answered_in_cbor_as_well(serve):
    endpoint, _ = serve(delays=Delays(consumer=0))
    converse(CborClient(endpoint.port))


def test_each_is_answered_as_the_model_says(serve):
    endpoint, _ = serve(delays=Delays(consumer=0))
    client = RawClient(endpoint.port)
    converse(client)
    assert set(client.called) == set(served_operations())
