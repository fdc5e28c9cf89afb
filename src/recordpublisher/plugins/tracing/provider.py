"""Whether this process makes traces: with a tracer provider that was set before its job or sink is made. Otherwise nothing is imported."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from recordpublisher.fetcher.sink import Traced, untraced
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.properties.groups.metrics import TRACING_FIELD
from recordpublisher.publishers.properties.properties import Properties

from .payload_context import TRACEPARENT, ContextField, carrier_reader

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

SCHEMA = "https://opentelemetry.io/schemas/1.44.0"
"""Of the conventions that names and attributes follow: development, as all of messaging."""


def tracer_of_process() -> Tracer | None:
    """OpenTelemetry's tracer; None: there is no provider. Whoever has set one has imported the API."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return None
    tracer: Tracer = trace.get_tracer("recordpublisher", schema_url=SCHEMA)
    return None if isinstance(tracer, (trace.NoOpTracer, trace.ProxyTracer)) else tracer


def traced_calls(properties: Properties, clock: Clock) -> Traced:
    """A function that puts spans around a call with records; `untraced` without a provider. Raises: ConfigurationError."""
    read, tracer = carrier_reader(properties), tracer_of_process()
    if tracer is None:
        return untraced
    from .spans import ProcessSpans

    return ProcessSpans(tracer, read, properties, clock).around


def payload_with_context(properties: Properties) -> Callable[[bytes], bytes] | None:
    """A function that puts the current trace context into a payload; None: without a field for it, or without a provider."""
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
