"""What a log line is about, as fields for structured logs: the stream, shard and subtask; and counts in words."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from logging import LogRecord
from types import MappingProxyType
from typing import Any

_fields_of_task: ContextVar[Mapping[str, Any]] = ContextVar("recordpublisher_log_fields", default=MappingProxyType({}))


@contextmanager
def log_fields(**fields: Any) -> Iterator[None]:
    """Add fields to each line that this task logs in the block, and the tasks that it starts there."""
    token = _fields_of_task.set({**_fields_of_task.get(), **fields})
    try:
        yield
    finally:
        _fields_of_task.reset(token)


def about(key: str, sequence_number: str | None = None) -> dict[str, dict[str, str]]:
    """For the argument `extra` of a line about a stream or a shard (`Shard.key`) which another task than its reader logs.

    `sequence_number`: of the record that it is about, or of the first one.
    """
    fields = key_fields(key)
    return {"fields": fields if sequence_number is None else {**fields, "sequenceNumber": sequence_number}}


def counted(count: int, noun: str) -> str:
    """`1 shard`, `2 shards`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def key_fields(key: str) -> dict[str, str]:
    """The fields of `stream` or `stream/shard-id`."""
    stream, _, shard = key.partition("/")
    return {"stream": stream, "shard": shard} if shard else {"stream": stream}


def fields_of(record: LogRecord) -> dict[str, Any]:
    """The fields of a line, while it is logged."""
    return {**_fields_of_task.get(), **getattr(record, "fields", {})}
