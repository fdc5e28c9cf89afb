"""Finds the place where a job's dead-letter sink has written. The modules for a place are imported only for a job that uses it."""

from __future__ import annotations

from recordpublisher.plugins.host.build_from_properties import dead_letter_properties
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.groups.job import DEAD_LETTER_SINK
from recordpublisher.publishers.properties.properties import Properties

from .stored_letters import StoredLetters


def stored_letters_of(properties: Properties) -> StoredLetters:
    """Return the place of a job's dead letters. Raises: ConfigurationError if the letters of its sink cannot be read."""
    name, of_sink = (properties.value(DEAD_LETTER_SINK) or "").lower(), dead_letter_properties(properties)
    if name == "jsonl":
        from recordpublisher.plugins.sinks.files.jsonl import JsonlSink

        from .files import FileLetters, json_lines

        return FileLetters(JsonlSink, json_lines, of_sink)
    if name == "parquet":
        from recordpublisher.plugins.sinks.files.parquet import ParquetSink

        from .files import FileLetters, parquet_rows

        return FileLetters(ParquetSink, parquet_rows, of_sink)
    if name == "sql":
        from .table import TableLetters

        return TableLetters(of_sink)
    if name == "kinesis":
        from .stream import StreamLetters

        return StreamLetters(of_sink)
    raise ConfigurationError(DEAD_LETTER_SINK.key, properties.value(DEAD_LETTER_SINK), "jsonl, parquet, sql or kinesis")
