"""`rp.read_arrow`, `rp.read_polars` and `rp.read_pandas`: read a part of streams as a data frame."""

from __future__ import annotations  # The reference and help() show types by their names.

import logging
import math
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing, closing
from datetime import datetime, timedelta
from importlib.util import find_spec
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any, Unpack

from recordpublisher.consumer.deserialization import Deserializer, DeserializerArgument
from recordpublisher.fetcher.checkpoints.snapshot_format import merge_snapshots
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.sink import State
from recordpublisher.install_commands import install_command
from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import ConfigurationError, DeserializationError
from recordpublisher.publishers.initial_position import (
    check_end_time,
    initial_position,
    named_start,
    refuse_future,
    time_ms,
)
from recordpublisher.publishers.positions import PositionType
from recordpublisher.publishers.properties.job_properties import (
    DESERIALIZER,
    ON_BAD_RECORD,
    SCHEMA,
    TIMESTAMP_FIELD,
    OnBadRecord,
)
from recordpublisher.publishers.properties.keyword_types import ReadSettings
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import INITIAL_POSITION
from recordpublisher.publishers.properties.times_and_sizes import iso_time
from recordpublisher.publishers.records import Record, RecordBatch

from ..deserializers.schemas import is_inferred
from .argument_checks import checked_properties, chosen_deserializer, value_type_made_by
from .background_loop import EarlyEnd
from .stream_and_consume import in_background, stream, without_job_identity
from .stream_names import StreamsArgument

try:
    import pyarrow as pa
    from pyarrow import json
except ImportError as error:
    raise ImportError(
        f"rp.read_arrow needs the extra 'arrow': {install_command('arrow')}; rp.read_pandas needs pandas too: pip install pandas; "
        f"rp.read_polars needs the extra 'polars': {install_command('polars')}"
    ) from error

from recordpublisher.plugins.columns.record_fields import DATA

from ..columns.file_columns import FileColumns, no_columns
from ..columns.record_columns import RECORD_SCHEMA
from ..columns.typed_columns import CheckedValues, FrameColumns, NullFields, frame_columns

if TYPE_CHECKING:
    import pandas
    import polars

log = logging.getLogger("recordpublisher.frames")
EventTimes = tuple[datetime | str | float | None, datetime | str | float | None]
_VALID_START = "TRIM_HORIZON (or earliest), an age such as 1h, a time with a zone, or a snapshot"
_VALID_END = "NOW, a time with a zone, or a snapshot"
ROWS_PER_BATCH = 20_000
BYTES_PER_BATCH = 16 * 2**20
"""An Arrow batch is complete when its records hold this much memory (bytes), even if it has fewer rows."""
MOST_LEVELS = 64
"""How many levels of arrays and objects a column may have. Polars took minutes for 700 levels, and ended the process at 900."""


