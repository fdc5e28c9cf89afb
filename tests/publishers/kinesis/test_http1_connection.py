"""A connection whose server responds before the request was sent whole."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.publishers.kinesis.error_mapping import MalformedResponseError
from recordpublisher.publishers.kinesis.http1 import BodyReadScheduler, Http1Connection
from recordpublisher.publishers.kinesis.http1_response import BufferedBody, ChunkedDecoder, parse_response_head

from servers.scripted_http import READ_BUFFER_BYTES, ok


class EarlyResponse(asyncio.Transport):
    """Accepts one piece, is full, and in one iteration of the loop delivers the response and has room again."""

    def __init__(self):
        super().__init__()
        self.connection, self.pieces, self.is_aborted = None, 0, False

    def write(self, data):
        self.pieces += 1
        self.connection.pause_writing()
        asyncio.get_running_loop().call_soon(self._respond)

    def _respond(self):
        response = ok(b"no")
        self.connection.resume_writing()
        self.connection.get_buffer(-1)[: len(response)] = response
        self.connection.buffer_updated(len(response))

    def get_write_buffer_size(self):
        return 0

    def is_closing(self):
        return self.is_aborted

    def abort(self):
        self.is_aborted = True


async def exchanged(request):
    transport, connection = EarlyResponse(), Http1Connection(bytearray(READ_BUFFER_BYTES), BodyReadScheduler())
    transport.connection = connection
    connection.connection_made(transport)
    head, body = await connection.exchange(request, lambda head: BufferedBody())
    assert (head.status, body.content) == (200, b"no")
    return transport, connection


async def test_a_connection_whose_request_was_not_sent_whole_is_not_reused():
    """Its server would take the next request for the rest of this one."""
    transport, connection = await exchanged(bytes(10**6))
    assert transport.pieces == 1
    assert not connection.is_usable


async def test_a_connection_whose_request_was_sent_whole_is_reused():
    _, connection = await exchanged(bytes(10))
    assert connection.is_usable


# Heads of HTTP/1.1 responses are parsed.


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


# Chunked bodies.


def fed(wire, parts):
    chunks, kept, at = ChunkedDecoder(), b"", 0
    for part in (*parts, len(wire)):
        data = kept + wire[at : at + part]
        at += part
        kept = data[chunks.feed(data) :]
    return chunks, kept


@given(st.lists(st.binary(min_size=1, max_size=50)), st.lists(st.integers(1, 9), max_size=99), st.booleans())
def test_the_content_is_the_same_in_any_parts(contents, parts, extended):
    more = b";a=b" if extended else b""
    wire = b"".join(b"%X%b\r\n%b\r\n" % (len(content), more, content) for content in contents)
    trailer = b"X-Sum: 1\r\n" if extended else b""
    chunks, left = fed(wire + b"0\r\n" + trailer + b"\r\n" + b"next", parts)
    assert chunks.is_done
    assert (bytes(chunks.content), left) == (b"".join(contents), b"next")


def test_an_incomplete_body_is_not_done():
    chunks, _ = fed(b"5\r\nabcde\r\n0\r\n", [])
    assert not chunks.is_done


@pytest.mark.parametrize("wire", [b"zz\r\n", b"-1\r\n", b"\r\n", b"2\r\nabc\r\n", b"2\r\nab\r\n \r\n", b"1" * 9000])
def test_malformed_chunks_are_refused(wire):
    with pytest.raises(MalformedResponseError):
        fed(wire, [])


# Large bodies are read one after the other.


class Reader:
    def __init__(self):
        self.paused = False

    def pause(self):
        self.paused = True

    def resume(self):
        self.paused = False


async def iteration_with(scheduler, *readers):
    """One iteration of the loop in which these readers have more to read than fits into one read."""
    await asyncio.sleep(0)
    for reader in readers:
        if not reader.paused:
            scheduler.wait_turn(reader)


async def test_one_connection_reads_and_the_others_wait_in_order():
    scheduler, (a, b, c) = BodyReadScheduler(), [Reader() for _ in range(3)]
    for _ in range(5):
        await iteration_with(scheduler, a, b, c)
    assert [a.paused, b.paused, c.paused] == [False, True, True]
    scheduler.finish(a)
    await iteration_with(scheduler, b, c)
    assert [b.paused, c.paused] == [False, True]


async def test_p7_a_connection_that_reads_nothing_in_an_iteration_loses_its_turn():
    scheduler, (a, b, c) = BodyReadScheduler(), [Reader() for _ in range(3)]
    await iteration_with(scheduler, a, b, c)
    for _ in range(4):
        await iteration_with(scheduler, b, c)
    assert not b.paused, "a stalled, so b may read"
    for _ in range(4):
        await iteration_with(scheduler)
    assert not c.paused


async def test_a_waiting_connection_that_is_finished_gets_no_turn():
    scheduler, (a, b, c) = BodyReadScheduler(), [Reader() for _ in range(3)]
    await iteration_with(scheduler, a, b, c)
    scheduler.finish(b)
    assert not b.paused
    b.pause()
    scheduler.finish(a)
    assert [b.paused, c.paused] == [True, False]


async def test_a_connection_may_read_another_body_after_the_first():
    scheduler, reader = BodyReadScheduler(), Reader()
    await iteration_with(scheduler, reader)
    scheduler.finish(reader)
    await asyncio.sleep(0)
    await iteration_with(scheduler, reader)  # a new body
    scheduler.finish(reader)
    assert not reader.paused
