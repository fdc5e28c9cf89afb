"""The lifeline tells stop from the death of the driver, and the driver what a lane died of."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from recordpublisher.plugins.sinks.spark.spool.lifeline import DriverGoneError, LaneFailure, Lifeline, LifelineServer

HOST = "127.0.0.1"


@pytest.fixture
async def server():
    told: list[LaneFailure] = []
    made = LifelineServer("token", HOST, told.append)
    made.told = told
    await made.start()
    yield made
    await made.close()


async def until(condition) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


async def test_a_word_of_the_driver_means_stop(server):
    line = await Lifeline.connect(HOST, server.port, "token", 3)
    await until(lambda: server.lanes == {3})
    server.stop_lanes()
    assert await line.until_cut() is True
    line.close()
    await until(lambda: server.lanes == set())


async def test_who_comes_late_is_told_too(server):
    server.stop_lanes()
    line = await Lifeline.connect(HOST, server.port, "token", 3)
    assert await line.until_cut() is True
    line.close()


async def test_the_end_of_the_connection_means_that_the_driver_is_gone(server):
    line = await Lifeline.connect(HOST, server.port, "token", 3)
    await until(lambda: server.lanes == {3})
    await server.close()
    assert await line.until_cut() is False
    await line.tell("too late", is_fatal=True)
    line.close()


async def test_a_driver_that_cannot_be_reached_says_so(server):
    port = server.port
    await server.close()
    with pytest.raises(DriverGoneError, match="cannot be reached"):
        await Lifeline.connect(HOST, port, "token", 3)


async def test_the_driver_hears_what_a_lane_died_of(server):
    line = await Lifeline.connect(HOST, server.port, "token", 3)
    await line.tell("disk full\nreally", is_fatal=False)
    line.close()
    await until(lambda: server.told)
    assert server.told == [LaneFailure(3, "disk full\nreally", False)]


async def test_c4_without_the_token_nobody_is_heard(server):
    line = await Lifeline.connect(HOST, server.port, "wrong", 3)
    await line.tell("nonsense", is_fatal=True)
    assert await line.until_cut() is False
    assert (server.told, server.lanes) == ([], set())
    line.close()


async def test_nonsense_hurts_nobody_and_fills_no_log(server, caplog):
    words = b'{"token": "token", "lane": 9}\n'
    for nonsense in (
        b"\n",
        b"\xff\xfe\n",
        b"[]\n",
        b"{}\n",
        b'{"token": "token"}\n',
        '{"token": "é"}\n'.encode(),
        words + b"[]\n",
        b"x" * 100_000 + b"\n",
    ):
        reader, writer = await asyncio.open_connection(HOST, server.port)
        writer.write(nonsense)
        async with asyncio.timeout(60):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
        writer.close()
    assert caplog.records == []
    line = await Lifeline.connect(HOST, server.port, "token", 3)
    await until(lambda: server.lanes == {3})
    line.close()
