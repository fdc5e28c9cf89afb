"""The formats of bodies on the wire: JSON, which operations use, and CBOR 1.1, which the AWS SDKs for Java send by default."""

from base64 import b64decode
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import msgspec

from recordpublisher.extras import install_command

from .. import event_stream
from ..api_errors import ApiError

CBOR_TYPE = "application/x-amz-cbor-1.1"
TIMESTAMP_TAG = 1
"""The tag of a time in whole milliseconds since the epoch; in RFC 8949 the tag is for seconds (aws-sdk-java-v2 issue 4661)."""
REFUSED_TAGS = (0, 2, 3, 4, 5, 25, 28, 29, 30, 35, 36, 37, 100, 256, 258, 260, 261, 1004, 43000, 55799)
"""The other tags that cbor2 supports. With references to shared values a body of 288 bytes would become 790 MB."""
TIMESTAMPS = frozenset(
    (
        "ApproximateArrivalTimestamp", "ConsumerCreationTimestamp", "FirstReceiveTimestamp", "QueueCreationTimestamp",
        "StreamCreationTimestamp", "Timestamp",
    )
)  # fmt: skip
BLOBS = frozenset(("Data",))
MISSING = f"CBOR needs the extra local: {install_command('local')}. Or turn it off: aws.cborEnabled=false in Java"


def has_cbor() -> bool:
    """Return whether the extra that CBOR needs is installed."""
    return find_spec("cbor2") is not None


def _json_of_cbor(body: bytes) -> bytes:
    """Return a request's body in JSON. Raises: ApiError if it is not CBOR."""
    import cbor2

    if not body:
        return body
    decoders = {**dict.fromkeys(REFUSED_TAGS, _refuse_tag), TIMESTAMP_TAG: lambda value, _: value / 1000}
    try:
        decoded = cbor2.loads(body, tag_hook=_refuse_tag, semantic_decoders=decoders)
        return msgspec.json.encode(decoded)  # bytes become base64 text
    except (cbor2.CBORDecodeError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
        raise ApiError("SerializationException", f"The body is not CBOR: {error}") from error


def _refuse_tag(*_: Any) -> Any:
    raise ValueError(f"the service knows no tag but {TIMESTAMP_TAG}")


def _cbor_of_json(body: bytes) -> bytes:
    """Return a response's body in CBOR. An empty body stays empty, and a body that a fault has cut stays unchanged."""
    import cbor2

    try:
        return cbor2.dumps(_with_cbor_types(msgspec.json.decode(body)))
    except msgspec.DecodeError:
        return body


def _cbor_frame(frame: bytes) -> bytes:
    """Return a frame with its payload in CBOR. A frame that a fault has damaged stays unchanged."""
    parsed = event_stream.parse(frame)
    if parsed is None:
        return frame
    headers, payload = parsed
    return event_stream.frame(_cbor_of_json(payload), *{**headers, ":content-type": CBOR_TYPE}.items())


def _with_cbor_types(value: Any, name: str = "") -> Any:
    import cbor2

    if isinstance(value, dict):
        return {key: _with_cbor_types(each, key) for key, each in value.items()}
    if isinstance(value, list):
        return [_with_cbor_types(each, name) for each in value]
    if name in BLOBS:
        return b64decode(value)
    if name in TIMESTAMPS:
        return cbor2.CBORTag(TIMESTAMP_TAG, round(value * 1000))
    return value


@dataclass(frozen=True, slots=True)
class WireFormat:
    """A format of bodies: how a request's body becomes JSON, and how responses and subscription frames are made from JSON."""

    content_type: str
    to_json: Callable[[bytes], bytes]
    from_json: Callable[[bytes], bytes]
    frame_from_json: Callable[[bytes], bytes]


def _same(body: bytes) -> bytes:
    return body


JSON = WireFormat("application/x-amz-json-1.1", _same, _same, _same)
CBOR = WireFormat(CBOR_TYPE, _json_of_cbor, _cbor_of_json, _cbor_frame)


def format_of(content_type: str) -> WireFormat:
    """Return the format of a request; its response has the same format. Raises: ApiError for CBOR without its extra."""
    if content_type.partition(";")[0].strip().lower() != CBOR_TYPE:
        return JSON
    if not has_cbor():
        raise ApiError("SerializationException", MISSING)
    return CBOR
