"""Decides which rows go into the same file, by time or by field, as `flink.sink.partitions` says."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.job_properties import SCHEMA
from recordpublisher.publishers.properties.sink_properties import PARTITIONS
from recordpublisher.publishers.safe_text import few_of

from .record_fields import DATA

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""The folder of rows without a value, as Hive and Spark name it."""
_PART = re.compile(r"(?P<name>[A-Za-z_]\w*)=\{(?P<column>\w+(\.\w+)*)(:(?P<form>(%[YmdHj]|[-_. ])+))?\}")
_VALID = "folders such as dt={eventTime:%Y-%m-%d}/hour={eventTime:%H}/item={item}/country={address.country}"
_UNITS = {"%H": "hour", "%d": "day", "%j": "day", "%m": "month", "%Y": "year"}
"""The unit of time that each directive of a time format needs, the smallest unit first."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_FIRST, _LAST = (pa.scalar(time.replace(tzinfo=UTC)) for time in (datetime.min, datetime.max))
"""The first and the last time that a datetime of Python can have. A row with another time counts as one without a value."""
_ESCAPED = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")
"""Characters that are escaped in names of folders. Hive and Spark escape the same ones.

An umlaut is not escaped, because Spark would read each of its escaped bytes as a character.
"""


class Partitions:
    """The parts of the pattern `flink.sink.partitions`. They decide the partition of each row.

    Times are truncated to their unit in UTC.
    """

    def __init__(self, pattern: str | None) -> None:
        """Parse the pattern. Raises: ConfigurationError if a part is malformed or renames a field, or if two parts have the same name."""
        self.parts: list[PartitionPart] = []
        for text in pattern.split("/") if pattern else ():
            found = _PART.fullmatch(text)
            part = None if found is None else PartitionPart(found["name"], found["column"], found["form"])
            is_renamed = part is not None and not part.is_derived and part.name != part.column
            if part is None or is_renamed or part.name in self.names:
                reason = (
                    f"{text!r} is not name={{time:%Y-%m-%d}}, field={{field}} or name={{object.field}}, each name once"
                )
                if part is not None and is_renamed:
                    reason = (
                        f"{text!r}: the folder of a field must have the field's name: {part.column}={{{part.column}}}"
                    )
                raise ConfigurationError(PARTITIONS.key, pattern, _VALID, reason=reason)
            self.parts.append(part)

    @property
    def names(self) -> list[str]:
        """The names of the parts."""
        return [part.name for part in self.parts]

    def check(self, schema: pa.Schema) -> None:
        """Check that rows with these columns can be partitioned.

        Raises: ConfigurationError if a column is missing or of the wrong type, or if a column has the name of a derived part.
        """
        for part in self.parts:
            kind = type_at(schema, part.column)
            fits = pa.types.is_timestamp if part.form else _is_plain
            if kind is None or not fits(kind):
                what = f"has the type {kind}" if kind else "is not a column"
                which = "a time" if part.form else "a text, a whole number, a boolean or a date"
                names = few_of([path for path, kind in _paths(schema) if fits(kind)])
                reason = f"{part.column!r} {what}; it must be {which}: {names}"
                if kind is None and DATA in schema.names:
                    reason += f"; fields of the payload are columns only with {SCHEMA.key}, such as INFER"
                raise ConfigurationError(PARTITIONS.key, part.column, _VALID, reason=reason)
            if part.is_derived and part.name.lower() in map(str.lower, schema.names):
                reason = f"the rows have a column {part.name!r}"
                raise ConfigurationError(PARTITIONS.key, part.name, _VALID, reason=reason)

    @property
    def derived_names(self) -> list[str]:
        """The names of the parts whose values are computed from a column, because the rows have no column of that name."""
        return [part.name for part in self.parts if part.is_derived]

    def types_by_path(self) -> dict[str, Sequence[str]]:
        """Return, for inferred columns, the allowed types of each field that the pattern uses, by the field's path.

        The first type is used until values show another one.
        """
        return {part.column: ("TIMESTAMP",) if part.form else ("STRING", "BIGINT", "BOOLEAN") for part in self.parts}

    def derived_columns(self, schema: pa.Schema) -> list[pa.Field]:
        """Return the partition columns that a table needs in addition to the columns `schema` of the rows."""
        derived = [part for part in self.parts if part.is_derived]
        return [pa.field(part.name, pa.string() if part.form else type_at(schema, part.column)) for part in derived]

    def columns_of_files(self, schema: pa.Schema) -> pa.Schema:
        """Return the columns that files have: all but the partition columns.

        The values of partition columns are in the names of folders, or in the table's log.
        """
        return pa.schema([field for field in schema if field.name not in self.names])

    def check_values(self, rows: pa.RecordBatch, longest: int, together: int) -> None:
        """Check that the folder of each row has a valid length (bytes).

        - `longest`: the limit of one folder's name.
        - `together`: the limit of the whole path of folders.

        Raises: ValueError if a name or a path is too long.
        """
        columns = [_column_at(rows, part.column) for part in self.parts]
        texts = [column for column in columns if pa.types.is_string(column.type)]
        sizes = (pc.max(pc.binary_length(text)).as_py() or 0 for text in texts)
        # Escaping makes a text at most three times as long. So most rows pass this estimate, and are not checked one by one.
        if not texts or 3 * sum(sizes) + sum(len(name) + 40 for name in self.names) <= min(longest, together):
            return
        for folder in {partition.folder for partition in self.split(rows)}:
            name = max(folder.split("/"), key=lambda name: len(name.encode()))
            size, most = len(name.encode()), longest
            if size <= longest:
                size, most = len(folder.encode()), together
            if size > most:
                raise ValueError(
                    f"the value of {name.partition('=')[0]!r} is too long for {PARTITIONS.key}: {name[:40]}... has {size} bytes, at most "
                    f"{most} are valid. Remove the field from {PARTITIONS.key}, or let the producer send shorter values"
                )

    def split(self, rows: pa.RecordBatch) -> Iterator[Partition]:
        """Yield the rows of each partition, in their order."""
        if not self.parts:
            yield Partition({}, rows)
            return
        keys = [_keys(_column_at(rows, part.column), part.unit) for part in self.parts]
        numbers = _numbered(keys)
        for number in numbers.unique():
            first = numbers.index(number).as_py()
            values = {part.name: _value(part, key[first]) for part, key in zip(self.parts, keys, strict=True)}
            yield Partition(values, rows.filter(pc.equal(numbers, number)))


class Partition(NamedTuple):
    """Rows of one partition, with the value of each part by its name. A value is None if the rows have none."""

    values: Mapping[str, Any]
    rows: pa.RecordBatch

    @property
    def folder(self) -> str:
        """The path of the partition's folder, such as `dt=2026-11-25/hour=14`; empty without parts."""
        return "/".join(f"{name}={_folder_name(value)}" for name, value in self.texts.items())

    @property
    def texts(self) -> Mapping[str, str | None]:
        """The values as text, for names of folders and for the log of a Delta table.

        An empty text becomes None, because neither readers of folders nor Delta can express it.
        """
        return {name: _text(value) for name, value in self.values.items()}


