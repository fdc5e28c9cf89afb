"""`rp.read_arrow` and `rp.read_polars`: a part of streams as a frame."""

from __future__ import annotations  # the reference and help() show types by their names

from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack

from recordpublisher.consumer.deserialization import Deserializer, DeserializerArgument, PreparedDeserializer
from recordpublisher.extras import install_command
from recordpublisher.fetcher.checkpoints.snapshot import merge_snapshots
from recordpublisher.fetcher.sink import State
from recordpublisher.plugins.host.manager import load_registry
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.initial_position import check_end, initial_position, refuse_future, time_ms
from recordpublisher.publishers.positions import PositionType
from recordpublisher.publishers.properties.generated.settings import ReadSettings
from recordpublisher.publishers.properties.groups.bad_records import ON_BAD_RECORD, OnBadRecord
from recordpublisher.publishers.properties.groups.discovery_and_state import SHARD_ASSIGNMENT, STATE_URI
from recordpublisher.publishers.properties.groups.publisher import INITIAL_POSITION
from recordpublisher.publishers.properties.groups.values_and_time import TIMESTAMP_FIELD
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.times import iso_time
from recordpublisher.publishers.records import Record, RecordBatch

from ..arguments import checked_properties
from ..batch_decoration import chosen_deserializer, made_type
from ..stream_names import StreamsArgument
from ..streaming import in_background, stream

try:
    import pyarrow as pa
except ImportError as error:
    raise ImportError(
        f"rp.read_arrow needs the extra 'arrow', rp.read_polars 'polars': {install_command('polars')}"
    ) from error

from recordpublisher.plugins.columns.file_columns import FileColumns
from recordpublisher.plugins.columns.frame_columns import FrameColumns, frame_columns

from .batch_groups import grouped, until
from .stream_reader import StreamReader

if TYPE_CHECKING:
    import polars

_VALID_START = "TRIM_HORIZON, a time with a zone, or a snapshot"
_VALID_END = "NOW, a time with a zone, or a snapshot"


def read_arrow(
    streams: StreamsArgument,
    properties: Mapping[str, object] | None = None,
    *,
    start: datetime | str | float | State | None = None,
    end: datetime | str | float | State | None = None,
    deserializer: DeserializerArgument[Any] | None = None,
    timestamp_assigner: Callable[[Record], int] | None = None,
    **settings: Unpack[ReadSettings],
) -> pa.RecordBatchReader:
    """A part of streams as Arrow batches, which are read while they are taken: `rp.read_arrow("orders", start="2026-11-26T06:00:00Z")`.

    `start` is TRIM_HORIZON (the default: the oldest record), a time (a datetime or ISO-8601 with a zone, or epoch seconds), or a snapshot
    of a job, after whose positions it begins. `end` is NOW (the default: the tip), a time, before whose first record in each shard it
    ends, or a snapshot, whose positions are the last. Nothing is stored.

    With a type as `deserializer` the fields are columns, objects in them structs, and the metadata follows; without one the columns are
    those of Spark, with the payload as `data`; what a function or `json` makes follows as `value`, in JSON. At most 20,000 rows or 16 MiB
    of records wait for the next batch. To end early, `close` the reader. Needs the extra `arrow`. `.read_pandas()` makes a DataFrame of
    pandas.

    Raises: ConfigurationError at once, also for a field without an Arrow type; other errors while batches are taken.
    """
    given = checked_properties(properties, settings, read_arrow, deserializer=deserializer)
    given = given.merged({STATE_URI.key: None, SHARD_ASSIGNMENT.key: None, **_start_properties(start, given)})
    chosen = chosen_deserializer(load_registry(), given, deserializer)
    columns = _columns_of(chosen)
    batches: AsyncGenerator[RecordBatch, None] = stream(
        streams,
        given,
        deserializer=chosen if given.value(ON_BAD_RECORD) == OnBadRecord.FAIL.name else _CheckedValues(chosen, columns),
        timestamp_assigner=timestamp_assigner,
        restore=start if isinstance(start, Mapping) else None,
        until_event_time=None if end is None or isinstance(end, Mapping) else _end_ms(end, given, timestamp_assigner),
        stop_at_tip=True,
    )
    if isinstance(end, Mapping):
        batches = until(batches, merge_snapshots([end]).shards)
    return StreamReader(columns.schema, _arrow_batches(grouped(batches), columns.batch))


