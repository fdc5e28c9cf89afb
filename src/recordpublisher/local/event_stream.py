"""Encodes frames of vnd.amazon.eventstream: prelude, headers, payload and two checksums."""

import struct
from functools import lru_cache
from zlib import crc32

import msgspec

_STRING = 7  # The type of a header's value.
_OVERHEAD = 16  # Two lengths, the checksum of the prelude, and the checksum of the message.
_PRELUDE = struct.Struct(">II")


def frame(payload: bytes, *headers: tuple[str, str]) -> bytes:
    """Return one frame with string headers."""
    head = _headers(*headers)
    lengths = _PRELUDE.pack(_OVERHEAD + len(head) + len(payload), len(head))
    prelude = lengths + crc32(lengths).to_bytes(4, "big")
    body = b"".join((prelude, head, payload))
    return body + crc32(body).to_bytes(4, "big")


@lru_cache(maxsize=64)
def _headers(*pairs: tuple[str, str]) -> bytes:
    return b"".join(
        struct.pack(">B", len(name)) + name.encode() + struct.pack(">BH", _STRING, len(value)) + value.encode()
        for name, value in pairs
    )


def parse(frame: bytes) -> tuple[dict[str, str], bytes] | None:
    """Return the headers and the payload of a frame with string headers, or None if the frame is incomplete or a checksum is wrong."""
    if len(frame) < _OVERHEAD or _PRELUDE.unpack_from(frame)[0] != len(frame):
        return None
    if crc32(frame[:-4]).to_bytes(4, "big") != frame[-4:]:
        return None
    end = _PRELUDE.size + 4 + _PRELUDE.unpack_from(frame)[1]
    headers, at = {}, _PRELUDE.size + 4
    while at < end:
        name_end = at + 1 + frame[at]
        value_start = name_end + 3
        value_end = value_start + int.from_bytes(frame[name_end + 1 : value_start], "big")
        headers[frame[at + 1 : name_end].decode()] = frame[value_start:value_end].decode()
        at = value_end
    return headers, frame[end:-4]


def event(kind: str, payload: bytes) -> bytes:
    """Return a frame for an event of this type: `initial-response`, which botocore expects first, or `SubscribeToShardEvent`."""
    return frame(
        payload,
        (":message-type", "event"),
        (":event-type", kind),
        (":content-type", "application/x-amz-json-1.1" if kind == "initial-response" else "application/json"),
    )


def exception(code: str, message: str) -> bytes:
    """Return a frame for an error that is sent inside the stream."""
    return frame(
        msgspec.json.encode({"message": message}),
        (":message-type", "exception"),
        (":exception-type", code),
        (":content-type", "application/json"),
    )


def corrupted(good: bytes) -> bytes:
    """Return the frame `good` with one character changed, so that its checksum is wrong.

    If the event has records, the character belongs to the data of a record. The payload stays valid JSON and base64, so only the checksum
    shows the change.
    """
    start = good.find(b'"Data":"')
    if start < 0:
        return good[:-5] + bytes([good[-5] ^ 1]) + good[-4:]
    at = start + len(b'"Data":"')
    return good[:at] + (b"B" if good[at : at + 1] == b"A" else b"A") + good[at + 1 :]
