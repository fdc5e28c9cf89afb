"""Reads trace contexts from payloads, and adds them to payloads, if this process makes traces.

A process makes traces if a tracer provider was set before the job or sink is made. Otherwise OpenTelemetry is not imported here.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from recordpublisher.consumer.deserialization import json_field_decoder
from recordpublisher.fetcher.sink import Traced, untraced
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.decoding_errors import UNDECODABLE
from recordpublisher.publishers.properties.config_fields import imported_function
from recordpublisher.publishers.properties.job_properties import TRACING_FIELD, TRACING_FUNCTION
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import Record
from recordpublisher.publishers.safe_text import repr_of, text_of
from recordpublisher.publishers.skipped_records_log import SkippedRecordsLog

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

log = logging.getLogger("recordpublisher.tracing")
TRACEPARENT = "traceparent"
Carrier = Mapping[str, str]
"""The headers of a trace context by name, as OpenTelemetry's propagators read and write them."""
SCHEMA = "https://opentelemetry.io/schemas/1.44.0"
"""Version of the conventions for the names and attributes of spans. Like all messaging conventions, they have the status *development*."""


def payload_with_context(properties: Properties) -> Callable[[bytes], bytes] | None:
    """Return a function that adds the current trace context to a payload.

    Return None if no field for the trace context is set, or if this process makes no traces.
    """
    field = properties.value(TRACING_FIELD)
    if field is None or tracer_of_process() is None:
        return None
    from opentelemetry.propagate import inject

    add = ContextField(field).add

    def with_context(data: bytes) -> bytes:
        carrier: dict[str, str] = {}
        inject(carrier)
        return add(data, carrier[TRACEPARENT]) if TRACEPARENT in carrier else data

    return with_context


def carrier_reader(properties: Properties) -> Callable[[Record], Carrier | None]:
    """Return a function that finds the trace context of a record. It is the user's function, or reads a field of the payload.

    Raises: ConfigurationError if the user's function cannot be imported, or if the field's name is invalid.
    """
    if properties.value(TRACING_FUNCTION) is not None:
        function = imported_function(properties, TRACING_FUNCTION, "module:function, of a function of a Record")
        return _Guarded(function)
    field = properties.value(TRACING_FIELD)
    return _no_carrier if field is None else ContextField(field).read


class ContextField:
    """A field of JSON objects that contains the trace context of a record.

    Its value is the text of W3C's `traceparent`, or an object of all headers (`tracestate`, `baggage`).

    Raises: ConfigurationError if JSON would have to escape the field's name.
    """

    def __init__(self, name: str) -> None:
        self._key = msgspec.json.encode(name)
        self._decode = json_field_decoder(TRACING_FIELD.key, name, Any, msgspec.UNSET)

    def read(self, record: Record) -> Carrier | None:
        """Return the headers in the field of a record. Return None if the field is missing, or if the payload is not a JSON object."""
        try:
            context = self._decode(record.data).value
        except UNDECODABLE:
            return None
        if isinstance(context, str):
            return {TRACEPARENT: context}
        texts = context.items() if isinstance(context, Mapping) else ()
        return {name: value for name, value in texts if isinstance(value, str)} or None

    def add(self, data: bytes, traceparent: str) -> bytes:
        """Return the payload with the field added. If it already has the field, or is not a JSON object, return it unchanged."""
        try:
            is_there = self._decode(data).value is not msgspec.UNSET  # A field with null counts as present.
        except UNDECODABLE:
            return data
        if is_there:
            return data
        members = data.lstrip()[1:].lstrip()
        comma = b"" if members.startswith(b"}") else b","
        return b"{%s:%s%s%s" % (self._key, msgspec.json.encode(traceparent), comma, members)


def traced_calls(properties: Properties, clock: Clock) -> Traced:
    """Return a function that makes spans around a call with records. It is `untraced` if this process makes no traces.

    Raises: ConfigurationError if a tracing property is invalid.
    """
    read, tracer = carrier_reader(properties), tracer_of_process()
    if tracer is None:
        return untraced
    from .spans import ProcessSpans

    return ProcessSpans(tracer, read, properties, clock).around


def tracer_of_process() -> Tracer | None:
    """Return OpenTelemetry's tracer, or None if no tracer provider was set.

    While the program has not imported OpenTelemetry, no provider can be set, so this function does not import it either.
    """
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    tracer: Tracer = trace.get_tracer("recordpublisher", schema_url=SCHEMA)
    return None if isinstance(tracer, (trace.NoOpTracer, trace.ProxyTracer)) else tracer


class _Guarded:
    """Calls a function of the user that finds trace contexts. Its errors and invalid results are logged, and do not end the job."""

    def __init__(self, function: Callable[[Record], Carrier | None]) -> None:
        self._function = function
        self._skipped_log = SkippedRecordsLog(log)

    def __call__(self, record: Record) -> Carrier | None:
        try:
            return _checked(self._function(record))
        except Exception as error:
            name = f"record {record.sequence_number} of {record.stream}/{record.shard_id}"
            self._skipped_log.skipped(name, text_of(error), error, how="no trace context of")
            return None


def _checked(carrier: object) -> Carrier | None:
    """Return the carrier that a user's function returned, after a check that OpenTelemetry does not make.

    Raises: TypeError if it is not a mapping of str to str, or None.
    """
    if carrier is None:
        return None
    if isinstance(carrier, Mapping) and all(isinstance(text, str) for item in carrier.items() for text in item):
        return carrier
    raise TypeError(f"the function returned {repr_of(carrier)}. Valid: a mapping of texts, or None")


def _no_carrier(record: Record) -> Carrier | None:
    return None
