"""Hostile answers: whatever a server can send for GetRecords, GetShardIterator, ListShards and SubscribeToShard."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterator
from random import Random
from typing import Any

from h2.config import H2Configuration
from h2.connection import H2Connection

from servers.event_frames import wire_record

RANGE = {"StartingHashKey": "0", "EndingHashKey": "9"}
CHILD = {"ShardId": "shardId-000000000001", "ParentShards": ["shardId-000000000000"], "HashKeyRange": RANGE}
SHARD = CHILD | {"ParentShardId": "shardId-000000000000", "SequenceNumberRange": {"StartingSequenceNumber": "4"}}
READ = {"Records": [wire_record(b"data", str(number)) for number in range(3)], "MillisBehindLatest": 5}
ERROR = {"__type": "com.amazonaws.kinesis#ExpiredIteratorException", "message": "expired"}
BODIES: dict[str, dict[str, Any]] = {
    "GetRecords": READ | {"NextShardIterator": "next", "ChildShards": [CHILD]},
    "GetShardIterator": {"ShardIterator": "iterator"},
    "ListShards": {"Shards": [SHARD, SHARD | {"ShardId": "shardId-000000000002"}], "NextToken": "more"},
    "SubscribeToShard": READ | {"ContinuationSequenceNumber": "9", "ChildShards": [CHILD]},
}
VALUES = [
    b"null", b"true", b"-1", b"0.5", b"1e300", b"1e999", b"9" * 30, b"1" + b"0" * 5000, b'""', b'"x"', b'"\\u0000"', b'"\\ud800"',
    b'"' + b"9" * 5000 + b'"', b'"340282366920938463463374607431768211456"', '"٣"'.encode(), b'"\xff"', b'"../x"', b'"QQ"', b"[]", b"{}",
    b"[[]]", b"[null]", b'{"":{}}', b"[" * 300 + b"]" * 300, b"[" * 20_000, b'{"a":' * 20_000, b"NaN", b"nul",
]  # fmt: skip
PLACE = "\0place\0"
HEADERS = [
    b"Content-Length: 0", b"Content-Length: 5", b"Content-Length: " + b"9" * 5000, b"Content-Length: 9999999999999999999",
    b"Content-Length: 99999999999999999", b"Content-Length: -1", b"Content-Length: +5", b"Content-Length: 1, 1", b"Content-Length: x",
    "Content-Length: ٣".encode(), b"Content-Length:", b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked",
    b"Content-Encoding: gzip", b"Connection: close", b"X-Amzn-ErrorType: ExpiredIteratorException:http://x", b"X-Amzn-ErrorType: \xff",
    b"Date: soon", b"no colon", b": no name", b"a : b", b"a: \x00", b"Set-Cookie: " + b"x" * 70_000,
]  # fmt: skip
STATUSES = [b"200", b"100", b"204", b"301", b"304", b"400", b"429", b"500", b"999", b"000", b"20", b"x"]
HTTP2_STATUSES = ["100", "204", "500", "x", "", "2000"]
REQUEST = [(":method", "POST"), (":scheme", "http"), (":authority", "x"), (":path", "/")]
FRAME_HEADERS = [
    {":message-type": "event", ":event-type": "SubscribeToShardEvent"},
    {":message-type": "event", ":event-type": "SubscribeToShardEvent"},
    {":message-type": "event", ":event-type": "initial-response"},
    {":message-type": "exception", ":exception-type": "InternalFailureException"},
    {":message-type": "error", ":error-code": "InternalFailure", ":error-message": "x"},
    {":message-type": "new"},
    {},
]


def body_of(draw: Random, api: str) -> bytes:
    """A body as documented, or an error's, most often with a value replaced."""
    body = json.loads(json.dumps(BODIES[api] if draw.random() < 0.8 else ERROR))
    if draw.random() < 0.7:
        holder, key = draw.choice(list(_places(body)))
        holder[key] = PLACE
    encoded = json.dumps(body, separators=draw.choice([None, (",", ":")])).encode()
    return encoded.replace(json.dumps(PLACE).encode(), draw.choice(VALUES))


