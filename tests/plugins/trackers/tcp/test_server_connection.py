"""One connection, without a socket: how much of it is read at a time."""

import asyncio
import socket

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.fetcher.coordination.heartbeat_messages import Statement
from recordpublisher.plugins.trackers.tcp.group_registry import Offices
from recordpublisher.plugins.trackers.tcp.protocol import framed, proof_of
from recordpublisher.plugins.trackers.tcp.server_connection import FRAMES_A_TURN, Visitor

from processes.tracker_clients import TOKEN

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
        self.is_reading, self.is_gone, self.resumed = True, False, asyncio.Event()
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
        return self.is_gone

    def abort(self):
        self.is_gone = True

    close = abort


def known_visitor(house, transport):
    visitor = Visitor(house)
    visitor.connection_made(transport)
    comes(visitor, framed(ENCODER, proof_of(TOKEN, visitor._challenge)))
    return visitor


def comes(visitor, data):
    visitor.get_buffer(-1)[: len(data)] = data
    visitor.buffer_updated(len(data))


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5),
    lambda each: st.lists(each, max_size=16) | st.dictionaries(st.text(max_size=3), each, max_size=3),
    max_leaves=20,
)


@given(st.lists(st.binary(max_size=60) | VALUES.map(ENCODER.encode), min_size=1, max_size=5))
def test_whatever_comes_nothing_is_raised_and_no_other_group_changes(bodies):
    house, transport = House(), Transport()
    visitor = known_visitor(house, transport)
    for body in bodies:
        if ("refused", "malformed") not in house.heard:
            comes(visitor, len(body).to_bytes(4, "big") + body)

    assert transport.is_reading or transport.is_gone
    assert len(house.offices) <= 1
    transport.socket.close()


async def test_a_connection_gets_a_few_frames_read_before_it_is_anothers_turn():
    house, transport = House(), Transport()
    visitor = known_visitor(house, transport)
    said = [framed(ENCODER, Statement("g", 0, 1, 0, counter, "IDLE")) for counter in range(1, 100)]
    comes(visitor, b"".join(said))

    assert house.offices.statements == FRAMES_A_TURN
    assert not transport.is_reading
    async with asyncio.timeout(60):
        await transport.resumed.wait()
    assert house.offices.statements == 99
    transport.socket.close()
