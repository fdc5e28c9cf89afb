"""RecordParser: the SDK's response parser with our decoders for the frequent calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from aiobotocore.parsers import AioJSONParser, AioResponseParserFactory

from ..error_mapping import MalformedResponseError
from .put_records import decode_put
from .read_response import decode_read

READ = "read"
"""Key of the parsed response that holds a `ReadBody`."""
PUT = "put"
"""Key of the parsed response that holds a `PutRecordsResponse`."""
RAW_EVENTS = "raw_events"
"""Key of the parsed response that holds the open HTTP response of an event stream."""


class RecordParser(AioJSONParser):  # type: ignore[misc] # the SDK is untyped
    """The SDK's JSON parser, with our own decoders for the most frequent responses.

    The SDK walks shapes and parses a timestamp for every record: 14 us a record, against 0.6-1.0 us here. Error responses, headers and all
    other operations are left to the SDK, as are signing and credentials. One difference: a malformed or truncated JSON body is an error
    here, while the SDK takes it for an empty response.
    """

    async def _do_parse(self, response: dict[str, Any], shape: Any) -> dict[str, Any]:
        if shape is None or shape.name not in RESPONSE_DECODERS:
            parsed: dict[str, Any] = await super()._do_parse(response, shape)
            return parsed
        decoded = RESPONSE_DECODERS[shape.name](response["body"])
        self._inject_response_metadata(decoded, response["headers"])
        return decoded

    def _handle_json_body(self, raw_body: bytes, shape: Any) -> dict[str, Any]:
        body = msgspec.json.decode(raw_body, type=dict) if raw_body else {}
        try:
            parsed: dict[str, Any] = self._parse_shape(shape, body)
        except Exception as error:  # the SDK trusts the types of values, and raises whatever comes of it
            raise MalformedResponseError(f"not a {shape.name}: {error}") from error
        return parsed

    def _parse_body_as_json(self, body_contents: bytes) -> dict[str, Any]:
        """Parse the body of an error response. A proxy's may be any JSON, while the SDK expects an object of strings."""
        try:
            parsed = super()._parse_body_as_json(body_contents)
        except RecursionError:
            parsed = {}
        if not isinstance(parsed, dict):
            return {"message": str(parsed)}
        return {name: str(value) for name, value in parsed.items() if value is not None}


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


class RecordParserFactory(AioResponseParserFactory):  # type: ignore[misc] # the SDK is untyped
    """The session component `response_parser_factory`; parsers have no state, so one is enough."""

    def __init__(self) -> None:
        super().__init__()
        self._parser = RecordParser()

    def create_parser(self, protocol_name: str) -> Any:
        """The parser of a protocol: ours for JSON, the SDK's own otherwise (STS)."""
        return self._parser if protocol_name == "json" else super().create_parser(protocol_name)
