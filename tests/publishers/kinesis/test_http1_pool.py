"""One request and its response: complete or an error, and whether the connection is reused."""

import asyncio
import socket
import ssl
from contextlib import asynccontextmanager, suppress

import pytest

from recordpublisher.publishers.kinesis import http1 as pool_module
from recordpublisher.publishers.kinesis.error_mapping import MalformedResponseError
from recordpublisher.publishers.kinesis.http1 import ConnectionClosedError

from servers import scripted_http
from servers.certificates import self_signed
from servers.scripted_http import READ_BUFFER_BYTES, REQUEST, Last, RefusedEarly, content_of, ok, pool_to, until_noticed

LONG = bytes(range(256)) * (READ_BUFFER_BYTES // 16)  # many times the read buffer


def singly(response):
    return [response[n : n + 1] for n in range(len(response))]


@pytest.mark.parametrize(
    ("response", "content"),
    [
        (ok(b"abc"), b"abc"),
        (ok(b""), b""),
        (ok(LONG), LONG),
        (singly(ok(b"slow")), b"slow"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + ok(b"abc"), b"abc"),
        (ok(b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", b"Transfer-Encoding: chunked"), b"abcde"),
        (singly(ok(b"3\r\nabc\r\n0\r\nX: y\r\n\r\n", b"Transfer-Encoding: chunked")), b"abc"),
        (ok(b"%x\r\n%b\r\n0\r\n\r\n" % (len(LONG), LONG), b"Transfer-Encoding: chunked"), LONG),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    ],
)
async def test_a_complete_response_keeps_the_connection(response, content):
    async with pool_to(response, ok(b"next")) as (server, pool):
        assert (await content_of(pool))[1] == content
        assert await content_of(pool) == (200, b"next")
        assert (server.connections, server.requests) == (1, [REQUEST] * 2)


@pytest.mark.parametrize(
    ("response", "content"),
    [
        (Last(ok(b"abc")), b"abc"),
        (ok(b"abc", b"Content-Length: 3", b"Connection: close"), b"abc"),
        (Last(ok(b"until the end", b"X: y")), b"until the end"),
        (Last(ok(LONG, b"X: y")), LONG),
        (Last(b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nabc"), b"abc"),
        (ok(b"abc and more", b"Content-Length: 3"), b"abc"),
    ],
)
async def test_a_response_that_ends_the_connection(response, content):
    async with pool_to(response, ok(b"next")) as (server, pool):
        assert (await content_of(pool))[1] == content
        await until_noticed(pool)
        assert await content_of(pool) == (200, b"next")
        assert server.connections == 2


@pytest.mark.parametrize(
    ("response", "error"),
    [
        (None, pool_module.ConnectionClosedError),
        (Last(b"HTTP/1.1 200 OK\r\nContent-"), pool_module.ConnectionClosedError),
        (Last(ok(b"ab", b"Content-Length: 3")), pool_module.ConnectionClosedError),
        (Last(ok(LONG, b"Content-Length: 999999")), pool_module.ConnectionClosedError),
        (Last(ok(b"5\r\nab", b"Transfer-Encoding: chunked")), pool_module.ConnectionClosedError),
        (ok(b"zz\r\n", b"Transfer-Encoding: chunked"), MalformedResponseError),
        (b"SSH-2.0-OpenSSH\r\n\r\n", MalformedResponseError),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * 70_000, MalformedResponseError),
    ],
)
async def test_an_incomplete_or_missing_response_is_an_error_and_the_next_call_works(response, error):
    async with pool_to(response, ok(b"next")) as (server, pool):
        with pytest.raises(error):
            await content_of(pool)
        assert await content_of(pool) == (200, b"next")
        assert server.connections == 2


async def test_a_connection_that_the_server_closed_between_two_calls_is_not_reused():
    async with pool_to(Last(ok(b"a")), ok(b"b")) as (_, pool):
        await content_of(pool)
        await until_noticed(pool)
        assert await content_of(pool) == (200, b"b")


async def test_bytes_without_a_request_close_an_idle_connection():
    async with pool_to([ok(b"a"), b"", b"HTTP/1.1 408 Request Timeout\r\n\r\n"], ok(b"b")) as (server, pool):
        await content_of(pool)
        await until_noticed(pool)
        assert await content_of(pool) == (200, b"b")
        assert server.connections == 2


async def test_a_connection_that_was_idle_for_too_long_is_not_reused(monkeypatch):
    async with pool_to(ok(b"a"), ok(b"b")) as (server, pool):
        await content_of(pool)
        monkeypatch.setattr(pool_module, "_IDLE_SECONDS", 0.0)
        await content_of(pool)
        assert server.connections == 2


async def test_r3_a_cancelled_call_closes_its_connection():
    async with pool_to([b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\na"], ok(b"b")) as (server, pool):
        call = asyncio.ensure_future(content_of(pool))
        await server.arrived.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await server.hung_up.wait()
        assert await content_of(pool) == (200, b"b")


async def test_concurrent_calls_have_a_connection_each():
    async with pool_to(*[ok(b"x")] * 20) as (server, pool):
        await asyncio.gather(*(content_of(pool) for _ in range(10)))
        assert server.connections == 10
        await asyncio.gather(*(content_of(pool) for _ in range(10)))
        assert server.connections == 10


async def test_a_large_request_is_sent_whole():
    request = b"POST / HTTP/1.1\r\nContent-Length: 5000000\r\n\r\n" + bytes(5_000_000)
    async with pool_to(ok(b"a")) as (server, pool):
        assert await content_of(pool, request) == (200, b"a")
        assert server.requests == [request]


async def test_a_large_request_may_be_refused_before_it_is_sent():
    request = b"POST / HTTP/1.1\r\nContent-Length: 50000000\r\n\r\n" + bytes(50_000_000)
    async with pool_to([b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno"], ok(b"b")) as (server, pool):
        server.responses[0] = RefusedEarly(server.responses[0][0])
        with suppress(pool_module.ConnectionClosedError):  # if the reset of the connection arrives before the response
            assert await content_of(pool, request) == (413, b"no")
        assert await content_of(pool) == (200, b"b")


async def test_a_refused_connection_is_an_error():
    async with pool_to() as (_, pool):
        pass
    with pytest.raises(pool_module.EndpointConnectionError):
        await content_of(pool)


async def test_a_name_is_resolved_once_for_calls_that_start_together(monkeypatch):
    lookups = []
    loop = asyncio.get_running_loop()
    look_up = loop.getaddrinfo

    async def counted(*given, **more):
        lookups.append(given)
        return await look_up(*given, **more)

    monkeypatch.setattr(loop, "getaddrinfo", counted)
    async with pool_to(*[ok(b"x")] * 5) as (server, pool):
        await asyncio.gather(*(content_of(pool) for _ in range(5)))
        assert (server.connections, len(lookups)) == (5, 1)


async def test_connections_are_spread_over_the_addresses_of_a_name(monkeypatch):
    """Otherwise a thousand shards would use one machine of the service. The resolver decides which address family comes first."""
    four = [(socket.AF_INET, 1, 6, "", (f"10.0.0.{n}", 80)) for n in range(3)]
    six = [(socket.AF_INET6, 1, 6, "", (f"fd00::{n}", 80, 0, 0)) for n in range(2)]
    first = []

    async def look_up(*given, **more):
        return [*six, *four]

    async def connect(addresses, **more):
        first.append(
            [next(a[4][0] for a in addresses if a[0] == family) for family in (addresses[0][0], socket.AF_INET)]
        )
        raise OSError("no")

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
    monkeypatch.setattr(pool_module.aiohappyeyeballs, "start_connection", connect)
    async with pool_to() as (_, pool):
        for _ in range(6):
            with pytest.raises(pool_module.EndpointConnectionError):
                await content_of(pool)
    assert sorted({six for six, _ in first}) == ["fd00::0", "fd00::1"]
    assert sorted({four for _, four in first}) == ["10.0.0.0", "10.0.0.1", "10.0.0.2"]


async def test_tls_a_body_that_ends_with_the_connection_does_not_change_the_read_buffer(tmp_path, caplog):
    certificate = self_signed(tmp_path)
    trusted = ssl.create_default_context(cafile=certificate[0])
    async with pool_to(Last(ok(b"abc", b"Connection: close")), certificate=certificate, trusted=trusted) as (_, pool):
        assert (await content_of(pool))[1] == b"abc"
        await asyncio.sleep(0.05)
        assert len(pool._read_buffer) == READ_BUFFER_BYTES
    assert not caplog.records


async def test_a_connection_that_is_being_opened_when_the_pool_closes_is_closed(monkeypatch):
    async with pool_to(ok(b"a")) as (server, pool):
        connect = pool_module.aiohappyeyeballs.start_connection

        async def late(*given, **more):
            found = await connect(*given, **more)
            await pool.close()
            return found

        monkeypatch.setattr(pool_module.aiohappyeyeballs, "start_connection", late)
        with pytest.raises(pool_module.EndpointConnectionError):
            await content_of(pool)
        assert not pool._all
        await server.hung_up.wait()


async def test_tls_connections_are_reused(tmp_path):
    certificate = self_signed(tmp_path)
    trusted = ssl.create_default_context(cafile=certificate[0])
    async with pool_to(ok(LONG), ok(b"b"), certificate=certificate, trusted=trusted) as (server, pool):
        assert (await content_of(pool))[1] == LONG
        assert await content_of(pool) == (200, b"b")
        assert server.connections == 1


async def test_tls_connections_share_the_buffer_for_encrypted_bytes(tmp_path, monkeypatch):  # P6
    monkeypatch.setattr(scripted_http, "READ_BUFFER_BYTES", 256 * 1024)
    certificate = self_signed(tmp_path)
    trusted = ssl.create_default_context(cafile=certificate[0])
    bodies = [bytes([n]) * 1_000_000 for n in range(5)]
    async with pool_to(*map(ok, bodies), certificate=certificate, trusted=trusted) as (_, pool):
        responses = await asyncio.gather(*(content_of(pool) for _ in bodies))
        buffers = [connection._transport._ssl_protocol._ssl_buffer for connection in pool._all]
    assert sorted(body for _, body in responses) == bodies
    assert [buffer is pool._read_buffer for buffer in buffers] == [True] * 5


async def test_an_untrusted_certificate_is_an_error(tmp_path):
    trusted = ssl.create_default_context()
    async with pool_to(certificate=self_signed(tmp_path), trusted=trusted) as (_, pool):
        with pytest.raises(pool_module.SSLError) as raised:
            await content_of(pool)
    assert isinstance(raised.value.__cause__, ssl.SSLCertVerificationError)


# Idle connections that turn out to be lost.


@asynccontextmanager
async def six_lost_connections():
    """Six idle connections. The server resets each of them at its next request."""
    async with pool_to(*[ok(b"a")] * 6) as (server, pool):
        await asyncio.gather(*(content_of(pool) for _ in range(6)))
        server.responses = [None]
        yield server, pool


async def test_after_one_lost_connection_the_other_idle_ones_are_dropped():
    """Otherwise a call would fail at every retry: after four of them the job would fail."""
    async with six_lost_connections() as (server, pool):
        with pytest.raises(ConnectionClosedError):
            await content_of(pool)
        server.responses = [ok(b"b")]
        assert await content_of(pool) == (200, b"b")
        assert server.connections == 7


async def test_a_read_is_sent_again_when_its_idle_connection_was_lost():
    async with six_lost_connections() as (server, pool):
        server.responses.append(ok(b"b"))
        assert await content_of(pool, may_repeat=True) == (200, b"b")
        assert server.connections == 7


@pytest.mark.parametrize("response", [Last(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na"), Last(b"HTTP/1.1 2")])
async def test_a_request_is_not_sent_again_when_the_response_had_begun(response):
    async with six_lost_connections() as (server, pool):
        server.responses = [response, ok(b"b")]
        with pytest.raises(ConnectionClosedError):
            await content_of(pool, may_repeat=True)


async def test_a_request_is_sent_again_only_once():
    async with six_lost_connections() as (server, pool):
        server.responses = [None, None, ok(b"b")]
        with pytest.raises(ConnectionClosedError):
            await content_of(pool, may_repeat=True)
        assert server.connections == 7


async def test_after_a_call_without_a_response_the_other_idle_connections_are_dropped(monkeypatch):
    """As after a suspension of the process: the server is gone, and no reset arrives."""
    monkeypatch.setattr(pool_module, "_SILENT_SECONDS", 0.0)
    async with six_lost_connections() as (server, pool):
        server.responses = [b""]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await content_of(pool)
        server.responses = [ok(b"b")]
        assert await content_of(pool) == (200, b"b")
        assert server.connections == 7


async def test_a_call_cancelled_early_keeps_the_other_connections():
    async with six_lost_connections() as (server, pool):
        server.responses = [b""]
        call = asyncio.ensure_future(content_of(pool))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        server.responses = [ok(b"b")]
        assert await content_of(pool) == (200, b"b")
        assert server.connections == 6
