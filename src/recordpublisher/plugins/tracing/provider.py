"""Decides whether this process makes traces: if a tracer provider was set before the job or sink is made. Otherwise it imports nothing."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from recordpublisher.fetcher.sink import Traced, untraced
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.properties.groups.job import TRACING_FIELD
from recordpublisher.publishers.properties.properties import Properties

from .payload_context import TRACEPARENT, ContextField, carrier_reader

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

SCHEMA = "https://opentelemetry.io/schemas/1.44.0"
"""Version of the conventions that names and attributes follow. Their status is *development*, like all messaging conventions."""


def tracer_of_process() -> Tracer | None:
    """Return OpenTelemetry's tracer, or None if no provider was set. A program that has set a provider has imported the API."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    tracer: Tracer = trace.get_tracer("recordpublisher", schema_url=SCHEMA)
    return None if isinstance(tracer, (trace.NoOpTracer, trace.ProxyTracer)) else tracer


def traced_calls(properties: Properties, clock: Clock) -> Traced:
    """Return a function that puts spans around a call with records; `untraced` if no provider was set.

    Raises: ConfigurationError if a tracing property is invalid.
    """
    read, tracer = carrier_reader(properties), tracer_of_process()
    if tracer is None:
        return untraced
    from .spans import ProcessSpans

    return ProcessSpans(tracer, read, properties, clock).around


def payload_with_context(properties: Properties) -> Callable[[bytes], bytes] | None:
    """Return a function that puts the current trace context into a payload. None without a field for it, or without a provider."""
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
