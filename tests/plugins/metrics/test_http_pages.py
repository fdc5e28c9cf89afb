"""The HTTP server of metrics: no peer disturbs the job."""

import asyncio
import logging

import aiohttp
import pytest

from recordpublisher.plugins.metrics import http_pages
from recordpublisher.plugins.metrics.http_pages import HttpPages, Page


async def hello():
    return Page(b"hello\n")


@pytest.fixture
async def port():
    pages = HttpPages({"/hello": hello})
    yield await pages.listen("127.0.0.1", 0)
    await pages.close()


async def get(port, path="/hello", method="GET"):
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, f"http://127.0.0.1:{port}{path}") as response,
    ):
        return response.status, await response.text()


async def raw(port, sent):
    """What the server says to some bytes until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    async with asyncio.timeout(60):
        try:
            received = await reader.read()
        except ConnectionError:
            received = b""
    writer.close()
    return received


async def test_a_page_is_read(port):
    assert await get(port) == (200, "hello\n")
    assert await get(port, method="HEAD") == (200, "")


async def test_another_path_names_the_pages(port):
    assert await get(port, "/other") == (404, "not found; there are /hello\n")


async def test_nothing_can_be_sent(port):
    assert (await get(port, method="POST"))[0] == 405


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01\x02\x00" + bytes(range(256)), b"GET /hello HTTP/1.1\r\nX: " + b"a" * 100_000 + b"\r\n\r\n"]
)
async def test_garbage_is_refused_without_a_log_line(port, sent, caplog):
    with caplog.at_level(logging.INFO):
        received = await raw(port, sent)

    assert received == b"" or b" 400 " in received.splitlines()[0]
    assert await get(port) == (200, "hello\n")
    assert caplog.messages == []


async def test_connections_are_limited_and_free_again(port, monkeypatch):
    monkeypatch.setattr(http_pages, "MAX_CONNECTIONS", 2)
    held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    for reader, writer in held:
        writer.write(b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n")
        await reader.readuntil(b"hello\n")

    assert await raw(port, b"GET /hello HTTP/1.0\r\n\r\n") == b""
    for reader, writer in held:
        writer.write(b"GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        await reader.read()
        writer.close()
    assert b"hello" in await raw(port, b"GET /hello HTTP/1.0\r\n\r\n")


async def test_an_error_in_a_page_is_logged_and_not_shown(caplog):
    async def broken():
        raise ValueError("secret")

    pages = HttpPages({"/broken": broken})
    port = await pages.listen("127.0.0.1", 0)
    answer = await get(port, "/broken")
    await pages.close()

    assert answer == (500, "see the log of the job\n")
    assert caplog.messages == ["the page /broken cannot be made"]
