"""The sink for JSON lines, with one file for each shard and checkpoint."""

import asyncio
import base64
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from recordpublisher.consumer.typed_values import fields_of_model, with_all_fields
from recordpublisher.fetcher.sink import RejectedRecord, SinkContext
from recordpublisher.install_commands import install_command
from recordpublisher.plugins.deserializers.schemas import InferColumns
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.sink_properties import ARCHIVE, JSONL_PATH, PARTITIONS
from recordpublisher.publishers.records import Record, RecordBatch
from recordpublisher.publishers.user_code import describe_error

from .sink import FileSink

if TYPE_CHECKING:
    from recordpublisher.plugins.columns.file_columns import InferredColumns

    from .folder_schema import Folder


class JsonlSink(FileSink):
    """Writes one JSON object for each record: its metadata, `eventTime`, and the deserialized `value`, or `data` without a deserializer.

    Readers see complete files only, and each record is in exactly one of them; see `flink.sink.jsonl.path`.
    """

    suffix = ".jsonl"
    folder = JSONL_PATH

    def __init__(self, properties: Mapping[str, object]) -> None:
        super().__init__(given := Properties(properties))
        if (pattern := given.value(PARTITIONS)) is not None:
            reason = (
                "the jsonl sink writes a folder for each shard, so it has no partitions; "
                "leave it out, or use parquet, delta or iceberg"
            )
            raise ConfigurationError(PARTITIONS.key, pattern, reason=reason)
        self._inferred: InferredColumns | None = None

    async def open(self, context: SinkContext) -> None:
        """Open the folder.

        Raises: ConfigurationError if the folder cannot be written, or if an archive would have deserialized values instead of payloads;
        StateError if the folder has positions of an earlier version; ImportError if columns are inferred and pyarrow is not installed.
        """
        if self.keeps_archive and context.value_type not in (None, bytes):
            raise _no_archive_of_values()
        await super().open(context)
        if context.value_type is InferColumns:
            try:
                from recordpublisher.plugins.columns.file_columns import no_columns
            except ImportError as error:
                raise ImportError(f"INFER needs the extra 'parquet': {install_command('parquet')}") from error
            self._inferred = await self._folder().inferred(no_columns(), None, may_change=True)

    def _folder(self) -> "Folder":
        from .folder_schema import Folder  # loads pyarrow, which only inferred columns need

        return Folder(self.entries(), self._key, self._path, [])

    async def learn(self, contents: Sequence[Any]) -> None:
        """Store the types of the fields in `contents` that no file of the folder has yet, if types are inferred."""
        if self._inferred is not None:
            seen = await asyncio.to_thread(self._inferred.unknown, contents)
            if seen is not None:
                grown = await self._folder().inferred(self._inferred, seen, may_change=True)
                grown.log_change(self._path, self._inferred)
                self._inferred = grown

    def prepare(self, batch: RecordBatch) -> tuple[Any, int]:
        """Return the batch, and its bytes in memory.

        Raises: ConfigurationError if the sink writes an archive and the batch has deserialized values. An archive must have the payloads.
        """
        if self.keeps_archive and batch.decoded is not None:  # The type of a function's values is not known before.
            raise _no_archive_of_values()
        return super().prepare(batch)

    def file_writers(
        self, contents: Sequence[RecordBatch], rejected: list[RejectedRecord]
    ) -> Mapping[str, Callable[[Path], None]]:
        """Return under the key `""` a function that writes a line for each valid record. Return {} if no record is valid.

        Records with values that JSON cannot represent are not valid, and are added to `rejected`.
        """
        lines: list[bytes] = []
        for batch in contents if self._inferred is None else self._inferred.fitting(contents, rejected):
            fields_of = record_as_json if batch.decoded is None else _with_value
            for index, record in enumerate(batch):
                try:
                    line = msgspec.json.encode(fields := fields_of(record), enc_hook=fields_of_model)
                    if line.count(b"null") > (fields["eventTime"] is None):  # msgspec writes NaN and Infinity as null
                        json.dumps(msgspec.to_builtins(fields, enc_hook=fields_of_model), allow_nan=False)
                    lines.append(line)
                except (TypeError, ValueError, OverflowError, RecursionError) as error:
                    rejected.append((batch.slice(index, index + 1), describe_error(error)))
        return {"": partial(write_lines, b"\n".join([*lines, b""]))} if lines else {}


def _no_archive_of_values() -> ConfigurationError:
    reason = (
        "with a deserializer the jsonl sink writes 'value' instead of 'data', which an archive needs; leave the deserializer out, "
        "or use parquet"
    )
    return ConfigurationError(ARCHIVE.key, "true", reason=reason)


def write_lines(lines: bytes, path: Path) -> None:
    """Write lines to a file. Each line includes its line end."""
    path.write_bytes(lines)


def lines_of(path: Path) -> list[bytes]:
    """Return the lines of a file that `write_lines` wrote, each with its line end."""
    return path.read_bytes().splitlines(keepends=True)


def _with_value(record: Record) -> dict[str, Any]:
    return {**record_metadata(record), "eventTime": record.event_time, "value": with_all_fields(record.value)}


def record_as_json(record: Record) -> dict[str, Any]:
    """Return a record with its payload as text. A payload that is not UTF-8 is in base64, with `"base64": true`."""
    fields = {**record_metadata(record), "eventTime": record.event_time}
    try:
        return fields | {"data": record.data.decode()}
    except UnicodeDecodeError:
        return fields | {"data": base64.b64encode(record.data).decode(), "base64": True}


def record_metadata(record: Record) -> dict[str, Any]:
    """Return the metadata of a record. Only sub-records of aggregates, and rows from Spark, have an explicit hash key."""
    keys = {} if record.explicit_hash_key is None else {"explicitHashKey": record.explicit_hash_key}
    return {
        "stream": record.stream,
        "shardId": record.shard_id,
        "sequenceNumber": record.sequence_number,
        "subSequenceNumber": record.sub_sequence_number,
        "partitionKey": record.partition_key,
        **keys,
        "approximateArrivalTimestamp": record.approximate_arrival_timestamp.isoformat(timespec="milliseconds"),
    }
