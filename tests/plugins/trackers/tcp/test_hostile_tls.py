"""W10, C4: no stranger at a tracker with TLS affects a subtask, logs a traceback, or stays."""

import asyncio
import logging
import ssl

import pytest

from recordpublisher.plugins.trackers.tcp import server as server_module
from recordpublisher.plugins.trackers.tcp.server import TlsHandshake, TrackerServer
from recordpublisher.plugins.trackers.tcp.tls import server_context

from processes.tracker_clients import TOKEN, RawClient, running_job, wait_until
from servers.certificates import CertificateAuthority

CA = "flink.watermark.tracker.tls.ca"


@pytest.fixture
def authority(tmp_path):
    return CertificateAuthority(tmp_path)


@pytest.fixture
async def server(authority):
    async with TrackerServer(TOKEN, tls=server_context(*authority.issue()), max_unauthenticated=20) as made:
        yield made


@pytest.fixture
async def job(server, authority, caplog):
    """One regular subtask that must stay unaffected: it keeps its connection and learns its new value. Nothing is logged."""
    caplog.set_level(logging.WARNING)
    async with running_job(server.address, 1, **{CA: authority.file}) as made:
        regular = await made.start(0)
        await wait_until(lambda: regular.current() == 1, (regular, 1))
        connection = regular._connection
        yield made
        await wait_until(lambda: regular.current() == 1_000, (regular, 1_000))
        assert regular._connection is connection
    assert [record.message for record in caplog.records] == []


class HandshakeInSteps:
    """A TLS client whose bytes the test sends."""

    def __init__(self, authority):
        self.received, self.to_send = ssl.MemoryBIO(), ssl.MemoryBIO()
        context = ssl.create_default_context(cafile=authority.file)
        self.tls = context.wrap_bio(self.received, self.to_send, server_hostname="127.0.0.1")

    def first_flight(self):
        with pytest.raises(ssl.SSLWantReadError):
            self.tls.do_handshake()
        return self.to_send.read()

    async def finish(self, client):
        """The last flight, which is not sent yet."""
        client.writer.write(self.first_flight())
        while True:
            self.received.write(await client.reader.read(65_536))
            try:
                self.tls.do_handshake()
                return self.to_send.read()
            except ssl.SSLWantReadError:
                client.writer.write(self.to_send.read())


@pytest.mark.parametrize("data", [b"\xff", b"\x16\x03\x01", b"\xff" * 100_000, b"GET / HTTP/1.1\r\n\r\n"])
async def test_garbage_ends_its_own_connection(server, job, data):
    client = await RawClient.connect(server)
    client.writer.write(data)
    client.writer.write_eof()

    assert await client.is_disconnected()
    await wait_until(lambda: not server._unauthenticated)


async def test_of_too_many_silent_strangers_the_oldest_is_disconnected(server, job):
    strangers = [await RawClient.connect(server) for _ in range(60)]
    assert await strangers[0].is_disconnected()
    late = await job.start(0)
    await wait_until(lambda: late.current() == 5, (late, 5))

    assert len(server._unauthenticated) <= 20
    await late.close()
    job.trackers.remove(late)


async def test_connections_share_one_buffer_for_encrypted_bytes(server, job, authority):
    """asyncio's own have 256 KiB each: 4,000 strangers would take a gigabyte."""
    await RawClient.connect(server)
    await wait_until(lambda: server._unauthenticated)
    (stranger,) = server._unauthenticated
    (regular,) = server._authenticated

    assert regular._transport._ssl_protocol._ssl_buffer is server._encrypted_buffer
    await wait_until(
        lambda: getattr(stranger._transport.get_protocol(), "_ssl_buffer", None) is server._encrypted_buffer
    )


async def test_a_stranger_that_begins_the_handshake_and_stops_is_disconnected(server, job, authority, monkeypatch):
    monkeypatch.setattr(server_module, "HANDSHAKE_TIMEOUT_SECONDS", 0.4)
    client = await RawClient.connect(server)
    client.writer.write(HandshakeInSteps(authority).first_flight())

    assert await client.is_disconnected()
    await wait_until(lambda: not server._unauthenticated)


async def test_a_stranger_with_tls_and_without_the_token_is_disconnected(server, job, authority, monkeypatch):
    monkeypatch.setattr(server_module, "HANDSHAKE_TIMEOUT_SECONDS", 0.4)
    context = ssl.create_default_context(cafile=authority.file)
    client = await RawClient.connect(server, ssl=context)
    await client.next()

    assert await client.is_disconnected()


async def test_a_client_that_sends_before_the_challenge_is_disconnected(server, job, authority):
    client, steps = await RawClient.connect(server), HandshakeInSteps(authority)
    last = await steps.finish(client)
    steps.tls.write(b"\xff" * 100)
    client.writer.write(last + steps.to_send.read())

    assert await client.is_disconnected()


async def test_connections_that_break_in_the_handshake_are_forgotten(server, job, authority):
    for size in (0, 1, 100, None):
        client = await RawClient.connect(server)
        client.writer.write(HandshakeInSteps(authority).first_flight()[:size])
        await asyncio.sleep(0)
        client.abort()
    await wait_until(lambda: not server._unauthenticated)


async def test_a_tracker_that_stops_leaves_no_handshake_behind(authority):
    async with TrackerServer(TOKEN, tls=server_context(*authority.issue())) as server:
        client = await RawClient.connect(server)
        client.writer.write(HandshakeInSteps(authority).first_flight())
        await wait_until(lambda: server._unauthenticated)
        (handshake,) = server._unauthenticated
        assert isinstance(handshake, TlsHandshake)

    assert handshake.task.done()
    assert await client.is_disconnected()
