"""Adds the stream, shard and subtask of a log line as fields for structured logs; and puts counts into words."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from logging import LogRecord
from types import MappingProxyType
from typing import Any

_fields_of_task: ContextVar[Mapping[str, Any]] = ContextVar("recordpublisher_log_fields", default=MappingProxyType({}))
_TRACE_IDS = "_recordpublisher_trace_ids"


@contextmanager
def log_fields(**fields: Any) -> Iterator[None]:
    """Add fields to each line that this task logs in the block, and to the lines of tasks that it starts there."""
    token = _fields_of_task.set({**_fields_of_task.get(), **fields})
    try:
        yield
    finally:
        _fields_of_task.reset(token)


def about(
    key: str, sequence_number: str | None = None, error: BaseException | None = None
) -> dict[str, dict[str, str]]:
    """Return the argument `extra` of a log line about a stream or shard (`Shard.key`), for a task that is not the shard's reader.

    - `sequence_number`: the sequence number of the record that the line is about, or of the first one.
    - `error`: an error whose trace ids are added, if `keep_trace_ids` has stored them.
    """
    fields = key_fields(key) | getattr(error, _TRACE_IDS, {})
    return {"fields": fields if sequence_number is None else {**fields, "sequenceNumber": sequence_number}}


def trace_ids() -> dict[str, str]:
    """Return `trace_id` and `span_id` of OpenTelemetry's current span, by its names for logs; {} without a span."""
    trace = sys.modules.get("opentelemetry.trace")  # Code that makes spans has imported it, so it is not loaded here.
    context = None if trace is None else trace.get_current_span().get_span_context()
    if trace is None or context is None or not context.is_valid:
        return {}
    return {"trace_id": trace.format_trace_id(context.trace_id), "span_id": trace.format_span_id(context.span_id)}


def keep_trace_ids(error: BaseException) -> None:
    """Store the current trace ids at the error, because its log lines are written after its span has ended."""
    object.__setattr__(error, _TRACE_IDS, trace_ids())  # A class of the user may forbid to set attributes.


def counted(count: int, noun: str) -> str:
    """Return a count with its noun, as `1 shard` or `2 shards`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def key_fields(key: str) -> dict[str, str]:
    """Return the log fields for a key, which is `stream` or `stream/shard-id`."""
    stream, _, shard = key.partition("/")
    return {"stream": stream, "shard": shard} if shard else {"stream": stream}


def fields_of(record: LogRecord) -> dict[str, Any]:
    """Return the fields of a log line. Called while the line is logged."""
    return {**_fields_of_task.get(), **trace_ids(), **getattr(record, "fields", {})}
