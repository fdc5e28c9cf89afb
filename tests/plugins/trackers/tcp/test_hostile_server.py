"""W10, C3: a server without the token is believed in nothing, is told nothing, and ends in one line of the log."""

import asyncio
import logging
from contextlib import asynccontextmanager

import msgspec
import pytest

from recordpublisher.fetcher.coordination.heartbeat_messages import HeartbeatResponse
from recordpublisher.plugins.trackers.tcp import client as client_module
from recordpublisher.plugins.trackers.tcp.protocol import (
    VERSION,
    AuthResponse,
    Challenge,
    MessageReader,
    RejectFrame,
    ServerProof,
    new_challenge,
    sign_challenge,
    sign_response,
)

from processes.tracker_clients import TOKEN, RawClient, running_job, wait_until

BELIEVED = HeartbeatResponse(coordinator_id=1, request_number=1, generation=1, global_watermark=10**12)
NO_TOKEN = "it does not have the token (flink.watermark.tracker.token)"
NO_PROTOCOL = "it does not speak the tracker protocol"


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    """On a machine that stops for seconds, no deadline may come before what a test waits for."""
    for deadline in ("CONNECT_TIMEOUT_SECONDS", "HANDSHAKE_TIMEOUT_SECONDS"):
        monkeypatch.setattr(client_module, deadline, 600.0)


def frame(message):
    body = message if isinstance(message, bytes) else msgspec.msgpack.encode(message)
    return len(body).to_bytes(4, "big") + body


class Conversation:
    """The server's side of one connection."""

    def __init__(self, reader, writer):
        self.reader, self.writer, self.frames, self.received = reader, writer, MessageReader(2**20), bytearray()

    def send(self, *messages):
        self.writer.write(b"".join(map(frame, messages)))

    async def response(self):
        while (found := self.frames.next_frame()) is None:
            self.frames.feed(await self.reader.readexactly(1))
        return msgspec.msgpack.decode(found, type=AuthResponse)


@asynccontextmanager
async def hostile_server(behave):
    """Serve each connection by `behave(conversation)`, then read until the client is gone. Yields the address and what was read then."""
    rest, writers = [], []

    async def serve(reader, writer):
        writers.append(writer)
        conversation = Conversation(reader, writer)
        try:
            await behave(conversation)
            rest.append(await reader.read())
        except (ConnectionError, asyncio.IncompleteReadError):
            rest.append(b"")
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", rest
    finally:
        server.close()
        for _ in range(5):  # turns of the loop that a connection needs from its acceptance to `serve`
            await asyncio.sleep(0)
        for writer in writers:
            writer.transport.abort()


async def problem_with(behave, caplog):
    """What a subtask logs of such a server; it must believe nothing, and tell nothing after its own proof."""
    caplog.set_level(logging.WARNING)
    async with hostile_server(behave) as (address, rest), running_job(address, 1) as job:
        subtask = await job.start(0)
        await wait_until(lambda: caplog.records and rest, (subtask, 5))
        assert (subtask.current(), subtask.is_reachable) == (None, False)
        assert not any(rest), "no report was sent"
    assert [record.exc_info for record in caplog.records] == [None], caplog.text
    return caplog.records[0].message


async def test_a_server_without_the_token_gets_no_report(caplog):
    async def guess(server):
        challenge = new_challenge()
        server.send(challenge)
        server.send(sign_response("guess", challenge, await server.response()), BELIEVED)

    assert NO_TOKEN in await problem_with(guess, caplog)


async def test_a_server_that_only_says_that_it_agrees_is_not_believed(caplog):
    """Every server was believed so until version 2 of the protocol."""

    async def agree(server):
        server.send(new_challenge())
        await server.response()
        server.send(BELIEVED)

    assert NO_PROTOCOL in await problem_with(agree, caplog)


async def test_a_response_before_the_challenge_is_not_believed(caplog):
    async def hurry(server):
        server.send(BELIEVED)

    assert NO_PROTOCOL in await problem_with(hurry, caplog)


async def test_the_clients_own_proof_is_none_of_the_server(caplog):  # reflection
    async def reflect(server):
        server.send(new_challenge())
        server.send(ServerProof((await server.response()).mac), BELIEVED)

    assert NO_TOKEN in await problem_with(reflect, caplog)


async def test_a_recorded_proof_of_the_true_server_is_worth_nothing(server, caplog):  # replay
    recorded = await RawClient.connect(server)
    challenge = await recorded.next()

    async def replay(server):
        server.send(challenge)
        await server.response()
        server.send(proof, BELIEVED)

    recorded.send_frame(sign_challenge(TOKEN, challenge))
    proof = await recorded.next()

    assert NO_TOKEN in await problem_with(replay, caplog)


async def test_a_subtask_signs_one_challenge_of_a_connection(caplog):
    async def ask_again(server):
        server.send(new_challenge())
        await server.response()
        server.send(new_challenge())

    assert NO_PROTOCOL in await problem_with(ask_again, caplog)


@pytest.mark.parametrize(
    "messages",
    [
        [b"\xff" * 100],
        [b"\x91" * 200],
        [b"x" * 100_000],
        [["challenge", VERSION, "text"]],
        [["challenge", VERSION, b""]],
        [["challenge", VERSION, b"x" * 31]],
        [["challenge", 2**64 - 1]],
        [["proof", b"x" * 32]],
        [["reject", "something"]],
        [["reject", "token", [[[]]]], None],
        [None],
        [{"version": 3}],
    ],
    ids=lambda messages: repr(messages[0])[:30],
)
async def test_nonsense_ends_the_connection_in_one_line(caplog, messages):
    async def talk(server):
        server.send(*messages)

    found = await problem_with(talk, caplog)
    assert NO_PROTOCOL in found or "it rejects the token" in found


async def test_a_server_that_rejects_and_stays_is_disconnected(caplog):
    async def stay(server):
        server.send(RejectFrame("token"))

    assert "it rejects the token" in await problem_with(stay, caplog)


@pytest.mark.parametrize("first", [[], [Challenge(VERSION, b"x" * 32)]], ids=["from the start", "after the challenge"])
async def test_a_silent_server_is_disconnected(caplog, monkeypatch, first):
    monkeypatch.setattr(client_module, "HANDSHAKE_TIMEOUT_SECONDS", 0.2)
    caplog.set_level(logging.WARNING)
    ended = asyncio.Event()

    async def be_silent(server):
        server.send(*first)
        await server.reader.read()
        ended.set()

    async with hostile_server(be_silent) as (address, _), running_job(address, 1) as job:
        await job.start(0)
        async with asyncio.timeout(60):
            await ended.wait()
        await wait_until(lambda: caplog.records)

    assert "it did not finish the handshake within 0.2 s" in caplog.text


async def test_a_proven_server_whose_responses_nest_too_deeply_is_disconnected(caplog):
    """The nesting stands where a later version may have a field: it is skipped step by step."""
    fields = msgspec.to_builtins(BELIEVED)
    nested = msgspec.msgpack.encode([*fields, None])[:-1] + b"\x91" * 60_000 + b"\xc0"

    async def nest(server):
        challenge = new_challenge()
        server.send(challenge)
        server.send(sign_response(TOKEN, challenge, await server.response()), nested)

    caplog.set_level(logging.WARNING)
    async with hostile_server(nest) as (address, _), running_job(address, 1) as job:
        subtask = await job.start(0)
        await wait_until(lambda: NO_PROTOCOL in caplog.text, (subtask, 5))

    assert [record.exc_info for record in caplog.records] == [None]
