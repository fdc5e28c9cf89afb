"""Frames are decoded as they were encoded, however the bytes are split."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.plugins.trackers.tcp.protocol import FrameError, FrameReader, encode_frame

ENCODER = msgspec.msgpack.Encoder()


@given(st.lists(st.binary(max_size=300), max_size=20), st.data())
def test_frames_are_found_however_the_bytes_are_split(messages, data):
    stream = b"".join(encode_frame(ENCODER, message) for message in messages)
    splits = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=30)))
    reader, found = FrameReader(1_000), []
    for start, stop in zip([0, *splits], [*splits, len(stream)], strict=True):
        reader.feed(memoryview(stream)[start:stop])
        while (frame := reader.next_frame()) is not None:
            found.append(msgspec.msgpack.decode(frame))

    assert found == messages


def test_a_frame_at_the_limit_is_read_and_a_longer_one_rejected():
    reader = FrameReader(10)
    reader.feed((10).to_bytes(4, "big") + b"x" * 10)
    assert reader.next_frame() == b"x" * 10
    reader.feed((11).to_bytes(4, "big"))

    with pytest.raises(FrameError):
        reader.next_frame()
