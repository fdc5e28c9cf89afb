"""RecordBatch and its records: publishers produce them, and every layer above uses them.

A batch is a set of columns. A `Record` is made only when you iterate over the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Generic, overload

import msgspec

from .errors import PluginError
from .positions import SequenceNumber
from .safe_text import repr_of
from .shards import Shard

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    V = TypeVar("V", default=Any)
    V_co = TypeVar("V_co", default=Any, covariant=True)
else:
    from typing import TypeVar

    # Type checkers see the TypeVar above, with a default. Python's own has that only from 3.13 on.
    V, V_co = TypeVar("V"), TypeVar("V_co", covariant=True)


@dataclass(frozen=True)
class RecordBatch(Generic[V_co]):
    """Consecutive records of one shard.

    - `records`: user records, de-aggregated. A list becomes a tuple.
    - `millis_behind_latest`: how far the read was behind the shard's tip (ms), or None if unknown. 0 means that there was no later record.
    - `read_position`: the position after the whole batch, or None if the read found nothing new.
    - `child_shards`: the child shards, if this batch is the last one of the shard.
    - `raw_count`, `raw_bytes`: number and data bytes of the Kinesis records, before de-aggregation.

    The consumer of the job adds:

    - `decoded`: the deserialized values, or None without a deserializer.
    - `event_times`, `watermarks`: epoch ms, one for each record.
    - `poisoned`, `skipped`: records that cannot be deserialized. They are no longer in `records`.
    - `cut_arrival_ms`: when the next record arrived (epoch ms), if the run ends before that record; otherwise None.

    The fetcher sets `after_gap` after a `DataLossError`: records before this batch are lost, and the job has accepted that.
    """

    shard: Shard
    records: Sequence[UserRecord]
    millis_behind_latest: int | None = None
    read_position: SequenceNumber | None = None
    child_shards: tuple[Shard, ...] = ()
    raw_count: int = 0
    raw_bytes: int = 0
    decoded: Sequence[Any] | None = None
    event_times: Sequence[int] | None = None
    watermarks: Sequence[int] | None = field(default=None, repr=False)
    poisoned: tuple[PoisonedRecord, ...] = ()
    after_gap: bool = False
    skipped: tuple[SkippedRecords, ...] = ()
    cut_arrival_ms: int | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if isinstance(self.records, (tuple, RecordColumns)):
            return
        if not isinstance(self.records, Sequence):
            raise PluginError(
                f"the `records` of a RecordBatch are {repr_of(self.records, 60)}, of the type {type(self.records).__name__}: give a "
                "list of UserRecord"
            )
        # Copied, because a publisher may fill its list again while the batch waits for the sink, and a sink may clear it: the position
        # would move past records that were not written. This takes 3 ns for each record.
        object.__setattr__(self, "records", tuple(self.records))

    def __len__(self) -> int:
        return len(self.records)

    def __repr__(self) -> str:
        shown = ", ".join(repr_of(value, 60) for value in self.values[:3])
        more = f" and {len(self) - 3} more" if len(self) > 3 else ""
        return f"<RecordBatch of {self.shard.key}, {len(self)} records: {shown}{more}>"

    def __iter__(self) -> Iterator[Record[V_co]]:
        # Records are made with positional arguments, because keyword arguments would cost a fifth more for each record.
        stream, shard_id = self.stream, self.shard_id
        columns = zip(self.records, self.values, self.arrival_millis, self.event_time_column, strict=True)
        for record, value, arrival, event_time in columns:
            yield Record(
                stream,
                shard_id,
                record.sequence_number,
                record.sub_sequence_number,
                record.partition_key,
                record.explicit_hash_key,
                record.data,
                value,
                arrival,
                event_time,
            )

    def has_all(self, count: int) -> bool:
        """Return whether every column that was built has `count` items. User code may have changed a column that is a list."""
        columns = self.__dict__.get("columns", self.records)
        made = [self.records, self.decoded, self.event_times, self.watermarks]
        if isinstance(columns, RecordColumns):
            made += vars(columns).values()
        return all([each is None or len(each) == count for each in made])  # noqa: C419 - a list is faster

    @property
    def is_empty_read(self) -> bool:
        """Whether the batch has nothing new: no record, no poisoned record and no new position."""
        return not len(self.records) and self.read_position is None and not self.poisoned

    @property
    def skipped_count(self) -> int:
        """Number of records that were left out because they could not be used."""
        return sum(each.count for each in self.skipped)

    @property
    def stream(self) -> str:
        """The stream's name."""
        return self.shard.stream

    @property
    def shard_id(self) -> str:
        """The shard's id."""
        return self.shard.shard_id

    @property
    def watermark(self) -> int | None:
        """The shard's watermark after this batch (epoch ms), or None if the batch has no record or the consumer has not set watermarks."""
        return self.watermarks[-1] if self.watermarks else None

    @cached_property
    def columns(self) -> RecordColumns:
        """The records as columns."""
        return columns_of(self.records)

    @property
    def data(self) -> Sequence[bytes]:
        """Column: the payloads."""
        return self.columns.data

    @property
    def partition_keys(self) -> Sequence[str | None]:
        """Column: partition keys, None for a record without one."""
        return self.columns.partition_keys

    @property
    def explicit_hash_keys(self) -> Sequence[str | None]:
        """Column: explicit hash keys, None for a record outside an aggregate."""
        return self.columns.explicit_hash_keys

    @property
    def sequence_numbers(self) -> Sequence[str]:
        """Column: sequence numbers."""
        return self.columns.sequence_numbers

    @property
    def sub_sequence_numbers(self) -> Sequence[int]:
        """Column: index within an aggregate, -1 outside an aggregate."""
        return self.columns.sub_sequence_numbers

    @property
    def arrival_millis(self) -> Sequence[int]:
        """Column: approximate arrival, epoch ms."""
        return self.columns.arrival_millis

    @property
    def values(self) -> Sequence[V_co]:
        """Column: deserialized values, or the bytes themselves without a deserializer."""
        column: Sequence[Any] = self.data if self.decoded is None else self.decoded
        return column

    @property
    def event_time_column(self) -> Sequence[int]:
        """Column: event times (epoch ms). Until the consumer has set them, the arrival times."""
        return self.arrival_millis if self.event_times is None else self.event_times

    def with_columns(
        self,
        *,
        values: Sequence[Any] | None = None,
        event_times: Sequence[int] | None = None,
        watermarks: Sequence[int] | None = None,
    ) -> RecordBatch[V_co]:
        """Return the same records with the given columns. None leaves a column as it is."""
        given = {"decoded": values, "event_times": event_times, "watermarks": watermarks}
        # `replace` would lose the cached `columns`, and making the column of arrival times again costs 60 ns for each record.
        stamped = copy(self)
        stamped.__dict__.update({name: column for name, column in given.items() if column is not None})
        return stamped

    def with_data(self, payloads: Sequence[bytes]) -> RecordBatch[V_co]:
        """Return the same records with other payloads. The total size of the payloads becomes `raw_bytes`."""
        return replace(self, records=self.columns.with_data(payloads), raw_bytes=sum(map(len, payloads)))

    @property
    def held_bytes(self) -> int:
        """Memory of the batch in bytes: data plus a measured overhead for each record."""
        return self.raw_bytes + RECORD_OVERHEAD_BYTES * max(len(self.records) + len(self.poisoned), 1)

    def position_after(self, count: int) -> SequenceNumber | None:
        """Return the position after the first `count` records: None for 0 records, `read_position` for all.

        If the next record is of the same aggregate, the position is inside the aggregate. That next record may be a poisoned or skipped
        one.
        """
        if count >= len(self.records):
            return self.read_position
        if count == 0:
            return None
        done, following = self.records[count - 1], self.records[count].sequence_number
        # The next record may be one that could not be used, which is not in `records`.
        if self.poisoned:
            following = next((each.record.sequence_number for each in self.poisoned if each.index == count), following)
        if self.skipped:
            following = next((each.sequence_number for each in self.skipped if each.index == count), following)
        if done.sequence_number == following:
            return SequenceNumber(done.sequence_number, done.sub_sequence_number)
        return SequenceNumber(done.sequence_number)

    def _behind_after(self, count: int) -> int | None:
        arrivals = self.arrival_millis
        return millis_behind_at(self.millis_behind_latest, arrivals[-1], arrivals[max(count, 1) - 1])

    def slice(self, start: int, stop: int) -> RecordBatch[V_co]:
        """Return the records from `start` up to, not including, `stop`.

        The last slice has the batch's read position, child shards and distance from the tip. Any other slice has the position and distance
        of its own last record, and no child shards.
        """
        length = len(self.records)
        is_last = stop >= length
        if start == 0 and is_last:
            return self
        return replace(
            self,
            records=self.columns[start:stop],
            read_position=self.position_after(stop),
            child_shards=self.child_shards if is_last else (),
            millis_behind_latest=self.millis_behind_latest if is_last else self._behind_after(stop),
            raw_count=_proportion(self.raw_count, start, stop, length),
            raw_bytes=_proportion(self.raw_bytes, start, stop, length),
            decoded=None if self.decoded is None else self.decoded[start:stop],
            event_times=None if self.event_times is None else self.event_times[start:stop],
            watermarks=None if self.watermarks is None else self.watermarks[start:stop],
            after_gap=self.after_gap and start == 0,
            poisoned=_placed_in(self.poisoned, start, stop + is_last) if self.poisoned else (),
            skipped=_placed_in(self.skipped, start, stop + is_last) if self.skipped else (),
        )


