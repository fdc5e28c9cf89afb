"""W10, C3, C4: whoever comes to the tracker, nobody else is affected, and memory stays bounded."""

import asyncio
import os
import socket

import pytest

from recordpublisher.plugins.trackers.tcp import server as server_module
from recordpublisher.plugins.trackers.tcp.protocol import VERSION, Farewell, Proof, proof_of
from recordpublisher.plugins.trackers.tcp.server import TrackerServer
from recordpublisher.publishers.errors import ConfigurationError

from processes.tracker_clients import TOKEN, Stranger, a_job, says, until


@pytest.fixture
async def job(server):
    """One honest subtask that must go on undisturbed: it learns its new value."""
    async with a_job(server.address, 1) as made:
        honest = await made.start(0)
        await until(lambda: honest.current() == 1, (honest, 1))
        yield honest
        await until(lambda: honest.current() == 1_000, (honest, 1_000))


@pytest.mark.parametrize("size", [1, 3, 100, 100_000])
async def test_garbage_ends_its_own_connection(server, job, size):
    stranger = await Stranger.comes(server)
    stranger.writer.write(b"\xff" * size)
    stranger.writer.write_eof()

    assert await stranger.is_hung_up_on()


async def test_without_the_token_only_short_frames_are_read(server, job):
    stranger = await Stranger.comes(server)
    stranger.writer.write((1_000_000).to_bytes(4, "big"))

    assert await stranger.is_hung_up_on()


async def test_nothing_is_heard_before_the_token(server, job):
    stranger = await Stranger.comes(server)
    stranger.state(0, 10**9)

    assert await stranger.is_hung_up_on()
    assert len(server.offices) == 1


async def test_a_wrong_proof_is_told_so(server, job):
    stranger = await Stranger.comes(server)
    stranger.frame(proof_of("guess", await stranger.next()))

    assert await stranger.next() == Farewell("token")
    assert await stranger.is_hung_up_on()


async def test_a_proof_cannot_be_used_again(server, job):
    first, second = await Stranger.comes(server), await Stranger.comes(server)
    await second.next()
    second.frame(proof_of(TOKEN, await first.next()))

    assert await second.next() == Farewell("token")


async def test_another_version_is_told_so(server, job):
    stranger = await Stranger.comes(server)
    await stranger.next()
    stranger.frame(Proof(VERSION + 1, b""))

    assert await stranger.next() == Farewell("version")


@pytest.mark.parametrize(
    "message",
    [
        ["g", 0],
        ["g", 0, 1, 0, 1, "SOMETHING"],
        ["g", -1, 1, 0, 1, "IDLE"],
        ["g", 1, 1, 0, 1, "IDLE"],
        ["g", 0, 10**9, 0, 1, "IDLE"],
        ["", 0, 1, 0, 1, "IDLE"],
        ["x" * 2_000, 0, 1, 0, 1, "IDLE"],
        ["g", 0, 1, 0, 1, "ACTIVE", 2**63],
        ["g", 0, 1, 0, 1, "ACTIVE", 1.5],
        ["g", 0, 1, 0, 1, "ACTIVE", 1, 1, 1, 1, [1]],
        {"group": "g"},
        None,
    ],
)
async def test_a_malformed_statement_ends_its_own_connection(server, job, message):
    stranger = await Stranger.with_token(server)
    stranger.frame(message)

    assert await stranger.is_hung_up_on()


async def test_a_connection_speaks_for_one_subtask(server, job):
    stranger = await Stranger.with_token(server)
    stranger.state(0, 1, group="other")
    stranger.state(1, 1, group="other")

    assert await stranger.is_hung_up_on()


async def test_who_shows_no_token_is_hung_up_on(server, job, monkeypatch):  # slowloris
    monkeypatch.setattr(server_module, "GREETING_SECONDS", 0.4)
    stranger = await Stranger.comes(server)
    await stranger.next()
    stranger.writer.write(b"\x00")

    assert await stranger.is_hung_up_on()