def read_arrow(
    streams: StreamsArgument,
    properties: Mapping[str, object] | None = None,
    *,
    start: datetime | timedelta | str | float | State | None = None,
    end: datetime | str | float | State | None = None,
    event_times: EventTimes = (None, None),
    columns: Sequence[str] | None = None,
    metadata: bool = True,
    deserializer: DeserializerArgument[Any] | None = None,
    timestamp_assigner: Callable[[Record], int] | None = None,
    **settings: Unpack[ReadSettings],
) -> pa.RecordBatchReader:
    """Return a part of streams as Arrow batches. Records are read as the batches are taken.

    Example: `rp.read_arrow("orders", start="2026-11-26T06:00:00Z")`. Nothing is stored.

    - `start`: TRIM_HORIZON (the default: the oldest record), an age (`"1h"` or a timedelta), a time (a datetime or ISO-8601 with a zone, or
      epoch seconds), or a snapshot of a job. The read begins after the positions in the snapshot.
    - `end`: NOW (the default: the tip), a time, or a snapshot. Each shard is read until its first record at or after the time, or up to its
      position in the snapshot.
    - `event_times`: a pair of times, either of which may be None for no limit. Only records with an event time from the first up to, but
      not including, the second are returned.
    - `columns`: the names of the columns, in their order. `metadata=False` leaves out the columns of the metadata.
    - `deserializer`: a type. Its fields become columns, followed by the metadata; a nested object becomes a struct. Without a type the
      columns are the same as in Spark, with the payload as `data`. A function or `json` adds the column `value`, with the value as JSON.

    At most 20,000 rows or 16 MiB of records wait for the next batch. `close` the reader to end early. With the schema INFER everything is
    read at once into memory, because the columns are those of all records. Needs the extra `arrow`.

    Raises: ConfigurationError at once, even if a field has no Arrow type or a column is unknown; other errors while batches are taken.
    """
    # 1. Check the properties, and decide which columns the values have, so that a mistake is found before anything is read.
    given = checked_properties(properties, settings, read_arrow, deserializer=deserializer)
    _refuse_job_identity(settings)
    given = without_job_identity(given).merged(Properties(**settings)).merged(_start_properties(start, given))
    chosen = chosen_deserializer(load_registry(), given, deserializer)
    is_checked = given.value(ON_BAD_RECORD) != OnBadRecord.FAIL.name
    made = None if is_inferred(given) else _columns_of(chosen)
    names = [] if made is None else _chosen_names(made.schema.names, columns, () if metadata else made.metadata.names)
    begin, until_ms = _event_times_ms(event_times)
    # 2. Read the streams up to the tip, or to a time. A record is also bad if its value does not fit into its column.
    batches: AsyncGenerator[RecordBatch, None] = stream(
        streams,
        given.merged({SCHEMA.key: None}),  # The deserializer `chosen` has this schema already.
        deserializer=CheckedValues(chosen, made) if made is not None and is_checked else chosen,
        timestamp_assigner=timestamp_assigner,
        restore=start if isinstance(start, Mapping) else None,
        until_event_time=None if end is None or isinstance(end, Mapping) else _end_ms(end, given, timestamp_assigner),
        stop_at_tip=True,
        **_chosen_source(settings),
    )
    # 3. Leave out the records after the positions of a snapshot, and those outside the event times.
    if isinstance(end, Mapping):
        batches = records_until(batches, merge_snapshots([end]).shards)
    if begin is not None or until_ms is not None:
        batches = records_within(
            batches, -math.inf if begin is None else begin, math.inf if until_ms is None else until_ms
        )
    # 4. Return a reader, which makes Arrow batches of a good size as they are taken.
    if made is None:
        return _inferred_reader(batches, columns, metadata, may_skip=is_checked)
    schema = pa.schema([made.schema.field(name) for name in names])
    early_end = EarlyEnd()
    fields = [] if DATA in made.schema.names else [name for name in names if name not in made.metadata.names]
    read = _arrow_batches(grouped_batches(batches), made, names, NullFields(fields), early_end)
    return StreamReader(schema, read, early_end)


def read_polars(
    streams: StreamsArgument,
    properties: Mapping[str, object] | None = None,
    *,
    start: datetime | timedelta | str | float | State | None = None,
    end: datetime | str | float | State | None = None,
    event_times: EventTimes = (None, None),
    columns: Sequence[str] | None = None,
    metadata: bool = True,
    deserializer: DeserializerArgument[Any] | None = None,
    timestamp_assigner: Callable[[Record], int] | None = None,
    **settings: Unpack[ReadSettings],
) -> polars.DataFrame:
    """Return a part of streams as a DataFrame of polars, in memory. Takes the arguments of `read_arrow`. Needs the extra `polars`.

    With `deserializer="json"` the fields are columns if every value is an object and each field has one type in all of them. Arrow finds
    the types: an integer above 2^63, or one in a column with fractions, is rounded to a double. A type, such as `deserializer=Order`, is
    exact.

    Raises: the errors of `read_arrow`; ImportError if polars is not installed.
    """
    try:
        import polars
    except ImportError as error:
        raise ImportError(f"rp.read_polars needs the extra 'polars': {install_command('polars')}") from error
    table = _read_table(
        streams,
        properties,
        columns,
        metadata,
        start=start,
        end=end,
        event_times=event_times,
        deserializer=deserializer,
        timestamp_assigner=timestamp_assigner,
        **settings,
    )
    frame = polars.from_arrow(table, rechunk=False)
    assert isinstance(frame, polars.DataFrame)
    return frame


