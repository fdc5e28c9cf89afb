"""Connections kept for the next request that turn out to be lost: what that costs, and whom."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from botocore import exceptions as sdk

from recordpublisher.publishers.kinesis.fast_path import http1_pool as pool_module

from servers.scripted_http import Last, content_of, ok, pool_to


@asynccontextmanager
async def many_kept():
    """Six connections that wait for their next request; the server knows none of them any more and says so by a reset."""
    async with pool_to(*[ok(b"a")] * 6) as (server, pool):
        await asyncio.gather(*(content_of(pool) for _ in range(6)))
        server.says = [None]
        yield server, pool


async def test_one_lost_connection_is_a_sign_that_those_kept_beside_it_are_lost_too():
    """Else a call fails as often as it is tried again: four times, and the job has failed."""
    async with many_kept() as (server, pool):
        with pytest.raises(sdk.ConnectionClosedError):
            await content_of(pool)
        server.says = [ok(b"b")]
        assert await content_of(pool) == (200, b"b")
        assert server.connections == 7


async def test_a_request_that_changes_nothing_is_sent_again_when_a_kept_connection_was_lost():
    async with many_kept() as (server, pool):
        server.says.append(ok(b"b"))
        assert await content_of(pool, may_repeat=True) == (200, b"b")
        assert server.connections == 7


@pytest.mark.parametrize("said", [Last(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na"), Last(b"HTTP/1.1 2")])
async def test_a_request_is_not_sent_again_when_the_answer_had_begun(said):
    async with many_kept() as (server, pool):
        server.says = [said, ok(b"b")]
        with pytest.raises(sdk.ConnectionClosedError):
            await content_of(pool, may_repeat=True)


async def test_a_request_is_sent_again_once():
    async with many_kept() as (server, pool):
        server.says = [None, None, ok(b"b")]
        with pytest.raises(sdk.ConnectionClosedError):
            await content_of(pool, may_repeat=True)
        assert server.connections == 7


async def test_silence_that_was_given_up_is_a_sign_too(monkeypatch):
    """The process was suspended: nobody is behind the kept connections, and nobody says so."""
    monkeypatch.setattr(pool_module, "_SILENT_SECONDS", 0.01)
    async with many_kept() as (server, pool):
        server.says = [b""]
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await content_of(pool)
        server.says = [ok(b"b")]
        assert await content_of(pool) == (200, b"b")
        assert server.connections == 7


async def test_a_cancelled_call_leaves_the_other_connections():
    async with many_kept() as (server, pool):
        server.says = [b""]
        call = asyncio.ensure_future(content_of(pool))
        await asyncio.sleep(0)
        call.cancel()
        await asyncio.wait([call])
        server.says = [ok(b"b")]
        assert await content_of(pool) == (200, b"b")
        assert server.connections == 6