class PartitionPart(NamedTuple):
    """One level of the pattern of partitions: its name, the column that its values come from, and the format of a time.

    `form` is None if the value of a field is used as it is. `column` may be the path of a field inside objects, such as
    `address.country`.
    """

    name: str
    column: str
    form: str | None

    @property
    def is_derived(self) -> bool:
        """Whether the values are computed, because no column of the rows has them: the text of a time, or a field inside an object."""
        return self.form is not None or "." in self.column

    @property
    def unit(self) -> str | None:
        """The smallest unit of time in the format: hour, day, month or year; None for a field."""
        return next((unit for code, unit in _UNITS.items() if code in self.form), None) if self.form else None


def type_at(schema: pa.Schema, path: str) -> pa.DataType | None:
    """Return the type of a column, or of the field at a path inside objects; None if there is no such field."""
    return dict(_paths(schema)).get(path)


def _paths(fields: Iterable[pa.Field], inside: str = "") -> Iterator[tuple[str, pa.DataType]]:
    for field in fields:
        yield inside + field.name, field.type
        if pa.types.is_struct(field.type):
            parts = [field.type.field(index) for index in range(field.type.num_fields)]
            yield from _paths(parts, f"{inside}{field.name}.")


def _column_at(rows: pa.RecordBatch, path: str) -> pa.Array:
    """Return the values at a path. A value is null if an object on the path is null."""
    name, *names = path.split(".")
    return pc.struct_field(rows.column(name), names) if names else rows.column(name)


def _numbered(keys: Sequence[pa.Array]) -> pa.Array:
    """Return a number for each row. Rows have the same number if all of their keys are equal."""
    numbers = None
    for key in keys:
        encoded = key.dictionary_encode(null_encoding="encode")
        own = encoded.indices.cast(pa.int64())
        numbers = own if numbers is None else pc.add(pc.multiply(numbers, len(encoded.dictionary)), own)
    return numbers


def within_datetime_range(times: pa.Array) -> pa.Array:
    """Return for each time whether a datetime can represent it: in UTC, it must be in the years 1 to 9999."""
    return pc.and_(pc.greater_equal(times, _FIRST), pc.less_equal(times, _LAST))


def _keys(column: pa.Array, unit: str | None) -> pa.Array:
    """Return the partition key of each row: the value, or the time truncated to `unit`. Rows of one partition have the same key."""
    if unit is None:
        return column
    return pc.floor_temporal(pc.if_else(within_datetime_range(column), column, pa.scalar(None, column.type)), unit=unit)


def _value(part: PartitionPart, key: Any) -> Any:
    if not key.is_valid or part.form is None:
        return key.as_py()
    time = _EPOCH + timedelta(microseconds=key.cast(pa.timestamp("us", "UTC")).value)
    return time.strftime(part.form.replace("%Y", f"{time.year:04}"))  # Not every platform pads the year in strftime.


def _is_plain(kind: Any) -> bool:
    types = pa.types
    return any(is_kind(kind) for is_kind in (types.is_string, types.is_integer, types.is_boolean, types.is_date))


def _text(value: Any) -> str | None:
    if value is None or value == "":
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _folder_name(text: str | None) -> str:
    return NO_VALUE if text is None else _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)
