"""What a log line is about, as fields for structured logs: the stream, shard and subtask; and counts in words."""

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
    """Add fields to each line that this task logs in the block, and the tasks that it starts there."""
    token = _fields_of_task.set({**_fields_of_task.get(), **fields})
    try:
        yield
    finally:
        _fields_of_task.reset(token)


def about(
    key: str, sequence_number: str | None = None, error: BaseException | None = None
) -> dict[str, dict[str, str]]:
    """For the argument `extra` of a line about a stream or a shard (`Shard.key`) which another task than its reader logs.

    `sequence_number`: of the record that it is about, or of the first one; `error`: with the ids of its trace, see `keep_trace_ids`.
    """
    fields = key_fields(key) | getattr(error, _TRACE_IDS, {})
    return {"fields": fields if sequence_number is None else {**fields, "sequenceNumber": sequence_number}}


def trace_ids() -> dict[str, str]:
    """`trace_id` and `span_id` of OpenTelemetry's current span, by the names that it has for logs; {} without one."""
    trace = sys.modules.get("opentelemetry.trace")  # whoever makes spans has imported it
    context = None if trace is None else trace.get_current_span().get_span_context()
    if trace is None or context is None or not context.is_valid:
        return {}
    return {"trace_id": trace.format_trace_id(context.trace_id), "span_id": trace.format_span_id(context.span_id)}


def keep_trace_ids(error: BaseException) -> None:
    """Lines about this error are logged when its span has ended."""
    object.__setattr__(error, _TRACE_IDS, trace_ids())  # one of the user's may forbid to change it


def counted(count: int, noun: str) -> str:
    """`1 shard`, `2 shards`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def key_fields(key: str) -> dict[str, str]:
    """The fields of `stream` or `stream/shard-id`."""
    stream, _, shard = key.partition("/")
    return {"stream": stream, "shard": shard} if shard else {"stream": stream}


def fields_of(record: LogRecord) -> dict[str, Any]:
    """The fields of a line, while it is logged."""
    return {**_fields_of_task.get(), **trace_ids(), **getattr(record, "fields", {})}
