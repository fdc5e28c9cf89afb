"""What is refused before its input is looked at: in the service's order and formats, as recorded from it by kinesalite's tests."""

import base64
import http.client
import json
import socket

import cbor2
import pytest

from recordpublisher.local import serve_in_thread

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
            "Only signatures in the Authorization header are known here.",
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


FOREIGN = {
    "Host": "attacker.example:4567",
    "Origin": "http://attacker.example",
}


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
