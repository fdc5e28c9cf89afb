"""Buffer limits are set on asyncio's transports, and as far as possible on others."""

from types import SimpleNamespace

import pytest

from recordpublisher.publishers.kinesis.http1 import limit_read_ahead, share_read_buffer


class OtherLoopTransport:
    """A TLS transport of another event loop: it has the limits of asyncio's transports, but not its internal buffers."""

    __slots__ = ("high",)

    def set_read_buffer_limits(self, high=None, low=None):
        self.high = high


def test_another_loops_transport_gets_the_limit_only():
    transport = OtherLoopTransport()
    limit_read_ahead(transport, bytearray(64))
    assert transport.high == 64


@pytest.mark.parametrize(
    "attributes", [{}, {"_ssl_protocol": None}, {"_ssl_protocol": object()}], ids=["no", "none", "other"]
)
def test_a_transport_without_asyncios_internals_is_not_changed(attributes):
    transport = SimpleNamespace(**attributes)
    share_read_buffer(transport, bytearray(64))
    limit_read_ahead(transport, bytearray(64))
    assert vars(transport) == attributes


def test_without_tls_the_size_of_a_read_is_limited():
    transport = SimpleNamespace(max_size=256 * 1024)
    limit_read_ahead(transport, bytearray(64))
    assert transport.max_size == 64


def test_asyncios_tls_uses_the_shared_buffer_and_its_size_as_limit():
    protocol = SimpleNamespace(_ssl_buffer=bytearray(9), _ssl_buffer_view=memoryview(b""), max_size=256 * 1024)
    transport = SimpleNamespace(_ssl_protocol=protocol, set_read_buffer_limits=lambda high: None)
    read_buffer = bytearray(64)
    limit_read_ahead(transport, read_buffer)
    assert (protocol._ssl_buffer is read_buffer, protocol._ssl_buffer_view.obj is read_buffer, protocol.max_size) == (
        True,
        True,
        64,
    )