def _placed_in(left_out: Sequence[P], start: int, stop: int) -> tuple[P, ...]:
    """Return the entries of `left_out` (poisoned or skipped records) whose `index` is from `start` up to, not including, `stop`.

    In the result, `index` counts from the beginning of the slice.
    """
    return tuple(
        msgspec.structs.replace(each, index=each.index - start) for each in left_out if start <= each.index < stop
    )


def _proportion(whole: int, start: int, stop: int, length: int) -> int:
    """Return how much of `whole` belongs to the records from `start` to `stop` of `length` records. Adjacent slices add up to `whole`."""
    return whole * min(stop, length) // length - whole * start // length


def millis_behind_at(millis_behind_latest: int | None, read_ms: int, done_ms: int) -> int | None:
    """Return how far a reader is behind the tip (ms) at a record that arrived at `done_ms`. Return None if that is unknown.

    - `millis_behind_latest`: how far the read was behind the tip (ms).
    - `read_ms`: when the last record of the read arrived.

    The result is None instead of 0, because more records of the read follow.
    """
    return None if millis_behind_latest is None else millis_behind_latest + max(0, read_ms - done_ms) or None


RECORD_OVERHEAD_BYTES = 360
"""The memory that a record takes in addition to its data (bytes). As measured, a record of 200 B takes 560 B."""


