"""The context of a trace in a record's payload: how it is found there, and how `KinesisSink` puts it there."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from recordpublisher.consumer.json_field import json_field
from recordpublisher.publishers.properties.function_property import imported_function
from recordpublisher.publishers.properties.groups.metrics import TRACING_FIELD, TRACING_FUNCTION
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import Record
from recordpublisher.publishers.skipped_records import SkippedRecordsLog
from recordpublisher.publishers.undecodable import UNDECODABLE

log = logging.getLogger("recordpublisher.tracing")
TRACEPARENT = "traceparent"
Carrier = Mapping[str, str]
"""The headers of a trace context, as OpenTelemetry's propagators read and write them."""


class ContextField:
    """A field of JSON objects with the text of W3C's `traceparent`, or with an object of all headers (`tracestate`, `baggage`)."""

    def __init__(self, name: str) -> None:
        """Raises: ConfigurationError for a name that JSON would have to escape."""
        self._key = msgspec.json.encode(name)
        self._decode = json_field(TRACING_FIELD.key, name, Any, msgspec.UNSET)

    def read(self, record: Record) -> Carrier | None:
        """What the field holds; None: it is not there, or the payload is no JSON object."""
        try:
            context = self._decode(record.data).value
        except UNDECODABLE:
            return None
        if isinstance(context, str):
            return {TRACEPARENT: context}
        texts = context.items() if isinstance(context, Mapping) else ()
        return {name: value for name, value in texts if isinstance(value, str)} or None

    def add(self, data: bytes, traceparent: str) -> bytes:
        """The payload with the field. One that has it, or is no JSON object, stays as it is."""
        try:
            is_there = self._decode(data).value is not msgspec.UNSET  # null is there, too
        except UNDECODABLE:
            return data
        if is_there:
            return data
        members = data.lstrip()[1:].lstrip()
        comma = b"" if members.startswith(b"}") else b","
        return b"{%s:%s%s%s" % (self._key, msgspec.json.encode(traceparent), comma, members)


def carrier_reader(properties: Properties) -> Callable[[Record], Carrier | None]:
    """How a record's carrier is found: by the user's function, or in a field. Raises: ConfigurationError."""
    if properties.value(TRACING_FUNCTION) is not None:
        function = imported_function(properties, TRACING_FUNCTION, "module:function, of a function of a Record")
        return _Guarded(function)
    field = properties.value(TRACING_FIELD)
    return _no_carrier if field is None else ContextField(field).read


class _Guarded:
    """A function of the user, whose errors and results end no job."""

    def __init__(self, function: Callable[[Record], Carrier | None]) -> None:
        self._function = function
        self._skipped_log = SkippedRecordsLog(log)

    def __call__(self, record: Record) -> Carrier | None:
        try:
            return _checked(self._function(record))
        except Exception as error:
            name = f"record {record.sequence_number} of {record.stream}/{record.shard_id}"
            self._skipped_log.skipped(name, str(error), error, how="no trace context of")
            return None


def _checked(carrier: object) -> Carrier | None:
    """What a user's function returned. Raises: TypeError for anything but texts by name, which OpenTelemetry trusts to be."""
    if carrier is None:
        return None
    if isinstance(carrier, Mapping) and all(isinstance(text, str) for item in carrier.items() for text in item):
        return carrier
    raise TypeError(f"the function returned {carrier!r:.100}; valid: a mapping of texts, or None")


def _no_carrier(record: Record) -> Carrier | None:
    return None
