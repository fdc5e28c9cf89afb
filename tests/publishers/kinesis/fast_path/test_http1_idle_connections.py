"""Idle connections that turn out to be lost."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from recordpublisher.publishers.kinesis.fast_path import http1_pool as pool_module
from recordpublisher.publishers.kinesis.fast_path.http1_pool import ConnectionClosedError

from servers.scripted_http import Last, content_of, ok, pool_to


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