def read_pandas(
    streams: StreamsArgument,
    properties: Mapping[str, object] | None = None,
    *,
    start: datetime | timedelta | str | float | State | None = None,
    end: datetime | str | float | State | None = None,
    event_times: EventTimes = (None, None),
    columns: Sequence[str] | None = None,
    metadata: bool = True,
    deserializer: DeserializerArgument[Any] | None = None,
    timestamp_assigner: Callable[[Record], int] | None = None,
    **settings: Unpack[ReadSettings],
) -> pandas.DataFrame:
    """Return a part of streams as a DataFrame of pandas, in memory, like `read_polars`. Needs the extra `arrow`, and pandas.

    Raises: the errors of `read_arrow`; ImportError if pandas is not installed.
    """
    if find_spec("pandas") is None:
        raise ImportError("rp.read_pandas needs pandas: pip install pandas")
    table = _read_table(
        streams,
        properties,
        columns,
        metadata,
        start=start,
        end=end,
        event_times=event_times,
        deserializer=deserializer,
        timestamp_assigner=timestamp_assigner,
        **settings,
    )
    return table.to_pandas()


def _inferred_reader(
    batches: AsyncGenerator[RecordBatch, None], columns: Sequence[str] | None, metadata: bool, *, may_skip: bool
) -> StreamReader:
    """Read everything, and return a reader of the columns that were inferred from all records together.

    Raises: DeserializationError if a record does not fit the columns and `may_skip` is False; the errors of the read.
    """
    with closing(in_background("rp.read_arrow", grouped_batches(batches))) as waiting:
        groups = list(waiting)
    made, rejected = no_columns(), list[tuple[RecordBatch, str]]()
    if (seen := made.unknown([batch for group in groups for batch in group])) is not None:
        made = made.grown_by(seen, pa.schema([]))
    parts = [rows for group in groups for rows in made.rows(group, rejected)]
    for record, reason in rejected:
        if not may_skip:
            raise DeserializationError(record.stream, record.shard_id, record.sequence_numbers[0], reason)
        log.warning("record %s of %s was skipped: %s", record.sequence_numbers[0], record.shard.key, reason)
    schema = made.schema
    if not parts and not isinstance(columns, str):  # Without any record there is no JSON object that shows the fields.
        schema = pa.schema(
            [*schema, *(pa.field(name, pa.null()) for name in columns or () if name not in schema.names)]
        )
    names = _chosen_names(schema.names, columns, () if metadata else made.metadata.names)
    return StreamReader(pa.schema(map(schema.field, names)), (rows.select(names) for rows in parts))


def _read_table(
    streams: StreamsArgument,
    properties: Mapping[str, object] | None,
    columns: Sequence[str] | None,
    metadata: bool,
    **arguments: Any,
) -> pa.Table:
    """Read everything. With JSON, the fields of the objects are columns instead of `data` and `value`."""
    given = checked_properties(properties, {}, read_arrow)
    kind = arguments["deserializer"] or given.value(DESERIALIZER)
    if str(kind).lower() != "json" or given.is_set(SCHEMA) or "deserializer_schema" in arguments:
        with read_arrow(streams, properties, columns=columns, metadata=metadata, **arguments) as reader:
            return reader.read_all()
    with read_arrow(streams, properties, **arguments) as reader:
        table, fields = _with_json_fields(reader.read_all())
    left_out = () if metadata else [name for name in RECORD_SCHEMA.names if name not in fields]
    # Without any record there is no JSON object that shows the fields, so the chosen columns are added.
    if not table.num_rows and not isinstance(columns, str):
        for name in [name for name in columns or () if name not in table.column_names]:
            table = table.append_column(name, pa.nulls(0))
    return table.select(_chosen_names(table.column_names, columns, left_out))


def _with_json_fields(table: pa.Table) -> tuple[pa.Table, list[str]]:
    """Return the table with the fields of the objects in `value` instead of `value` and `data`, and the names of the fields."""
    values = table["value"].to_pylist()
    # pyarrow's parser would crash the process at the value `null`.
    if not all(value.startswith("{") for value in values):
        return table, []
    texts = "\n".join(values).encode()
    try:
        fields = json.read_json(pa.BufferReader(texts), json.ReadOptions(block_size=len(texts) + 1))
    except pa.ArrowInvalid:  # There is no object, or a field has several types.
        return table, []
    if any(map(_is_deep, fields.schema.types)):
        return table, []
    rest = table.drop_columns([name for name in table.column_names if name in {DATA, "value", *fields.column_names}])
    named = zip([*fields.column_names, *rest.column_names], [*fields.columns, *rest.columns], strict=True)
    return pa.table(dict(named)), fields.column_names


def _is_deep(of: pa.DataType) -> bool:
    """Return whether a type is nested so deep that native code with recursion may crash the process."""
    level = [of]
    for _ in range(MOST_LEVELS):
        level = [kind.field(place).type for kind in level for place in range(kind.num_fields)]
    return bool(level)


