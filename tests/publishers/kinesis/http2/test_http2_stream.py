"""One stream of a connection: a response that is none ends this stream, and no other."""

import pytest

from recordpublisher.publishers.kinesis.error_mapping import StreamLostError
from recordpublisher.publishers.kinesis.http2.http2_stream import Http2Stream


class Connection:
    """Keeps which streams were cancelled."""

    def __init__(self):
        self.cancelled = []

    def acknowledge(self, stream_id, length):
        pass

    def reset(self, stream_id):
        self.cancelled.append(stream_id)


@pytest.mark.parametrize("status", [b"x", b"", b"000", b"2000", b"-20"], ids=repr)
async def test_a_status_that_is_no_number_of_three_digits_cancels_the_stream(status):
    connection = Connection()
    stream = Http2Stream(connection, 3)
    stream.on_headers([(b":status", status), (b"a", b"b")])
    with pytest.raises(StreamLostError, match="not an HTTP status"):
        await stream.wait_for_headers()
    assert connection.cancelled == [3]
