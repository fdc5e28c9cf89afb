"""Event-stream frames as the service sends them, for stub servers."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from typing import Any


def frame(headers: dict[str, str], payload: bytes) -> bytes:
    """One frame: prelude, its checksum, headers (strings), payload, checksum."""
    packed = b"".join(_header(name, value) for name, value in headers.items())
    prelude = struct.pack("!II", 16 + len(packed) + len(payload), len(packed))
    start = prelude + struct.pack("!I", zlib.crc32(prelude))
    body = start + packed + payload
    return body + struct.pack("!I", zlib.crc32(body))


def event(**body: Any) -> bytes:
    """A SubscribeToShardEvent."""
    return frame({":message-type": "event", ":event-type": "SubscribeToShardEvent"}, json.dumps(body).encode())


def initial_response() -> bytes:
    return frame({":message-type": "event", ":event-type": "initial-response"}, b"{}")


def exception(code: str, message: str) -> bytes:
    return frame({":message-type": "exception", ":exception-type": code}, json.dumps({"message": message}).encode())


def error(code: str, message: str) -> bytes:
    return frame({":message-type": "error", ":error-code": code, ":error-message": message}, b"")


def wire_record(data: bytes, sequence: str, key: str | None = "k", arrival: float = 1.5) -> dict[str, Any]:
    """A record in the JSON of the service."""
    record: dict[str, Any] = {
        "SequenceNumber": sequence,
        "Data": base64.b64encode(data).decode(),
        "ApproximateArrivalTimestamp": arrival,
        "EncryptionType": "NONE",
    }
    return record if key is None else record | {"PartitionKey": key}


def _header(name: str, value: str) -> bytes:
    encoded = value.encode()
    return bytes([len(name)]) + name.encode() + b"\x07" + struct.pack("!H", len(encoded)) + encoded


def an_event(*records: dict[str, Any], continuation: str = "5", behind: int = 0, **more: Any) -> bytes:
    """A SubscribeToShardEvent with these records."""
    return event(Records=list(records), ContinuationSequenceNumber=continuation, MillisBehindLatest=behind, **more)
