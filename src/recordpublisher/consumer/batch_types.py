"""Checks the types of the values in a publisher's batch, which a plugin's author may have mistaken."""

from collections.abc import Iterable
from typing import Any

from recordpublisher.publishers.errors import PluginError
from recordpublisher.publishers.positions import SequenceNumber
from recordpublisher.publishers.records import RecordBatch, RecordColumns, UserRecord

_OF_BATCH: dict[str, tuple[type, ...]] = {
    "millis_behind_latest": (int, type(None)),
    "read_position": (SequenceNumber, type(None)),
    "child_shards": (tuple, list),
    "raw_count": (int,),
    "raw_bytes": (int,),
}
_OF_RECORD: dict[str, tuple[type, ...]] = {
    "data": (bytes,),
    "sequence_number": (str,),
    "partition_key": (str, type(None)),
    "sub_sequence_number": (int,),
}


def check_types(publisher: str, batch: RecordBatch) -> None:
    """Check the fields of a batch and of its records, except times of arrival, which `check_arrivals` checks.

    Of records that are columns, only the first and the last one are checked.

    Raises: PluginError, which names the publisher, the field and its type, if a field has another type.
    """
    for field, types in _OF_BATCH.items():
        _check(publisher, batch, f"a batch with `{field}`", getattr(batch, field), types)
    if batch.read_position is not None:
        sequence = batch.read_position.sequence
        _check(publisher, batch, "a batch with `read_position.sequence`", sequence, (str,))
    records: Iterable[Any] = batch.records
    if isinstance(records, RecordColumns):
        records = [records[0], records[-1]] if len(records) else []
    records = list(records)
    for record in records:
        if not isinstance(record, UserRecord):
            _check(publisher, batch, "a batch with records", record, (UserRecord,))
    for field, types in _OF_RECORD.items():
        column = [getattr(record, field) for record in records]
        if not set(map(type, column)) <= set(types):
            wrong = next(value for value in column if type(value) not in types)
            _check(publisher, batch, f"a record with `{field}`", wrong, types)


def _check(publisher: str, batch: RecordBatch, what: str, value: object, types: tuple[type, ...]) -> None:
    """Check the type of a value. Raises: PluginError if it is none of `types`."""
    if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
        wanted = " or ".join("None" if each is type(None) else each.__name__ for each in types)
        raise PluginError(
            f"{publisher} gave {what} of {batch.shard.key} that is {value!r:.60}, of the type {type(value).__name__}: it must be {wanted}"
        )