async def test_who_says_nothing_for_long_is_hung_up_on(server, job, monkeypatch):
    monkeypatch.setattr(server_module, "QUIET_SECONDS", 0.4)
    stranger = await Stranger.with_token(server)
    stranger.state(0, 1, group="other")

    assert await stranger.is_hung_up_on()


async def test_too_many_strangers_push_out_the_oldest():
    async with TrackerServer(TOKEN, most_strangers=20) as server, a_job(server.address, 1) as job:
        honest = await job.start(0)
        await until(lambda: honest.current() == 1, (honest, 1))
        crowd = [await Stranger.comes(server) for _ in range(60)]
        assert await crowd[0].is_hung_up_on()
        late = await job.start(0)
        await until(lambda: late.current() == 5, (late, 5))

        assert len(server._strangers) <= 20


async def test_there_is_a_last_connection():
    async with TrackerServer(TOKEN, most_connections=2) as server:
        crowd = [await Stranger.with_token(server) for _ in range(3)]

        assert await crowd[2].is_hung_up_on()


async def test_a_client_that_never_reads_is_hung_up_on(server, job):
    deaf = socket.socket()
    deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    deaf.setblocking(False)
    await asyncio.get_running_loop().sock_connect(deaf, (server.host, server.port))
    stranger = await _deaf(deaf)
    counter, keys = 0, tuple(f"orders/shardId-{number:012}" for number in range(200))
    async with asyncio.timeout(60):
        try:
            while True:
                counter += 1
                stranger.state(0, counter, counter, group="deaf", finished=keys, asked=keys)
                await stranger.writer.drain()
        except ConnectionError:
            pass

    assert counter > 10


async def _deaf(sock):
    reader, writer = await asyncio.open_connection(sock=sock, limit=1)
    stranger = Stranger(reader, writer)
    stranger.frame(proof_of(TOKEN, await stranger.next()))
    writer.transport.pause_reading()
    return stranger


async def test_a_flood_of_statements_leaves_the_others_their_turn(server, job):
    stranger = await Stranger.with_token(server)
    for counter in range(20_000):
        stranger.state(0, counter, counter + 1, group="flood")
    for watermark in range(2, 12):
        await until(lambda: job.current() == watermark, (job, watermark))  # noqa: B023

    assert server.offices.statements < 20_000, "the flood is still being read"


async def test_there_are_only_so_many_groups_and_subtasks(server, job):
    server.offices._most_groups = 2
    server.offices._most_subtasks = 100
    for group, parallelism in (("huge", 100), ("second", 2), ("third", 2)):
        stranger = await Stranger.with_token(server)
        stranger.state(0, 1, group=group, parallelism=parallelism)
        answer = await stranger.next()
        assert (answer == Farewell("full")) is (group != "second")
        stranger.goes()


async def test_groups_that_are_gone_are_forgotten_after_a_while(server, job):
    server.offices._forget_ms = 300
    stranger = await Stranger.with_token(server)
    stranger.state(0, 1, group="short")
    await stranger.next()
    assert len(server.offices) == 2
    stranger.goes()
    await until(lambda: len(server.offices) == 1, (job, 1))


async def test_half_frames_and_resets_in_every_order(server, job):
    for size in (0, 1, 4, 5, 20):
        stranger = await Stranger.with_token(server)
        stranger.writer.write((30).to_bytes(4, "big") + os.urandom(size))
        await asyncio.sleep(0.01)
        stranger.goes()
        says(job, 2)


async def test_an_empty_token_is_refused():  # C4
    with pytest.raises(ConfigurationError, match="token"):
        TrackerServer("")


async def test_a_port_that_is_taken_is_named(server):
    with pytest.raises(ConfigurationError, match="port"):
        await TrackerServer(TOKEN, port=server.port).start()