def _chosen_names(names: Sequence[str], columns: Sequence[str] | None, left_out: Collection[str]) -> list[str]:
    """Return the names of the frame's columns: `columns`, or by default `names` without those in `left_out`.

    Raises: ConfigurationError if a column does not exist, or if `columns` is a text.
    """
    if columns is None:
        return [name for name in names if name == DATA or name not in left_out]
    chosen = [columns] if isinstance(columns, str) else list(columns)
    unknown = [name for name in chosen if name not in names]
    if isinstance(columns, str) or unknown:
        # Without a type or a schema the fields are inside the payload.
        reason = "deserializer= or deserializer_schema= makes columns of the fields"
        if not (DATA in names and unknown):
            reason = "there is no such column" if unknown else "a text is not a list of names"
        raise ConfigurationError("columns", (unknown or chosen)[0], f"a list of {', '.join(names)}", reason=reason)
    return chosen


def _columns_of(values: Deserializer[Any]) -> FrameColumns | FileColumns:
    """Return a column for each field of the type that the deserializer makes.

    If the deserializer is a function, `json` or `avro`, there is one column with the value as JSON text, next to the payload.
    """
    made = value_type_made_by(values)
    if made is bytes:
        return frame_columns()
    return frame_columns(made) if made is str or getattr(values, "into", None) is not None else FileColumns()


def _start_properties(start: datetime | timedelta | str | float | State | None, given: Properties) -> dict[str, object]:
    """Return the properties of the start. Shards that a snapshot does not have are read from their oldest record.

    Raises: ConfigurationError if the start is invalid, at the tip, or in the future.
    """
    if isinstance(start, Mapping) or (start is None and not given.is_set(INITIAL_POSITION)):
        return {INITIAL_POSITION.key: PositionType.TRIM_HORIZON}
    at = initial_position(given) if start is None else named_start("start", start, _VALID_START)
    if at.is_tip:
        raise ConfigurationError(
            "start", at.type, _VALID_START, reason="the read ends at the tip, so a start there reads nothing"
        )
    if at.timestamp_ms is not None:
        refuse_future("start", at.timestamp_ms, SystemClock().now_ms())
    return {} if start is None else {INITIAL_POSITION.key: start}


def _end_ms(
    end: datetime | str | float, given: Properties, timestamp_assigner: Callable[[Record], int] | None
) -> int | None:
    """Return the last event time that the read includes (epoch ms), or None for NOW.

    Raises: ConfigurationError if the end is invalid, in the future, or before the start.
    """
    if isinstance(end, str) and end.upper() == "NOW":
        return None
    at, now_ms = time_ms("end", end, _VALID_END), SystemClock().now_ms()
    is_arrival = timestamp_assigner is None and not given.is_set(TIMESTAMP_FIELD)
    start_ms = initial_position(given).pinned_at(now_ms).timestamp_ms if is_arrival else None
    check_end_time("end", iso_time(at), at, start_ms=start_ms, now_ms=now_ms, clock="this machine's clock")
    return at - 1


def _chosen_source(settings: ReadSettings) -> ReadSettings:
    """Return the arguments that choose the publisher. `stream` must get them as arguments, because it ignores EFO in a mapping."""
    chosen: ReadSettings = {}
    if "publisher" in settings:
        chosen["publisher"] = settings["publisher"]
    if "archive_live" in settings:
        chosen["archive_live"] = settings["archive_live"]
    return chosen


def _refuse_job_identity(settings: ReadSettings) -> None:
    """Raise ConfigurationError if an argument asks for a job, because these functions do not act as one.

    The same properties in the mapping are ignored, because they are settings of the job whose mapping it is.
    """
    for name in ("state_uri", "job_workers"):
        if settings.get(name) is not None:
            reason = (
                "a frame is not a job: no positions are stored. To read a part of a stream, use start= and end=; to continue where the "
                "last call ended, use rp.stream or rp.consume with state_uri="
            )
            raise ConfigurationError(name, reason=reason)


def _event_times_ms(given: EventTimes) -> tuple[int | None, int | None]:
    """Return begin and end of the range of event times (epoch ms); None for an open end.

    Raises: ConfigurationError if `given` is not a pair, if one of the two is neither a time nor None, or if the end is before the begin.
    """
    if not isinstance(given, Sequence) or isinstance(given, str) or len(given) != 2:
        raise ConfigurationError("event_times", given, "a pair of times, each of which may be None")
    begin, end = (None if at is None else time_ms("event_times", at) for at in given)
    if end is not None:
        check_end_time("event_times", given, end, start_ms=begin)
    return begin, end


