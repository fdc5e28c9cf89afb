"""RESPONSE_DECODERS: our own decoders for the frequent responses, by the names of their shapes in the SDK."""

from collections.abc import Callable
from typing import Any

import msgspec

from .put_records import decode_put
from .read_response import decode_read

READ = "read"
"""Key of the parsed response that holds a `ReadBody`."""
PUT = "put"
"""Key of the parsed response that holds a `PutRecordsResponse`."""
RAW_EVENTS = "raw_events"
"""Key of the parsed response that holds the open HTTP response of an event stream."""


def _read(body: bytes) -> dict[str, Any]:
    return {READ: decode_read(body)}


def _put(body: bytes) -> dict[str, Any]:
    return {PUT: decode_put(body)}


def _events(body: Any) -> dict[str, Any]:
    # EventSubscription reads and decodes the frames, one at a time (F1), the initial response included
    return {RAW_EVENTS: body}


def _object(body: bytes) -> dict[str, Any]:
    return msgspec.json.decode(body, type=dict[str, Any])


RESPONSE_DECODERS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "GetRecordsOutput": _read,
    "PutRecordsOutput": _put,
    "SubscribeToShardOutput": _events,
    "GetShardIteratorOutput": _object,
}
