"""What a connection does whose server answers before it was asked everything."""

import asyncio

from recordpublisher.publishers.kinesis.fast_path.body_read_scheduler import BodyReadScheduler
from recordpublisher.publishers.kinesis.fast_path.http1_connection import Http1Connection
from recordpublisher.publishers.kinesis.fast_path.http1_response import BufferedBody

from servers.scripted_http import READ_BUFFER_BYTES, ok


class EarlyAnswer(asyncio.Transport):
    """Takes one piece, is full, and has the answer and room again in the same turn of the loop."""

    def __init__(self):
        super().__init__()
        self.connection, self.pieces, self.is_aborted = None, 0, False

    def write(self, data):
        self.pieces += 1
        self.connection.pause_writing()
        asyncio.get_running_loop().call_soon(self._answer)

    def _answer(self):
        said = ok(b"no")
        self.connection.resume_writing()
        self.connection.get_buffer(-1)[: len(said)] = said
        self.connection.buffer_updated(len(said))

    def get_write_buffer_size(self):
        return 0

    def is_closing(self):
        return self.is_aborted

    def abort(self):
        self.is_aborted = True


async def exchanged(request):
    transport, connection = EarlyAnswer(), Http1Connection(bytearray(READ_BUFFER_BYTES), BodyReadScheduler())
    transport.connection = connection
    connection.connection_made(transport)
    head, body = await connection.exchange(request, lambda head: BufferedBody())
    assert (head.status, body.content) == (200, b"no")
    return transport, connection


async def test_a_connection_whose_request_was_not_sent_whole_carries_no_other():
    """Its server would take the next request for the rest of this one."""
    transport, connection = await exchanged(bytes(10**6))
    assert transport.pieces == 1
    assert not connection.is_usable


async def test_one_whose_request_was_sent_whole_does():
    _, connection = await exchanged(bytes(10))
    assert connection.is_usable
