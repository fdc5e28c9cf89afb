"""One connection, without a socket: how much of it is read at a time."""

import asyncio
import socket

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.fetcher.coordination.heartbeat_messages import HeartbeatRequest
from recordpublisher.plugins.trackers.tcp.group_registry import GroupRegistry
from recordpublisher.plugins.trackers.tcp.protocol import encode_frame, sign_challenge
from recordpublisher.plugins.trackers.tcp.server_connection import MAX_FRAMES_PER_TURN, ServerConnection

from processes.tracker_clients import TOKEN

ENCODER = msgspec.msgpack.Encoder()


class Listener:
    """A fake server."""

    token = TOKEN

    def __init__(self):
        self.groups = GroupRegistry(lambda seconds, call: None)
        self.read_buffer = memoryview(bytearray(64 * 1024))
        self.events = []

    def now(self):
        return 0.0

    def __getattr__(self, name):
        return lambda what: self.events.append((name, what))


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


def authenticated_connection(listener, transport):
    connection = ServerConnection(listener)
    connection.connection_made(transport)
    receive(connection, encode_frame(ENCODER, sign_challenge(TOKEN, connection._challenge)))
    return connection


def receive(connection, data):
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))


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
def test_any_input_raises_nothing_and_changes_no_other_group(bodies):
    listener, transport = Listener(), Transport()
    connection = authenticated_connection(listener, transport)
    for body in bodies:
        if ("on_rejected", "malformed") not in listener.events:
            receive(connection, len(body).to_bytes(4, "big") + body)

    assert transport.is_reading or transport.is_gone
    assert len(listener.groups) <= 1
    transport.socket.close()


async def test_a_few_frames_of_a_connection_are_handled_before_the_others_get_their_turn():
    listener, transport = Listener(), Transport()
    connection = authenticated_connection(listener, transport)
    requests = [encode_frame(ENCODER, HeartbeatRequest("g", 0, 1, 0, number, "IDLE")) for number in range(1, 100)]
    receive(connection, b"".join(requests))

    assert listener.groups.heartbeats == MAX_FRAMES_PER_TURN
    assert not transport.is_reading
    async with asyncio.timeout(60):
        await transport.resumed.wait()
    assert listener.groups.heartbeats == 99
    transport.socket.close()
