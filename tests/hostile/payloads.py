"""Hostile payloads: whatever a producer can put into a stream. Each call of `hostile_record` draws one Kinesis record."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass

from servers.kpl_aggregates import MAGIC, aggregate, sealed

TIMES = [
    "0", "-1", "1700000000000", "-62135596800000", "-62135596800001", "253402300799999", "253402300800000", "9.3e15",
    "9223372036854775", "9223372036854776", "-9223372036854776", "9223372036854775807", "9223372036854775808",
    "-9223372036854775808", "-9223372036854775809", "18446744073709551616", "1e19", "1e300", "-1e300", "1e999", "5e-324",
    "1" + "0" * 5000, "true", "null", "[]", "{}", "NaN", "Infinity", "-0", "-0.0", '""', '"soon"', '"NaN"',
    '"9999-12-31T23:59:59.999Z"', '"9999-12-31T23:59:59.999999Z"', '"9999-12-31T23:59:59-23:59"', '"10000-01-01T00:00:00Z"',
    '"0001-01-01T00:00:00Z"', '"0001-01-01T00:00:00+23:59"', '"0000-01-01T00:00:00Z"', '"2023-11-14T22:13:20.5Z"',
    '"2023-11-14"', '"20231114T221320"', '"2023-W46-2"', '"\\ud800"', '"\\u0000"',
]  # fmt: skip
VALUES = [
    "1", '"text"', '"\\u0000"', '"\\ud800"', '"\\udc00\\ud800"', "18446744073709551616", "-9223372036854775809", "1e308",
    "1e999", "1" + "0" * 400, "1" + "0" * 5000, "[[[]]]", '{"":{"":null}}', '"' + "x" * 3000 + '"', "\x00", "nul", '"\x7f"',
]  # fmt: skip
DEPTHS = [3, 50, 150, 200, 240, 330, 480, 900, 990, 1_100, 20_000]
HASH_KEYS = [
    "0", "1", "007", "340282366920938463463374607431768211455", "340282366920938463463374607431768211456", "1" * 4301,
    "0" * 4301, "9" * 40, "-1", "+1", "1.0", "1e3", "1_0", " 1", "", "٣", "²", "x", "\x00",
]  # fmt: skip
LENGTHS = [500, 3_000, 10_000]
EMPTY_PART, EMPTY_PART_WITH_HASH_KEY, NO_PART = (
    b"\x1a\x04\x08\x00\x1a\x00",
    b"\x1a\x06\x08\x00\x10\x00\x1a\x00",
    b"\x1a\x00",
)
KEYS = ["k", "", "ключ", "k" * 256, "k" * 257, "\x00", "\u2028", "'; --", "a/../b", "\U0001d55c" * 200]


@dataclass(frozen=True)
class HostileRecord:
    """A Kinesis record, and the number of user records that it is known to hold; None: the reader decides."""

    data: bytes
    partition_key: str | None
    user_records: int | None


def hostile_record(draw: random.Random) -> HostileRecord:
    """Draw one."""
    key = draw.choice([None, *KEYS])
    kind = draw.random()
    if kind < 0.0003:
        return _empty_sub_records(draw, key)
    if kind < 0.7:
        return HostileRecord(_payload(draw), key, 1)
    if kind < 0.9:
        parts = [_part(draw) for _ in range(draw.choice([0, 1, 2, 3, 10]))]
        return HostileRecord(aggregate(*parts), key, len(parts))
    return HostileRecord(_broken_aggregate(draw), key, None)


def _payload(draw: random.Random) -> bytes:
    kind = draw.random()
    if kind < 0.2:
        return b'{"ts":%d,"n":%d}' % (1_700_000_000_000 + draw.randrange(10**6), draw.randrange(1000))
    if kind < 0.6:
        value = draw.choice(VALUES)
        return f'{{"ts":{draw.choice(TIMES)},"n":{value},"value":{value}}}'.encode()
    if kind < 0.7:
        return _nested(draw)
    if kind < 0.8:
        return draw.choice([b"", b"\x00", b"\xff", b"\xef\xbb\xbf{}", b"null", b"[]", b'"', b"{", MAGIC, MAGIC * 9])
    if kind < 0.9:
        return draw.randbytes(draw.choice([1, 16, 200]))
    return _mutated(draw, json.dumps({"ts": 1_700_000_000_000, "n": [1, "é", None]}).encode())


def _nested(draw: random.Random) -> bytes:
    depth = draw.choice(DEPTHS) + draw.randrange(-2, 3)
    opening, closing = draw.choice([(b"[", b"]"), (b'{"a":', b"}")])
    closed = closing * depth if draw.random() < 0.8 else b""
    return b'{"ts":1700000000000,"n":' + opening * depth + b"1" + closed + b"}"


def _part(draw: random.Random) -> tuple[str, bytes] | tuple[str, bytes, str]:
    part = (draw.choice(KEYS), _payload(draw))
    return part if draw.random() < 0.5 else (*part, draw.choice(HASH_KEYS))


def _empty_sub_records(draw: random.Random, key: str | None) -> HostileRecord:
    """An aggregate of very many sub-records without data. Without partition keys it is no aggregate (S4)."""
    part, count = draw.choice([EMPTY_PART, EMPTY_PART_WITH_HASH_KEY, NO_PART]), draw.choice(LENGTHS)
    return HostileRecord(sealed(b"\x0a\x01a\x12\x017" + part * count), key, 1 if part is NO_PART else count)


def _broken_aggregate(draw: random.Random) -> bytes:
    """An aggregate whose digest is right and whose message is anything, or one that was changed after it was sealed."""
    whole = aggregate(*[_part(draw) for _ in range(draw.randrange(1, 4))])
    kind = draw.random()
    if kind < 0.4:
        return sealed(_mutated(draw, whole[4:-16]))
    if kind < 0.6:
        return sealed(draw.randbytes(draw.randrange(40)))
    if kind < 0.8:
        return sealed(whole)
    return _mutated(draw, whole)


def _mutated(draw: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(draw.randrange(1, 4)):
        if changed:
            place = draw.randrange(len(changed))
            changed[place : place + draw.choice([0, 1, 1, 1, 5])] = draw.randbytes(draw.choice([0, 1, 1, 3]))
    return bytes(changed)
