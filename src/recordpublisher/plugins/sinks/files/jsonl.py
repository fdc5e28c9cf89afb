"""The jsonl sink: JSON lines, a file for each shard and checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.table import JSONL_PATH
from recordpublisher.publishers.records import Record, RecordBatch

from .record_json import as_json, described
from .sink import FileSink, Rejected, bytes_writer


class JsonlSink(FileSink):
    """Writes one object for each record: where it is from, `eventTime`, and `value` as the deserialiser made it, else `data`.

    Files appear whole and hold each record exactly once; see `flink.sink.jsonl.path`.
    """

    suffix = ".jsonl"

    def __init__(self, properties: Properties) -> None:
        super().__init__(properties, JSONL_PATH)

    def writer_of(self, kept: Sequence[RecordBatch], rejected: Rejected) -> Callable[[Path], None] | None:
        """Lines; a value that is none of JSON's is rejected."""
        lines: list[bytes] = []
        for batch in kept:
            shown = as_json if batch.values is None else _with_value
            for index, record in enumerate(batch):
                try:
                    lines.append(msgspec.json.encode(shown(record)))
                except (TypeError, ValueError, OverflowError, RecursionError) as error:
                    rejected.append((batch.slice(index, index + 1), f"{type(error).__name__}: {error}"))
        return bytes_writer(b"\n".join([*lines, b""])) if lines else None


def _with_value(record: Record) -> dict[str, Any]:
    return {**described(record), "eventTime": record.event_time, "value": record.value}
