"""Responses with large payloads: base64 by SIMD (the extra `base64`) on payloads that are cut out, JSON on the rest."""

import base64
import secrets
from collections.abc import Callable
from typing import TypeVar

import msgspec

from recordpublisher.publishers.records import UserRecord

try:
    from pybase64 import b64decode as simd_decode
except ImportError:  # Python's own base64 is slower than msgspec's
    simd_decode = None
"""Decodes base64, where the extra is installed."""

Decoded = TypeVar("Decoded")

LARGE_BYTES = 2_700
"""Base64 of a payload from which on this costs less than JSON alone: 2 KiB of data (at 10 KiB a third)."""
_SEARCHED_BYTES = 4_096
_DATA = b'"Data":"'
_PLACEHOLDER_BYTES = secrets.token_bytes(9)
"""Stands for a payload that was cut out. No response can contain it by intention."""
_PLACEHOLDER = base64.b64encode(_PLACEHOLDER_BYTES)


def decode_json(
    decoder: msgspec.json.Decoder[Decoded],
    records_of: Callable[[Decoded], list[UserRecord]],
    body: bytes | memoryview,
    base64_decode: Callable[..., bytes] | None = simd_decode,
) -> Decoded:
    """The same as `decoder.decode(body)`. Payloads are cut out if the first one is large, and if each stands in the usual JSON.

    Raises: msgspec.DecodeError.
    """
    if base64_decode is not None and _begins_with_large_payload(body):
        try:
            return _decode_apart(decoder, records_of, bytes(body), base64_decode)
        except ValueError:  # unusual or malformed JSON: the decoder tells which
            pass
    return decoder.decode(body)


def _begins_with_large_payload(body: bytes | memoryview) -> bool:
    if len(body) < LARGE_BYTES:
        return False
    start = bytes(body[:_SEARCHED_BYTES]).find(_DATA)
    payload = bytes(body[start + len(_DATA) : start + len(_DATA) + LARGE_BYTES])
    return start >= 0 and len(payload) == LARGE_BYTES and b'"' not in payload


def _decode_apart(
    decoder: msgspec.json.Decoder[Decoded],
    records_of: Callable[[Decoded], list[UserRecord]],
    body: bytes,
    base64_decode: Callable[..., bytes],
) -> Decoded:
    """Raises: ValueError unless each cut was the payload of one record.

    That is so when there are as many cuts as records, and each record has the placeholder: text that only looks like a payload (in another
    field, or in a name) would leave a record without one. After a backslash base64 ends with an error.
    """
    rest, payloads, at = [], [], 0
    while (found := body.find(_DATA, at)) >= 0:
        start = found + len(_DATA)
        end = body.index(b'"', start)
        encoded = body[start:end]
        payload = base64_decode(encoded, validate=True)
        if len(payload) != len(encoded) * 3 // 4 - encoded[-2:].count(b"="):
            raise ValueError("too much padding, or none")
        rest.append(body[at:start])
        payloads.append(payload)
        at = end
    decoded = decoder.decode(_PLACEHOLDER.join([*rest, body[at:]]))
    for record, payload in zip(records_of(decoded), payloads, strict=True):
        if record.data != _PLACEHOLDER_BYTES:
            raise ValueError("a payload in unusual JSON")
        record.data = payload
    return decoded
