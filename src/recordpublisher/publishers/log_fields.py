"""The fields of log lines: those of the task that logs, those of a stream or shard, and those of a trace."""

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from logging import LogRecord
from types import MappingProxyType
from typing import Any

_fields_of_task: ContextVar[Mapping[str, Any]] = ContextVar("recordpublisher_log_fields", default=MappingProxyType({}))
_TRACE_IDS = "_recordpublisher_trace_ids"


@contextmanager
def log_fields(**fields: Any) -> Iterator[None]:
    """Add fields to each line that this task logs in the `with` block. Tasks that it starts there have the same fields."""
    token = _fields_of_task.set({**_fields_of_task.get(), **fields})
    try:
        yield
    finally:
        # If a coroutine is dropped unfinished, Python closes it in another context, which never had these fields.
        with suppress(ValueError):
            _fields_of_task.reset(token)


@contextmanager
def job_in_lines(name: str) -> Iterator[None]:
    """Begin each line that this task logs in the `with` block with the name of the job. That includes lines of tasks that it starts there.

    An empty name changes nothing. In `recordpublisher run`, whose process has one job, the lines have the name only as a field.
    """
    if not name:
        yield
        return
    for logger in list(logging.root.manager.loggerDict.values()):
        # A filter of the logger `recordpublisher` would not see the lines of the loggers below it.
        if isinstance(logger, logging.Logger) and logger.name.startswith("recordpublisher."):
            logger.addFilter(_begin_with_job)
    with log_fields(job=name):
        yield


def _begin_with_job(record: LogRecord) -> bool:
    fields = _fields_of_task.get()
    if "job" in fields and "process" not in fields:
        # Without arguments, logging does not format the message.
        name = fields["job"].replace("%", "%%") if record.args else fields["job"]
        record.msg = f"job {name}: {record.msg}"
    return True


def log_extra(
    key: str, sequence_number: str | None = None, error: BaseException | None = None
) -> dict[str, dict[str, str]]:
    """Return the argument `extra` of a log line about the stream or shard `key`. Tasks that read a shard need none: they have its fields.

    - `sequence_number`: the sequence number of the record that the line is about, or of the first one.
    - `error`: an error in which `keep_trace_ids` has stored trace ids. The line gets these ids.
    """
    fields = key_fields(key) | getattr(error, _TRACE_IDS, {})
    return {"fields": fields if sequence_number is None else {**fields, "sequenceNumber": sequence_number}}


def trace_ids() -> dict[str, str]:
    """Return the log fields with the trace id and span id of OpenTelemetry's current span. Return an empty dict if there is no span."""
    # OpenTelemetry is not imported here: if there are spans, other code has imported it.
    trace = sys.modules.get("opentelemetry.trace")
    context = None if trace is None else trace.get_current_span().get_span_context()
    if trace is None or context is None or not context.is_valid:
        return {}
    return {"trace_id": trace.format_trace_id(context.trace_id), "span_id": trace.format_span_id(context.span_id)}


def keep_trace_ids(error: BaseException) -> None:
    """Store the current trace ids in the error, because the error is logged after its span has ended."""
    # A user's error class may forbid changes, so its own `__setattr__` is not called.
    object.__setattr__(error, _TRACE_IDS, trace_ids())


def key_fields(key: str) -> dict[str, str]:
    """Return the log fields for a key, which is `stream` or `stream/shard-id`."""
    stream, _, shard = key.partition("/")
    return {"stream": stream, "shard": shard} if shard else {"stream": stream}


def fields_of(record: LogRecord) -> dict[str, Any]:
    """Return the fields of a log line. Call this while the line is logged."""
    given = getattr(record, "fields", None)
    # A log call of the user may give something else under this name.
    return {**_fields_of_task.get(), **trace_ids(), **(given if isinstance(given, Mapping) else {})}
