"""Aggregates as the KPL writes them, encoded by hand: independent of the decoder under test."""

from __future__ import annotations

import hashlib

MAGIC = b"\xf3\x89\x9a\xc2"


def aggregate(*records: tuple[str, bytes] | tuple[str, bytes, str]) -> bytes:
    """An aggregate of (partition key, data) or (partition key, data, explicit hash key)."""
    keys = list(dict.fromkeys(record[0] for record in records))
    hash_keys = list(dict.fromkeys(record[2] for record in records if len(record) > 2))
    message = b"".join(_field(1, key.encode()) for key in keys) + b"".join(_field(2, key.encode()) for key in hash_keys)
    for record in records:
        explicit = b"\x10" + varint(hash_keys.index(record[2])) if len(record) > 2 else b""
        message += _field(3, b"\x08" + varint(keys.index(record[0])) + explicit + _field(3, record[1]))
    return sealed(message)


def sealed(message: bytes) -> bytes:
    """Magic, message, digest."""
    return MAGIC + message + hashlib.md5(message).digest()


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + varint(len(content)) + content
