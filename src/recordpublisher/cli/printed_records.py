"""The records that `tail` prints: how they are read, which, and as which JSON."""

import re
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
from msgspec.structs import replace

from recordpublisher.plugins.deserializers.decompression import decompressor_for
from recordpublisher.plugins.sinks.files.jsonl import as_json
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.groups.job import (
    COMPRESSION,
    DESERIALIZER,
    ON_BAD_RECORD,
    SCHEMA,
    TIMESTAMP_FIELD,
    WATERMARK_STRATEGY,
)
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import Record
from recordpublisher.publishers.undecodable import UNDECODABLE

from ..consumer.event_time import check_times, timestamp_assigner_for
from .output import printable_json


class RecordReading:
    """Reads records for `tail` with a job's properties. A record that the job cannot use is shown like any other, as it was read.

    - `properties`: the properties of the job, without those that decode values.
    - `event_time`: returns the event time of a record; None if the event time is the arrival.
    """

    def __init__(self, job: Properties) -> None:
        """Read the job's properties. Raises: ConfigurationError if the compression or the event time cannot be used."""
        self._decompressor = decompressor_for(job)
        self._times_in = timestamp_assigner_for(job, None).times_in
        unused = (DESERIALIZER, SCHEMA, COMPRESSION, ON_BAD_RECORD, TIMESTAMP_FIELD, WATERMARK_STRATEGY)
        self.properties = job.merged(dict.fromkeys((declared.key for declared in unused), None))
        self.event_time: Callable[[Record], int] | None = None if self._times_in is None else self._event_time

    def decompressed(self, record: Record) -> Record:
        """Return the record with its payload decompressed, or as it is if that is not possible."""
        if self._decompressor is None:
            return record
        with suppress(ValueError):
            return replace(record, data=self._decompressor.decompress([record.data])[0])
        return record

    def _event_time(self, record: Record) -> int:
        """Return the time in the job's field (epoch ms), or the arrival if the field has no valid time."""
        with suppress(ValueError):
            if self._times_in is not None:
                times = self._times_in([self.decompressed(record).data])
                check_times(times)
                return times[0]
        return record.arrival_millis


def pattern(option: str, given: str | None) -> re.Pattern[str] | None:
    """Return a regular expression, or None if none is given. Raises: ConfigurationError if it is not valid; it names the option."""
    try:
        return None if given is None else re.compile(given)
    except re.error as error:
        raise ConfigurationError(option, given, "a regular expression of Python", reason=str(error)) from error


def is_chosen(record: Record, key: re.Pattern[str] | None, content: re.Pattern[str] | None) -> bool:
    """Return whether the partition key and the payload, as text, each contain a match of their pattern, if it is given."""
    return (key is None or key.search(record.partition_key or "") is not None) and (
        content is None or content.search(record.data.decode(errors="replace")) is not None
    )


def json_line(record: Record) -> bytes:
    """Return a record as one line of JSON. A payload that is a JSON object or array is embedded as it is, not as text."""
    fields: dict[str, Any] = as_json(record)
    if record.data.lstrip()[:1] in (b"{", b"["):
        try:
            msgspec.json.decode(record.data)
            fields["data"] = msgspec.Raw(msgspec.json.format(record.data, indent=-1))
        except UNDECODABLE:
            pass  # no JSON: it stays text
    return printable_json(msgspec.json.encode(fields)) + b"\n"
