"""Frames are complete however the bytes are split, and a malformed one is an error before its bytes are awaited."""

import struct
import zlib

import pytest
from botocore.eventstream import ChecksumMismatch, InvalidHeadersLength, InvalidPayloadLength, ParserError

from recordpublisher.publishers.kinesis.codec.event_stream import FrameReader
from recordpublisher.publishers.kinesis.error_mapping import MalformedResponseError, TruncatedStreamError

from servers.event_frames import frame


class Content:
    """A body that arrives in these chunks."""

    def __init__(self, *chunks):
        self._chunks = list(chunks)

    async def readany(self):
        return self._chunks.pop(0) if self._chunks else b""


def a_frame(number):
    return frame({":message-type": "event", "number": str(number)}, b"payload %d" % number * 9)


async def frames_of(*chunks):
    reader, frames = FrameReader(Content(*chunks)), []
    while (each := await reader.next()) is not None:
        frames.append(each)
    return frames


@pytest.mark.parametrize("length", [1, 5, 12, 100, 10_000])
async def test_frames_do_not_depend_on_how_the_bytes_are_split(length):
    sent = b"".join(map(a_frame, range(4)))
    frames = await frames_of(*(sent[at : at + length] for at in range(0, len(sent), length)))
    assert [each.headers["number"] for each in frames] == ["0", "1", "2", "3"]
    assert [bytes(each.payload) for each in frames] == [b"payload %d" % number * 9 for number in range(4)]


async def test_an_empty_payload_is_a_frame():
    (only,) = await frames_of(frame({}, b""))
    assert (dict(only.headers), bytes(only.payload)) == ({}, b"")


async def test_f3_a_changed_byte_of_the_payload_or_of_a_header_is_an_error():
    for at in (20, -8):
        changed = bytearray(a_frame(1))
        changed[at] ^= 1
        with pytest.raises(ChecksumMismatch):
            await frames_of(bytes(changed))


@pytest.mark.parametrize(
    ("length", "headers", "error"),
    [
        (20, 5, InvalidHeadersLength),
        (15, 0, InvalidHeadersLength),
        (2**20 + 16, 2**20, InvalidHeadersLength),
        (2**31, 0, InvalidPayloadLength),
    ],
)
async def test_f3_impossible_lengths_are_an_error_before_their_bytes_arrive(length, headers, error):
    lengths = struct.pack("!II", length, headers)
    with pytest.raises(error):
        await frames_of(lengths + struct.pack("!I", zlib.crc32(lengths)))


@pytest.mark.parametrize("kept", [1, 11, 12, 30])
async def test_f2_a_body_that_ends_inside_a_frame_is_an_error(kept):
    with pytest.raises(TruncatedStreamError):
        await frames_of(a_frame(0), a_frame(1)[:kept])


CUT = [
    b"\x01a\x04\x00",
    b"\x01a\x07\x00",
    b"\x01a\x07\x00\x05ab",
    b"\x01a\x06\x00\x05ab",
    b"\x01a\x09ab",
    b"\x01a",
    b"\x09a",
]


@pytest.mark.parametrize("headers", [b"\x01a\x0b", b"\x01\xff\x07\x00\x00", *CUT])
async def test_truncated_or_unknown_headers_with_correct_checksums_are_malformed(headers):
    prelude = struct.pack("!II", 16 + len(headers), len(headers))
    sealed = prelude + struct.pack("!I", zlib.crc32(prelude)) + headers
    with pytest.raises((MalformedResponseError, ParserError)):
        await frames_of(sealed + struct.pack("!I", zlib.crc32(sealed)))
