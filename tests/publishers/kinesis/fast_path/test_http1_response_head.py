"""Heads of HTTP/1.1 responses are parsed."""

import pytest

from recordpublisher.publishers.kinesis.error_mapping import MalformedResponseError
from recordpublisher.publishers.kinesis.fast_path.http1_response import parse_response_head


def head(*lines):
    return parse_response_head("\r\n".join(lines).encode("latin-1"))


def test_status_and_headers_are_parsed():
    found = head("HTTP/1.1 400 Bad Request", "X-Amzn-RequestId:  a b ", "Content-Length: 12", "x: 1", "X: 2")
    assert (found.status, found.length, found.is_chunked) == (400, 12, False)
    assert found.headers == {"x-amzn-requestid": "a b", "content-length": "12", "x": "1, 2"}


@pytest.mark.parametrize(
    ("lines", "keeps_alive"),
    [
        (("HTTP/1.1 200 OK",), True),
        (("HTTP/1.1 200",), True),
        (("HTTP/1.1 200 OK", "Connection: Close"), False),
        (("HTTP/1.0 200 OK",), False),
        (("HTTP/1.0 200 OK", "Connection: keep-alive"), True),
    ],
)
def test_whether_the_connection_stays_open(lines, keeps_alive):
    assert head(*lines).keeps_alive is keeps_alive


@pytest.mark.parametrize(
    ("lines", "length", "chunked"),
    [
        (("HTTP/1.1 200 OK",), None, False),
        (("HTTP/1.1 200 OK", "Content-Length: 0"), 0, False),
        (("HTTP/1.1 200 OK", "Content-Length: 5", "Content-Length: 5"), 5, False),
        (("HTTP/1.1 200 OK", "Transfer-Encoding: Chunked", "Content-Length: 5"), None, True),
        (("HTTP/1.1 204 No Content", "Content-Length: 5"), 0, False),
        (("HTTP/1.1 304 Not Modified", "Transfer-Encoding: chunked"), 0, False),
    ],
)
def test_the_framing_of_the_body(lines, length, chunked):
    assert (head(*lines).length, head(*lines).is_chunked) == (length, chunked)


@pytest.mark.parametrize(
    "lines",
    [
        ("",),
        ("SSH-2.0-OpenSSH",),
        ("HTTP/2 200 OK",),
        ("HTTP/1.1 abc OK",),
        ("HTTP/1.1 200 OK", "no colon"),
        ("HTTP/1.1 200 OK", "X : 1"),
        ("HTTP/1.1 200 OK", " folded: 1"),
        ("HTTP/1.1 200 OK", "Content-Length: -1"),
        ("HTTP/1.1 200 OK", "Content-Length: " + "9" * 5_000),
        ("HTTP/1.1 200 OK", "Content-Length: 1_0"),
        ("HTTP/1.1 200 OK", "Content-Length: \xb2"),
        ("HTTP/1.1 200 OK", "Content-Length: 5", "Content-Length: 6"),
        ("HTTP/1.1 200 OK", "Transfer-Encoding: gzip, chunked"),
        ("HTTP/1.1 200 OK", "Content-Encoding: gzip"),
    ],
)
def test_malformed_or_unsupported_heads_are_refused(lines):
    with pytest.raises(MalformedResponseError):
        head(*lines)