def read_polars(
    streams: StreamsArgument,
    properties: Mapping[str, object] | None = None,
    *,
    start: datetime | str | float | State | None = None,
    end: datetime | str | float | State | None = None,
    deserializer: DeserializerArgument[Any] | None = None,
    timestamp_assigner: Callable[[Record], int] | None = None,
    **settings: Unpack[ReadSettings],
) -> polars.DataFrame:
    """A part of streams as a DataFrame of polars, in memory. Takes the arguments of `read_arrow`. Needs the extra `polars`.

    Raises: as `read_arrow`.
    """
    try:
        import polars
    except ImportError as error:
        raise ImportError(f"rp.read_polars needs the extra 'polars': {install_command('polars')}") from error
    reader = read_arrow(
        streams,
        properties,
        start=start,
        end=end,
        deserializer=deserializer,
        timestamp_assigner=timestamp_assigner,
        **settings,
    )
    with reader:
        frame = polars.from_arrow(reader.read_all(), rechunk=False)
    assert isinstance(frame, polars.DataFrame)
    return frame


def _columns_of(values: Deserializer[Any]) -> FrameColumns | FileColumns:
    """The fields of a type; what a function, `json` or `avro` makes is text in JSON beside the payload."""
    made = made_type(values)
    if made is bytes:
        return frame_columns()
    return frame_columns(made) if made is str or getattr(values, "into", None) is not None else FileColumns()


class _CheckedValues:
    """A deserialiser whose values fit into the columns: one that does not is a bad record, as `flink.deserializer.error` treats them."""

    def __init__(self, values: Deserializer[Any], columns: FrameColumns | FileColumns) -> None:
        self._values, self._columns = values, columns
        self.decompressor = getattr(values, "decompressor", None)

    def values(self, batch: RecordBatch) -> Sequence[Any] | None:
        """Those of the other. Raises: ValueError for one without a place in its column."""
        values = self._values.values(batch)
        self._columns.check(batch.data if values is None else values)
        return values

    async def prepare(self, batch: RecordBatch) -> None:
        """Wait for what the other needs."""
        if isinstance(self._values, PreparedDeserializer):
            await self._values.prepare(batch)


def _start_properties(start: datetime | str | float | State | None, given: Properties) -> dict[str, str | None]:
    """Shards that a snapshot does not have are read from their oldest record. Raises: ConfigurationError."""
    is_given = start is None and given.is_set(INITIAL_POSITION)
    place = given.value(INITIAL_POSITION) if is_given else start.upper() if isinstance(start, str) else ""
    if place == PositionType.LATEST:
        raise ConfigurationError("start", place, _VALID_START, reason="the read ends at the tip")
    if is_given:
        return {}
    if start is not None and not isinstance(start, Mapping) and place != PositionType.TRIM_HORIZON:
        at = time_ms("start", start, _VALID_START)
        refuse_future("start", at, SystemClock().now_ms())
        return {INITIAL_POSITION.key: f"{at / 1000:.3f}"}
    return {INITIAL_POSITION.key: PositionType.TRIM_HORIZON}


def _end_ms(
    end: datetime | str | float, given: Properties, timestamp_assigner: Callable[[Record], int] | None
) -> int | None:
    """The last event time, epoch ms; None for NOW. Raises: ConfigurationError, also for an end in the future or before the start.

    The start is an arrival; where event times are not, records after it may have earlier ones.
    """
    if isinstance(end, str) and end.upper() == "NOW":
        return None
    at, now_ms = time_ms("end", end, _VALID_END), SystemClock().now_ms()
    is_arrival = timestamp_assigner is None and not given.is_set(TIMESTAMP_FIELD)
    start_ms = initial_position(given).timestamp_ms if is_arrival else None
    check_end("end", iso_time(at), at, start_ms=start_ms, now_ms=now_ms, clock="this machine's clock")
    return at - 1


def _arrow_batches(
    groups: AsyncGenerator[list[RecordBatch], None], to_arrow: Callable[..., pa.RecordBatch]
) -> Generator[pa.RecordBatch, None, None]:
    with closing(in_background("rp.read_arrow", groups)) as waiting:
        for group in waiting:
            yield to_arrow(*group)
