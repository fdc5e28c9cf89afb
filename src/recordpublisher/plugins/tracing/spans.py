"""Makes a span around each call of a handler and each write, by the messaging conventions of OpenTelemetry 1.44.0."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from opentelemetry.context import Context
from opentelemetry.propagate import extract
from opentelemetry.trace import Link, SpanKind, Tracer, get_current_span

from recordpublisher.fetcher.sink import RecordsCall
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.log_fields import keep_trace_ids
from recordpublisher.publishers.properties.job_properties import JOB_NAME, TRACING_SPANS
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import Record, RecordBatch


class ProcessSpans:
    """Makes a span for each call with records.

    If the call has one record, the span is a child of the trace context in the record's payload. If it has several, the span has a link to
    each of their trace contexts.
    """

    def __init__(
        self, tracer: Tracer, read: Callable[[Record], Mapping[str, str] | None], properties: Properties, clock: Clock
    ) -> None:
        self._tracer = tracer
        self._read = read
        self._clock = clock
        self._group = properties.value(JOB_NAME)
        self._has_record_spans = properties.value(TRACING_SPANS) == "RECORD"

    def around(self, call: RecordsCall) -> RecordsCall:
        """Return a function that makes `call` inside a span. Its argument is a record, a list of records or a batch."""

        async def in_span(given: Record | Sequence[Record] | RecordBatch) -> Any:
            return await self._call(call, given)

        return in_span

    async def _call(self, call: RecordsCall, given: Record | Sequence[Record] | RecordBatch) -> Any:
        records = [given] if isinstance(given, Record) else list(given)
        contexts = [self._context_of(record) for record in records]
        links = [_link(context, record) for record, context in zip(records, contexts, strict=True) if context]
        parent = contexts[0] if len(records) == 1 else None
        if parent is not None and get_current_span().get_span_context().is_valid:
            links.append(_link(None))
        name, attributes, began = _name(records), self._attributes(records), time.time_ns()
        with self._tracer.start_as_current_span(name, parent, SpanKind.CONSUMER, attributes, links) as span:
            try:
                return await call(given)
            except Exception as error:
                span.set_attribute("error.type", type(error).__qualname__)
                keep_trace_ids(error)
                raise
            finally:
                if self._has_record_spans and len(records) > 1:
                    for record, context in zip(records, contexts, strict=True):
                        of_record = self._attributes([record])
                        self._tracer.start_span(
                            name, context or Context(), SpanKind.CONSUMER, of_record, [_link(None)], began
                        ).end()

    def _context_of(self, record: Record) -> Context | None:
        carrier = self._read(record)
        context = extract(carrier, Context()) if carrier else None
        return context if context and get_current_span(context).get_span_context().is_valid else None

    def _attributes(self, records: Sequence[Record]) -> dict[str, Any]:
        first, last = records[0], records[-1]
        attributes: dict[str, Any] = {
            "messaging.system": "aws_kinesis",
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.consumer.group.name": self._group,
            "messaging.destination.name": _common(record.stream for record in records),
            "messaging.destination.partition.id": _common(record.shard_id for record in records),
            "messaging.aws_kinesis.lag_ms": self._clock.now_ms() - first.arrival_millis,
        }
        if len(records) == 1:
            attributes["messaging.message.id"] = first.sequence_number
        else:
            attributes["messaging.batch.message_count"] = len(records)
            attributes["messaging.aws_kinesis.first_sequence_number"] = first.sequence_number
            attributes["messaging.aws_kinesis.last_sequence_number"] = last.sequence_number
        return {key: value for key, value in attributes.items() if value is not None}


def _name(records: Sequence[Record]) -> str:
    stream = _common(record.stream for record in records)
    return "process" if stream is None else f"process {stream}"


def _common(values: Iterable[str]) -> str | None:
    """Return the value that all of `values` have, or None if they differ."""
    different = set(values)
    return different.pop() if len(different) == 1 else None


def _link(context: Context | None, record: Record | None = None) -> Link:
    """Return a link to the span of a trace context, or to the current span if `context` is None. The link names `record`."""
    attributes = {} if record is None else {"messaging.message.id": record.sequence_number}
    return Link(get_current_span(context).get_span_context(), attributes)
