"""UserRecord, a record as it is decoded, and RecordColumns, consecutive records of a shard as columns or as records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, overload

import msgspec

MAGIC = b"\xf3\x89\x9a\xc2"
"""The first bytes of a KPL aggregate."""


ArrivalSeconds = Annotated[float, msgspec.Meta(ge=-62_135_596_800, lt=253_402_300_800)]
"""A time of arrival in epoch seconds, in the years 1 to 9999. A response with a time outside is malformed."""


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
    """One user record as decoded from the response. A sub-record of a KPL aggregate has the last two fields set.

    `arrival` is in epoch seconds with fractions, as the service sends it. `partition_key` may be missing (AUTO record distribution, S4).
    """

    data: bytes
    sequence_number: str
    arrival: ArrivalSeconds = 0.0
    partition_key: str | None = None
    explicit_hash_key: str | None = None
    sub_sequence_number: int = -1


def to_millis(arrival: float) -> int:
    """Return epoch seconds of the service as epoch ms, rounded."""
    return int(arrival * 1000 + 0.5)


class RecordColumns(Sequence[UserRecord]):
    """Consecutive records of one shard, as columns.

    It is made either of `records`, and then builds each column at its first access; or of every other column, and then
    builds its records at their first access. A slice has the columns or records that the whole had when it was sliced.
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
        """Whether a payload begins as an aggregate of the KPL.

        This costs one comparison for each record. Few payloads compare greater than the magic bytes, so it is three
        times as fast as `startswith`.
        """
        return any([record.data.startswith(MAGIC) for record in self.records if record.data >= MAGIC])  # noqa: C419 - a list is faster

    def __getattr__(self, name: str) -> Sequence[Any]:
        """Build a column at its first access, and keep it. Raises: AttributeError if `name` is not a column."""
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
"""Functions that take each column from records, in the order of a record's fields."""


def columns_of(records: Sequence[UserRecord]) -> RecordColumns:
    """Return the records as columns."""
    return records if isinstance(records, RecordColumns) else RecordColumns(records=records)