def _arrow_batches(
    groups: AsyncGenerator[list[RecordBatch], None],
    made: FrameColumns | FileColumns,
    names: list[str],
    null_fields: NullFields,
    early_end: EarlyEnd,
) -> Generator[pa.RecordBatch, None, None]:
    with closing(in_background("rp.read_arrow", groups, early_end)) as waiting:
        for group in waiting:
            rows = made.batch(*group)
            null_fields.look_at(rows)
            yield rows.select(names)
    null_fields.tell()


# --- which records, and how many in a batch ---------------------------------------------------------------------------------------


async def records_until(
    batches: AsyncGenerator[RecordBatch, None], ends: Mapping[str, ShardState]
) -> AsyncGenerator[RecordBatch, None]:
    """Yield the records up to the positions in `ends`, by `Shard.key`. End the read when it has passed all of them.

    A shard that has ended in `ends` is never passed, because no record follows its position. Then a bound of the caller ends the read.
    """
    waited_for = set(ends)
    async with aclosing(batches):
        async for batch in batches:
            key = batch.shard.key
            count = _rows_until(batch, ends[key]) if key in ends else 0
            if count:
                yield batch.slice(0, count)
            if count < len(batch) and key in waited_for:
                waited_for.remove(key)
                if not waited_for:
                    return


def _rows_until(batch: RecordBatch, end: ShardState) -> int:
    if end.ended or end.position is None:
        return len(batch) if end.ended else 0
    last = int(end.position.sequence), end.position.sub_sequence if end.position.is_inside_aggregate else math.inf
    numbers = zip(map(int, batch.sequence_numbers), batch.sub_sequence_numbers, strict=True)
    return next((place for place, number in enumerate(numbers) if number > last), len(batch))


async def records_within(
    batches: AsyncGenerator[RecordBatch, None], begin_ms: float, end_ms: float
) -> AsyncGenerator[RecordBatch, None]:
    """Yield the records whose event time is at least `begin_ms` and below `end_ms` (epoch ms)."""
    async with aclosing(batches):
        async for batch in batches:
            chosen = [begin_ms <= time < end_ms for time in batch.event_time_column]
            place = 0
            for is_chosen, run in groupby(chosen):
                first, place = place, place + len([*run])
                if is_chosen:
                    yield batch.slice(first, place)


async def grouped_batches(batches: AsyncGenerator[RecordBatch, None]) -> AsyncGenerator[list[RecordBatch], None]:
    """Yield groups of batches that are large enough for columns of a good size."""
    group: list[RecordBatch] = []
    async with aclosing(batches):
        async for batch in batches:
            group += [batch] if len(batch) else []
            held_bytes = sum(waiting.held_bytes for waiting in group)
            if sum(map(len, group)) >= ROWS_PER_BATCH or held_bytes >= BYTES_PER_BATCH:
                yield group
                group = []
        if group:
            yield group


# --- the reader that the caller gets -------------------------------------------------------------------------------------------------


class StreamReader(pa.ipc.RecordBatchStreamReader):  # type: ignore[misc] # pyarrow is not typed
    """A reader of Arrow batches that owns the read of the streams. When it is closed, it ends that read.

    `RecordBatchReader.from_batches` would not close the generator that it reads from. A reader that is passed through the C interface would
    lose the class of an error. Therefore the batches are passed through the IPC format, in memory, which copies them once.
    """

    def __init__(
        self, schema: pa.Schema, batches: Generator[pa.RecordBatch, None, None], early_end: EarlyEnd | None = None
    ) -> None:
        self._batches, self._early_end = batches, early_end or EarlyEnd()
        super().__init__(_Messages(schema, batches))

    def close(self) -> None:
        """Stop the read, and wait until everything is closed. Later calls return no batch. Any thread may call this."""
        self._early_end.close(self._batches)


class _Messages:
    """A file-like object with a schema and batches in the IPC format. A read returns at most the rest of the current message."""

    closed = False

    def __init__(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        self._parts = chain([schema], batches)
        self._left = memoryview(b"")

    def read(self, size: int) -> memoryview:
        if not self._left:
            part = next(self._parts, None)
            self._left = memoryview(b"" if part is None else part.serialize())
        read, self._left = self._left[:size], self._left[size:]
        return read
