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
    assert await get(port, "/other") == (404, "not found; the pages are /hello\n")


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


@pytest.mark.parametrize("sent", [b"", b"GET /hello HTTP/1.1\r\n", b"GET /hello HTTP/1.1\r\nHost: a\r\n\r\n"])
async def test_a_peer_that_waits_gives_its_place_to_a_new_one_the_oldest_first(port, monkeypatch, sent):
    monkeypatch.setattr(http_pages, "MAX_CONNECTIONS", 2)
    held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
    for reader, writer in held:
        writer.write(sent)
        if sent.endswith(b"\r\n\r\n"):
            await reader.readuntil(b"hello\n")

    assert b"hello" in await raw(port, b"GET /hello HTTP/1.0\r\n\r\n")
    assert await held[0][0].read() == b"", "the oldest is closed"
    for _, writer in held:
        writer.close()
        await asyncio.wait([asyncio.create_task(writer.wait_closed())])


async def test_connections_that_are_being_answered_are_limited_and_free_again(monkeypatch):
    monkeypatch.setattr(http_pages, "MAX_CONNECTIONS", 2)
    asked, goes_on = asyncio.Semaphore(0), asyncio.Event()

    async def slow():
        asked.release()
        await goes_on.wait()
        return Page(b"slow\n")

    pages = HttpPages({"/slow": slow, "/hello": hello})
    port = await pages.listen("127.0.0.1", 0)
    held = [asyncio.create_task(raw(port, b"GET /slow HTTP/1.0\r\n\r\n")) for _ in range(2)]
    for _ in held:
        await asked.acquire()

    assert await raw(port, b"GET /hello HTTP/1.0\r\n\r\n") == b""
    goes_on.set()
    assert all(b"slow" in answer for answer in await asyncio.gather(*held))
    assert b"hello" in await raw(port, b"GET /hello HTTP/1.0\r\n\r\n")
    await pages.close()


@pytest.mark.parametrize(
    ("host", "status"), [("localhost:9", 200), ("127.0.0.1", 200), ("[::1]:9", 200), ("evil.example", 403), (None, 200)]
)
async def test_pages_of_this_machine_refuse_the_name_of_another_host(host, status):
    pages = HttpPages({"/hello": hello}, is_local=True)
    port = await pages.listen("127.0.0.1", 0)
    header = b"" if host is None else f"Host: {host}\r\n".encode()
    answer = await raw(port, b"GET /hello HTTP/1.0\r\n" + header + b"\r\n")
    await pages.close()

    assert int(answer.split()[1]) == status


async def test_an_error_in_a_page_is_logged_and_not_shown(caplog):
    async def broken():
        raise ValueError("secret")

    pages = HttpPages({"/broken": broken})
    port = await pages.listen("127.0.0.1", 0)
    answer = await get(port, "/broken")
    await pages.close()

    assert answer == (500, "the page cannot be made; see the log of the job\n")
    assert caplog.messages == ["the page /broken cannot be made, so the client gets status 500"]
