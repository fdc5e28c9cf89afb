"""W10, C3, C4: no client of the tracker affects another, and memory stays bounded."""

import asyncio
import os
import socket

import msgspec
import pytest

from recordpublisher.fetcher.coordination.heartbeat_messages import HeartbeatRequest
from recordpublisher.plugins.trackers.tcp import server as server_module
from recordpublisher.plugins.trackers.tcp.protocol import (
    NONCE_BYTES,
    VERSION,
    AuthResponse,
    RejectFrame,
    sign_challenge,
)
from recordpublisher.plugins.trackers.tcp.server import TrackerServer
from recordpublisher.publishers.errors import ConfigurationError

from processes.tracker_clients import TOKEN, RawClient, report, running_job, wait_until


@pytest.fixture
async def job(server):
    """One regular subtask that must stay unaffected: it learns its new value."""
    async with running_job(server.address, 1) as made:
        regular = await made.start(0)
        await wait_until(lambda: regular.current() == 1, (regular, 1))
        yield regular
        await wait_until(lambda: regular.current() == 1_000, (regular, 1_000))


@pytest.mark.parametrize("size", [1, 3, 100, 100_000])
async def test_garbage_ends_its_own_connection(server, job, size):
    client = await RawClient.connect(server)
    client.writer.write(b"\xff" * size)
    client.writer.write_eof()

    assert await client.is_disconnected()


async def test_without_the_token_only_short_frames_are_read(server, job):
    client = await RawClient.connect(server)
    client.writer.write((1_000_000).to_bytes(4, "big"))

    assert await client.is_disconnected()


async def test_no_request_is_handled_before_the_token(server, job):
    client = await RawClient.connect(server)
    client.send_heartbeat(0, 10**9)

    assert await client.is_disconnected()
    assert len(server.groups) == 1


async def test_a_wrong_token_is_rejected(server, job):
    client = await RawClient.connect(server)
    client.send_frame(sign_challenge("guess", await client.next()))

    assert await client.next() == RejectFrame("token")
    assert await client.is_disconnected()


async def test_an_auth_response_cannot_be_replayed(server, job):
    first, second = await RawClient.connect(server), await RawClient.connect(server)
    await second.next()
    second.send_frame(sign_challenge(TOKEN, await first.next()))

    assert await second.next() == RejectFrame("token")


async def test_an_auth_response_of_the_same_token_is_worth_nothing_with_another_nonce(server, job):
    client = await RawClient.connect(server)
    response = sign_challenge(TOKEN, await client.next())
    client.send_frame(msgspec.structs.replace(response, nonce=bytes(NONCE_BYTES)))

    assert await client.next() == RejectFrame("token")


@pytest.mark.parametrize("nonce", [b"", b"x" * (NONCE_BYTES - 1), b"x" * (NONCE_BYTES + 1)])
async def test_a_nonce_of_another_length_ends_its_own_connection(server, job, nonce):
    """Its length is part of what makes two handshakes' input differ."""
    client = await RawClient.connect(server)
    await client.next()
    client.send_frame(AuthResponse(VERSION, b"x" * 32, nonce))

    assert await client.is_disconnected()


async def test_a_client_gets_no_proof_of_the_token_without_its_own(server, job):
    """Else anyone who can connect could try tokens against it."""
    client = await RawClient.connect(server)
    await client.next()
    client.send_frame(AuthResponse(VERSION, b"x" * 32, b"x" * NONCE_BYTES))

    assert await client.next() == RejectFrame("token")
    with pytest.raises(EOFError):
        await client.next()


async def test_a_client_of_another_version_is_rejected(server, job):
    client = await RawClient.connect(server)
    await client.next()
    client.send_frame(AuthResponse(VERSION + 1, b""))

    assert await client.next() == RejectFrame("version")


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
async def test_a_malformed_request_ends_its_own_connection(server, job, message):
    client = await RawClient.authenticated(server)
    client.send_frame(message)

    assert await client.is_disconnected()


async def test_a_request_that_nests_too_deeply_ends_its_own_connection_without_a_traceback(server, job, caplog):
    """The nesting stands where a later version may have a field: it is skipped step by step."""
    fields = msgspec.to_builtins(HeartbeatRequest("other", 0, 1, 0, 1, "IDLE"))
    body = msgspec.msgpack.encode([*fields, None])[:-1] + b"\x91" * 60_000 + b"\xc0"
    client = await RawClient.authenticated(server)
    client.writer.write(len(body).to_bytes(4, "big") + body)

    assert await client.is_disconnected()
    assert caplog.records == []


