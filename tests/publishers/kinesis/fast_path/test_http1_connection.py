"""A connection whose server responds before the request was sent whole."""

import asyncio

from recordpublisher.publishers.kinesis.fast_path.body_read_scheduler import BodyReadScheduler
from recordpublisher.publishers.kinesis.fast_path.http1_connection import Http1Connection
from recordpublisher.publishers.kinesis.fast_path.http1_response import BufferedBody

from servers.scripted_http import READ_BUFFER_BYTES, ok


class EarlyResponse(asyncio.Transport):
    """Accepts one piece, is full, and in one iteration of the loop delivers the response and has room again."""

    def __init__(self):
        super().__init__()
        self.connection, self.pieces, self.is_aborted = None, 0, False

    def write(self, data):
        self.pieces += 1
        self.connection.pause_writing()
        asyncio.get_running_loop().call_soon(self._respond)

    def _respond(self):
        response = ok(b"no")
        self.connection.resume_writing()
        self.connection.get_buffer(-1)[: len(response)] = response
        self.connection.buffer_updated(len(response))

    def get_write_buffer_size(self):
        return 0

    def is_closing(self):
        return self.is_aborted

    def abort(self):
        self.is_aborted = True


async def exchanged(request):
    transport, connection = EarlyResponse(), Http1Connection(bytearray(READ_BUFFER_BYTES), BodyReadScheduler())
    transport.connection = connection
    connection.connection_made(transport)
    head, body = await connection.exchange(request, lambda head: BufferedBody())
    assert (head.status, body.content) == (200, b"no")
    return transport, connection


async def test_a_connection_whose_request_was_not_sent_whole_is_not_reused():
    """Its server would take the next request for the rest of this one."""
    transport, connection = await exchanged(bytes(10**6))
    assert transport.pieces == 1
    assert not connection.is_usable


async def test_a_connection_whose_request_was_sent_whole_is_reused():
    _, connection = await exchanged(bytes(10))
    assert connection.is_usable
