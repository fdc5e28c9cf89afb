"""One connection, without a socket: how much of it is read at a time."""

import asyncio
import socket

import msgspec
from tracker_visits import TOKEN

from recordpublisher.fetcher.tracker_messages import Statement
from recordpublisher.plugins.trackers.tcp.framing import framed
from recordpublisher.plugins.trackers.tcp.greeting import proof_of
from recordpublisher.plugins.trackers.tcp.offices import Offices
from recordpublisher.plugins.trackers.tcp.visitor import FRAMES_A_TURN, Visitor

ENCODER = msgspec.msgpack.Encoder()


class House:
    """Stands for the server."""

    token = TOKEN

    def __init__(self):
        self.offices = Offices(lambda seconds, call: None)
        self.buffer = memoryview(bytearray(64 * 1024))
        self.heard = []

    def now(self):
        return 0.0

    def __getattr__(self, name):
        return lambda what: self.heard.append((name, what))


class Transport:
    """A connection that is never full."""

    def __init__(self):
        self.is_reading, self.resumed = True, asyncio.Event()
        self.socket = socket.socket()

    def get_extra_info(self, name):
        return self.socket

    def pause_reading(self):
        self.is_reading = False

    def resume_reading(self):
        self.resumed.set()

    def write(self, data):
        pass

    def get_write_buffer_size(self):
        return 0

    def is_closing(self):
        return False


async def test_a_connection_gets_a_few_frames_read_before_it_is_anothers_turn():
    house, transport = House(), Transport()
    visitor = Visitor(house)
    visitor.connection_made(transport)
    said = [framed(ENCODER, proof_of(TOKEN, visitor._challenge))]
    said += [framed(ENCODER, Statement("g", 0, 1, 0, counter, "IDLE")) for counter in range(1, 100)]
    data = b"".join(said)
    visitor.get_buffer(-1)[: len(data)] = data
    visitor.buffer_updated(len(data))

    assert house.offices.statements == FRAMES_A_TURN - 1
    assert not transport.is_reading
    async with asyncio.timeout(10):
        await transport.resumed.wait()
    assert house.offices.statements == 99
    transport.socket.close()