class Record(msgspec.Struct, Generic[V_co], frozen=True):
    """One record as a user sees it. If its value is an `Order`, it is a `Record[Order]`.

    - `value`: the deserialized `data`, or the bytes themselves without a deserializer.
    - `event_time`: epoch ms.
    - `sub_sequence_number`: -1 outside KPL aggregates.

    A record is immutable; `msgspec.structs.replace` makes a changed copy.
    """

    # This is a msgspec struct, because it is made ten times as fast as a frozen dataclass. The garbage collector tracks it, because a value
    # may refer to its record.

    stream: str
    shard_id: str
    sequence_number: str
    sub_sequence_number: int
    partition_key: str | None
    explicit_hash_key: str | None
    data: bytes
    value: V_co
    arrival_millis: int
    event_time: int

    @property
    def approximate_arrival_timestamp(self) -> datetime:
        """When the service accepted the record: a datetime in UTC, to the millisecond. The service does not guarantee its accuracy."""
        # The time is outside the range of a datetime, so the first or last possible time is returned.
        try:
            return datetime.fromtimestamp(self.arrival_millis / 1000, tz=UTC)
        except (
            ValueError,
            OverflowError,
            OSError,
        ):
            return (datetime.max if self.arrival_millis > 0 else datetime.min).replace(tzinfo=UTC)


class PoisonedRecord(msgspec.Struct, frozen=True):
    """A record that could not be deserialized, for the dead-letter sink. Its place is before `batch.records[index]`."""

    index: int
    record: UserRecord
    reason: str


class SkippedRecords(msgspec.Struct, frozen=True):
    """Consecutive records that could not be deserialized and are skipped. Their place is before `batch.records[index]`.

    - `count`: the number of records.
    - `sequence_number`: the sequence number of the first record.
    """

    index: int
    count: int
    sequence_number: str


P = TypeVar("P", PoisonedRecord, SkippedRecords)

ArrivalSeconds = Annotated[float, msgspec.Meta(ge=-62_135_596_800, lt=253_402_300_800)]
"""A time of arrival in epoch seconds, in the years 1 to 9999. A response with any other time is malformed."""


