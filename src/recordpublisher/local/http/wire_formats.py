"""The formats of bodies on the wire. Operations know JSON; others are converted at the edge."""

from collections.abc import Callable
from dataclasses import dataclass

from . import cbor


@dataclass(frozen=True, slots=True)
class WireFormat:
    """How a request's body becomes JSON, and how a response's body and a subscription's frame are made from JSON."""

    content_type: str
    to_json: Callable[[bytes], bytes]
    from_json: Callable[[bytes], bytes]
    frame_from_json: Callable[[bytes], bytes]


def _same(body: bytes) -> bytes:
    return body


JSON = WireFormat("application/x-amz-json-1.1", _same, _same, _same)
CBOR = WireFormat(cbor.CONTENT_TYPE, cbor.to_json, cbor.from_json, cbor.frame_from_json)


def has_cbor() -> bool:
    """Whether the extra that CBOR needs is installed."""
    return cbor.is_installed()


def format_of(content_type: str) -> WireFormat:
    """Return the format that a request is in; the response is in the same. Raises: ApiError for CBOR without its extra."""
    if content_type.partition(";")[0].strip().lower() != cbor.CONTENT_TYPE:
        return JSON
    cbor.require_cbor()
    return CBOR
