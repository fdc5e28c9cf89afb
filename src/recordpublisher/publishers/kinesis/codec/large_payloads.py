"""Decodes responses with large payloads faster: SIMD (the extra `base64`) decodes cut-out payloads, JSON the rest."""

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
"""Decodes base64 by SIMD, or None if the extra is not installed."""

Decoded = TypeVar("Decoded")

LARGE_BYTES = 2_700
"""Base64 length from which on this costs less than JSON alone: 2 KiB of data. At 10 KiB it costs a third."""
_SEARCHED_BYTES = 4_096
_DATA = b'"Data":"'
_PLACEHOLDER_BYTES = secrets.token_bytes(9)
"""Stands for a payload that was cut out. It is random, so that no response can contain it on purpose."""
_PLACEHOLDER = base64.b64encode(_PLACEHOLDER_BYTES)


def decode_json(
    decoder: msgspec.json.Decoder[Decoded],
    records_of: Callable[[Decoded], list[UserRecord]],
    body: bytes | memoryview,
    base64_decode: Callable[..., bytes] | None = simd_decode,
) -> Decoded:
    """Return the same as `decoder.decode(body)`. Payloads are decoded apart if the first one is large, and the JSON is usual.

    Raises: msgspec.DecodeError if the body is malformed.
    """
    if base64_decode is not None and _begins_with_large_payload(body):
        try:
            return _decode_apart(decoder, records_of, bytes(body), base64_decode)
        except ValueError:  # the JSON is unusual or malformed; the decoder finds out which
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
    """Cut out the payloads, decode them and the rest separately, and put them together. Check that each cut was one record's payload.

    This is so if there are as many cuts as records, and each record has the placeholder: text that only looks like a
    payload (in another field, or in a name) would leave a record without one. Text that is cut at an
    escaped quotation mark ends in a backslash, which is not valid base64.

    Raises: ValueError if a cut was not the payload of one record.
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