class UserRecord(
    msgspec.Struct,
    gc=False,
    rename={
        "data": "Data",
        "sequence_number": "SequenceNumber",
        "arrival": "ApproximateArrivalTimestamp",
        "partition_key": "PartitionKey",
        "explicit_hash_key": "_ehk",
        "sub_sequence_number": "_sub",
    },
):
    """One user record as it was decoded from the response.

    - `arrival`: epoch seconds with fractions, as the service sends it.
    - `partition_key`: None if the stream has AUTO record distribution and the record has no key.
    - `explicit_hash_key`, `sub_sequence_number`: only a sub-record of a KPL aggregate has them.
    """

    data: bytes
    sequence_number: str
    arrival: ArrivalSeconds = 0.0
    partition_key: str | None = None
    explicit_hash_key: str | None = None
    sub_sequence_number: int = -1


def to_millis(arrival: float) -> int:
    """Return a time of the service (epoch seconds) as epoch ms, rounded."""
    return int(arrival * 1000 + 0.5)


class RecordColumns(Sequence[UserRecord]):
    """Consecutive records of one shard, as columns.

    They are made from `records` or from the columns. The other form is built when it is needed:

    - Each column is built from the records at its first access.
    - The records are built from the columns at their first access.

    A slice gets what was built before it was taken.
    """

    records: Sequence[UserRecord]
    data: Sequence[bytes]
    sequence_numbers: Sequence[str]
    arrival_millis: Sequence[int]
    partition_keys: Sequence[str | None]
    explicit_hash_keys: Sequence[str | None]
    sub_sequence_numbers: Sequence[int]

    def __init__(self, **columns: Sequence[Any]) -> None:
        self.__dict__.update(columns)

    def __len__(self) -> int:
        return len(next(iter(self.__dict__.values())))

    def __iter__(self) -> Iterator[UserRecord]:
        return iter(self.records)

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, Sequence) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    @overload
    def __getitem__(self, index: int) -> UserRecord: ...
    @overload
    def __getitem__(self, index: slice) -> RecordColumns: ...
    def __getitem__(self, index: int | slice) -> UserRecord | RecordColumns:
        # A slice gets only what was built so far, which is in the `__dict__`, so that it builds no column that its whole does not have.
        if isinstance(index, slice):
            return type(self)(**{name: column[index] for name, column in self.__dict__.items()})
        return self.records[index] if "records" in self.__dict__ else self[index : index + 1 or None].records[0]

    def with_data(self, payloads: Sequence[bytes]) -> RecordColumns:
        """Return the same records with other payloads."""
        return RecordColumns(**{name: getattr(self, name) for name in COLUMNS} | {"data": payloads})

    @property
    def payload_bytes(self) -> int:
        """The bytes of all payloads."""
        return sum([len(record.data) for record in self.records])

    @property
    def key_bytes(self) -> int:
        """The bytes of all partition keys."""
        return len("".join([record.partition_key or "" for record in self.records]))

    @property
    def has_aggregates(self) -> bool:
        """Whether any payload begins with the magic bytes of a KPL aggregate."""
        # The comparison saves time: it is three times as fast as `startswith`, and few payloads are greater than the magic bytes.
        return any([record.data.startswith(KPL_MAGIC) for record in self.records if record.data >= KPL_MAGIC])  # noqa: C419 - a list is faster

    def __getattr__(self, name: str) -> Sequence[Any]:
        """Build a column at its first access, and keep it. Raises: AttributeError if `name` is not a column."""
        # Python calls this only for names that are not in the `__dict__`, so access to a column that was built costs no call.
        if name == "records":
            data, numbers, millis, *others = (getattr(self, field) for field in COLUMNS)
            column: list[Any] = list(map(UserRecord, data, numbers, [ms / 1000 for ms in millis], *others))
        elif name in COLUMNS:
            column = COLUMNS[name](self.records)
        else:
            raise AttributeError(name)
        self.__dict__[name] = column
        return column


COLUMNS: dict[str, Callable[[Sequence[UserRecord]], list[Any]]] = {
    "data": lambda records: [record.data for record in records],
    "sequence_numbers": lambda records: [record.sequence_number for record in records],
    "arrival_millis": lambda records: [int(record.arrival * 1000 + 0.5) for record in records],
    "partition_keys": lambda records: [record.partition_key for record in records],
    "explicit_hash_keys": lambda records: [record.explicit_hash_key for record in records],
    "sub_sequence_numbers": lambda records: [record.sub_sequence_number for record in records],
}
"""For each column, the function that builds it from records. The columns are in the order of the fields of `UserRecord`."""


def columns_of(records: Sequence[UserRecord]) -> RecordColumns:
    """Return the records as columns."""
    return records if isinstance(records, RecordColumns) else RecordColumns(records=records)


KPL_MAGIC = b"\xf3\x89\x9a\xc2"
"""The first bytes of a KPL aggregate."""
