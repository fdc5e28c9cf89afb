"""Client and server of different protocol versions reject each other, by a sentence that says what to do."""

import asyncio
import logging
from typing import Literal

import msgspec
import pytest

from recordpublisher.plugins.trackers.tcp.protocol import VERSION, MessageReader, RejectFrame

from processes.tracker_clients import RawClient, running_job, wait_until


class ChallengeV1(msgspec.Struct, frozen=True, array_like=True, tag="challenge"):
    version: int
    number: bytes


class AnswerV1(msgspec.Struct, frozen=True, array_like=True, tag="answer"):
    coordinator: int


class FarewellV1(msgspec.Struct, frozen=True, array_like=True, tag="farewell"):
    reason: Literal["token", "version", "full"]


DECODER_V1 = msgspec.msgpack.Decoder(ChallengeV1 | AnswerV1 | FarewellV1)


def frame(message):
    body = msgspec.msgpack.encode(message)
    return len(body).to_bytes(4, "big") + body


async def test_a_client_of_version_1_reads_the_version_of_the_server(server):
    """That client compares it with its own, logs "it is of another version" and disconnects."""
    client = await RawClient.connect(server)
    frames = MessageReader(1_000)
    while (first := frames.next_frame()) is None:
        frames.feed(await client.reader.read(65_536))

    assert DECODER_V1.decode(first).version == VERSION == 4


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_an_auth_response_of_an_earlier_version_is_rejected_for_its_version(server, version):
    client = await RawClient.connect(server)
    await client.next()
    client.writer.write(frame([version, b"x" * 32]))

    assert await client.next() == RejectFrame("version")
    assert await client.is_disconnected()
    assert len(server.groups) == 0


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_a_server_of_an_earlier_version_is_named_with_what_to_do(caplog, version):
    caplog.set_level(logging.WARNING)
    received = bytearray()

    async def earlier_server(reader, writer):
        writer.write(frame(ChallengeV1(version, b"x" * 32)))
        received.extend(await reader.read())
        writer.close()

    server = await asyncio.start_server(earlier_server, "127.0.0.1", 0)
    async with running_job(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", 1) as job:
        subtask = await job.start(0)
        await wait_until(lambda: caplog.records, (subtask, 5))
    server.close()

    assert f"it speaks version {version} of the tracker protocol and this subtask version 4" in caplog.text
    assert "run the same recordpublisher release on both sides" in caplog.text
    assert not received, "no proof of the token goes to a server of another version"


async def test_a_server_that_rejects_the_version_is_named_with_what_to_do(caplog):
    async def later_server(reader, writer):
        writer.write(frame(RejectFrame("version")))
        writer.close()

    server = await asyncio.start_server(later_server, "127.0.0.1", 0)
    async with running_job(f"127.0.0.1:{server.sockets[0].getsockname()[1]}", 1) as job:
        subtask = await job.start(0)
        await wait_until(lambda: caplog.records, (subtask, 5))
    server.close()

    assert "it does not accept version 4 of the tracker protocol" in caplog.text
