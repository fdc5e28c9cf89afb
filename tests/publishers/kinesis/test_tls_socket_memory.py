"""What is asked of a transport, and that one which knows nothing of it is left alone."""

from types import SimpleNamespace

import pytest

from recordpublisher.publishers.kinesis.tls import limit_read_ahead, share_read_buffer


class OfAnotherLoop:
    """TLS of an event loop that keeps its blocks to itself: it has the limits of asyncio's transports and nothing below them."""

    __slots__ = ("high",)

    def set_read_buffer_limits(self, high=None, low=None):
        self.high = high


def test_another_loop_is_told_its_limit_and_keeps_its_blocks():
    transport = OfAnotherLoop()
    limit_read_ahead(transport, bytearray(64))
    assert transport.high == 64


@pytest.mark.parametrize("below", [{}, {"_ssl_protocol": None}, {"_ssl_protocol": object()}], ids=str)
def test_what_is_not_as_asyncio_has_it_is_left_alone(below):
    transport = SimpleNamespace(**below)
    share_read_buffer(transport, bytearray(64))
    limit_read_ahead(transport, bytearray(64))
    assert vars(transport) == below


def test_without_tls_less_is_taken_at_once():
    transport = SimpleNamespace(max_size=256 * 1024)
    limit_read_ahead(transport, bytearray(64))
    assert transport.max_size == 64


def test_asyncios_tls_writes_to_the_block_and_reads_no_more_than_it_holds():
    protocol = SimpleNamespace(_ssl_buffer=bytearray(9), _ssl_buffer_view=memoryview(b""), max_size=256 * 1024)
    transport = SimpleNamespace(_ssl_protocol=protocol, set_read_buffer_limits=lambda high: None)
    read_buffer = bytearray(64)
    limit_read_ahead(transport, read_buffer)
    assert (protocol._ssl_buffer is read_buffer, protocol._ssl_buffer_view.obj is read_buffer, protocol.max_size) == (
        True,
        True,
        64,
    )