async def test_a_connection_reports_for_one_subtask(server, job):
    client = await RawClient.authenticated(server)
    client.send_heartbeat(0, 1, group="other")
    client.send_heartbeat(1, 1, group="other")

    assert await client.is_disconnected()


async def test_a_client_that_sends_no_token_is_disconnected(server, job, monkeypatch):  # slowloris
    monkeypatch.setattr(server_module, "HANDSHAKE_TIMEOUT_SECONDS", 0.4)
    client = await RawClient.connect(server)
    await client.next()
    client.writer.write(b"\x00")

    assert await client.is_disconnected()


async def test_a_client_that_is_silent_for_long_is_disconnected(server, job, monkeypatch):
    monkeypatch.setattr(server_module, "IDLE_TIMEOUT_SECONDS", 0.4)
    client = await RawClient.authenticated(server)
    client.send_heartbeat(0, 1, group="other")

    assert await client.is_disconnected()


async def test_of_too_many_unauthenticated_clients_the_oldest_is_disconnected():
    async with TrackerServer(TOKEN, max_unauthenticated=20) as server, running_job(server.address, 1) as job:
        regular = await job.start(0)
        await wait_until(lambda: regular.current() == 1, (regular, 1))
        clients = [await RawClient.connect(server) for _ in range(60)]
        assert await clients[0].is_disconnected()
        late = await job.start(0)
        await wait_until(lambda: late.current() == 5, (late, 5))

        assert len(server._unauthenticated) <= 20


async def test_connections_are_limited():
    async with TrackerServer(TOKEN, max_connections=2) as server:
        for _ in range(2):
            await RawClient.authenticated(server)
        third = await RawClient.connect(server)
        third.send_frame(sign_challenge(TOKEN, await third.next()))

        assert await third.is_disconnected()


async def test_a_client_that_never_reads_is_disconnected(server, job):
    unread = socket.socket()
    unread.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    unread.setblocking(False)
    await asyncio.get_running_loop().sock_connect(unread, (server.host, server.port))
    client = await _unreading_client(unread)
    number, keys = 0, tuple(f"orders/shardId-{number:012}" for number in range(200))
    async with asyncio.timeout(60):
        try:
            while True:
                number += 1
                client.send_heartbeat(0, number, number, group="unread", finished_shards=keys, queried_shards=keys)
                await client.writer.drain()
        except ConnectionError:
            pass

    assert number > 10


async def _unreading_client(sock):
    reader, writer = await asyncio.open_connection(sock=sock, limit=1)
    client = RawClient(reader, writer)
    await client.authenticate()
    writer.transport.pause_reading()
    return client


async def test_a_flood_of_requests_does_not_starve_the_others(server, job):
    client = await RawClient.authenticated(server)
    for number in range(20_000):
        client.send_heartbeat(0, number, number + 1, group="flood")
    for watermark in range(2, 12):
        await wait_until(lambda: job.current() == watermark, (job, watermark))  # noqa: B023

    assert server.groups.heartbeats < 20_000, "the flood is still being read"


async def test_groups_and_subtasks_are_limited(server, job):
    server.groups._max_groups = 2
    server.groups._max_subtasks = 100
    for group, parallelism in (("huge", 100), ("second", 2), ("third", 2)):
        client = await RawClient.authenticated(server)
        client.send_heartbeat(0, 1, group=group, parallelism=parallelism)
        response = await client.next()
        assert (response == RejectFrame("capacity")) is (group != "second")
        client.abort()


async def test_empty_groups_are_removed_after_a_while(server, job):
    server.groups._retention_ms = 300
    client = await RawClient.authenticated(server)
    client.send_heartbeat(0, 1, group="short")
    await client.next()
    assert len(server.groups) == 2
    client.abort()
    await wait_until(lambda: len(server.groups) == 1, (job, 1))


async def test_half_frames_and_resets_in_every_order(server, job):
    for size in (0, 1, 4, 5, 20):
        client = await RawClient.authenticated(server)
        client.writer.write((30).to_bytes(4, "big") + os.urandom(size))
        await asyncio.sleep(0.01)
        client.abort()
        report(job, 2)


async def test_an_empty_token_is_rejected():  # C4
    with pytest.raises(ConfigurationError, match="token"):
        TrackerServer("")


async def test_a_port_that_is_taken_is_named(server):
    with pytest.raises(ConfigurationError, match="port"):
        await TrackerServer(TOKEN, port=server.port).start()