def changed(draw: Random, sent: bytes) -> bytes:
    """The bytes with one to three changes: a byte, a cut, an insertion, a part sent twice."""
    for _ in range(draw.randint(1, 3)):
        at = draw.randint(0, len(sent))
        match draw.randrange(5):
            case 0 | 1:
                sent = sent[:at] + draw.randbytes(1) + sent[at + 1 :]
            case 2:
                sent = sent[:at]
            case 3:
                sent = sent[:at] + draw.choice([*VALUES, *HEADERS, b"\r\n", b"\r\n\r\n"]) + sent[at:]
            case 4:
                sent = sent[:at] + sent[at // 2 :]
    return sent


def hostile_body(draw: Random, api: str) -> bytes:
    """The body of an answer."""
    body = body_of(draw, api)
    return body if draw.random() < 0.7 else changed(draw, body)


def hostile_response(draw: Random, api: str) -> bytes:
    """A whole HTTP/1.1 response, and what follows it."""
    body, headers, status = hostile_body(draw, api), [], b"200"
    if draw.random() < 0.5:
        headers, status = [draw.choice(HEADERS)], draw.choice(STATUSES)
    match draw.randrange(4):
        case 0 | 1:
            headers.append(b"Content-Length: %d" % len(body))
        case 2:
            headers.append(b"Transfer-Encoding: chunked")
            size = draw.choice([b"%x" % len(body)] * 4 + [b"F" * 15, b"F" * 5000, b"-1", b""])
            body = size + b"\r\n" + body + b"\r\n0\r\n\r\n"
    sent = b"\r\n".join([b"HTTP/1.1 " + status + b" OK", *headers, b"", b""]) + body
    return sent if draw.random() < 0.7 else changed(draw, sent)


def hostile_events(draw: Random) -> bytes:
    """Up to three frames of an event stream. Their checksums are right, except those of changed bytes."""
    sent = b"".join([_frame(draw) for _ in range(draw.randint(0, 3))])
    return sent if draw.random() < 0.7 else changed(draw, sent)


def hostile_http2_response(draw: Random) -> bytes:
    """What a server sends on an HTTP/2 connection: its settings, and the response to the first request."""
    server = H2Connection(H2Configuration(client_side=False, validate_outbound_headers=False))
    client = H2Connection(H2Configuration(client_side=True))
    client.initiate_connection()
    client.send_headers(1, REQUEST)
    server.initiate_connection()
    server.receive_data(client.data_to_send())
    server.send_headers(1, [(":status", draw.choice(["200"] * 10 + HTTP2_STATUSES)), ("a", "b")])
    body = hostile_events(draw)[:60_000]
    for at in range(0, len(body), 16_000):
        server.send_data(1, body[at : at + 16_000])
    server.end_stream(1)
    sent = server.data_to_send()
    return sent if draw.random() < 0.7 else changed(draw, sent)


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every holder and key of a JSON value."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield value, key
        if isinstance(inner, dict | list):
            yield from _places(inner)


def _frame(draw: Random) -> bytes:
    """One frame, with at most one kind of trouble."""
    trouble = draw.choice(["", "body", "kind", "headers", "length", "headers-length"])
    packed = b"".join(_header(draw, trouble == "kind", *item) for item in draw.choice(FRAME_HEADERS).items())
    packed = changed(draw, packed) if trouble == "headers" else packed
    payload = (
        hostile_body(draw, "SubscribeToShard") if trouble == "body" else json.dumps(BODIES["SubscribeToShard"]).encode()
    )
    length, headers_length = 16 + len(packed) + len(payload), len(packed)
    if trouble == "length":
        length = draw.choice([0, 16, length - 1, 2**25, 2**32 - 1])
    if trouble == "headers-length":
        headers_length = draw.choice([0, 5, length, 2**17 + 1, 2**32 - 1])
    prelude = struct.pack("!II", length, headers_length)
    body = prelude + struct.pack("!I", zlib.crc32(prelude)) + packed + payload
    return body + struct.pack("!I", zlib.crc32(body))


def _header(draw: Random, has_trouble: bool, name: str, value: str) -> bytes:
    encoded, kind = value.encode(), draw.randrange(12) if has_trouble else 7
    sized = struct.pack("!H", len(encoded)) if kind in (6, 7) else b""
    return bytes([len(name)]) + name.encode() + bytes([kind]) + sized + encoded
