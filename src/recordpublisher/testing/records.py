"""Makes records and batches for tests, as handlers and sinks receive them."""

from __future__ import annotations

from datetime import datetime
from itertools import accumulate
from typing import Any

import msgspec

from recordpublisher.consumer.typed_values import fields_of_model, is_protobuf_message
from recordpublisher.publishers.initial_position import time_ms
from recordpublisher.publishers.positions import SequenceNumber
from recordpublisher.publishers.records import Record, RecordBatch, UserRecord

from ..publishers.shards import Shard
from .virtual_time import EPOCH_MS

STREAM, SHARD_ID, KEY = "orders", "shardId-000000000000", "key"


def record(
    data: bytes | str | dict[str, Any] | list[Any] | None = None,
    *,
    value: Any = None,
    key: str | None = KEY,
    stream: str = STREAM,
    shard_id: str = SHARD_ID,
    sequence_number: int | str = 1,
    sub_sequence_number: int = -1,
    hash_key: str | None = None,
    arrival: datetime | int = EPOCH_MS,
    event_time: datetime | int | None = None,
) -> Record[Any]:
    """Return a record as a handler receives it.

    - `data`: the payload; text becomes UTF-8. A dict or a list is the value, and the payload is its JSON. If `data` is None, the payload is
      `value` as JSON, or empty without a value.
    - `value`: the value that the deserializer would return. If it is None, the value is the payload itself.
    - `key`: the partition key.
    - `stream`: the stream's name.
    - `shard_id`: the shard's id.
    - `sequence_number`: a whole number, or its digits.
    - `sub_sequence_number`: the index within a KPL aggregate, or -1 outside an aggregate.
    - `hash_key`: the explicit hash key.
    - `arrival`: when the service accepted the record, as epoch ms or as a datetime with a zone.
    - `event_time`: the event time in the same form. If it is None, it is `arrival`. A job that reads the record computes its own.

    Raises: TypeError if `data` has another type, or if a value cannot be written as JSON; ConfigurationError if a datetime has no zone.
    """
    if isinstance(data, dict | list):
        value, data = data if value is None else value, msgspec.json.encode(data)
    elif data is None:
        data = b"" if value is None else _as_json(value)
    payload = data.encode() if isinstance(data, str) else data
    if not isinstance(payload, bytes):
        text = "the data of a record must be bytes, text, a dict or a list"  # type: ignore[unreachable]
        raise TypeError(f"{text}, not {type(data).__name__}: record(value=...) makes a record of a value")
    arrival_ms = time_ms("arrival", arrival)
    return Record(
        stream,
        shard_id,
        str(sequence_number),
        sub_sequence_number,
        key,
        hash_key,
        payload,
        payload if value is None else value,
        arrival_ms,
        arrival_ms if event_time is None else time_ms("event_time", event_time),
    )


def batch_of(
    *items: Any, stream: str = STREAM, shard_id: str = SHARD_ID, behind_ms: int | None = 0
) -> RecordBatch[Any]:
    """Return a batch of one shard as a sink receives it.

    - `items`: records (made by `record`), payloads (bytes, text), or values. Payloads and values get the sequence numbers 1, 2, 3 and so
      on.
    - `stream`: the stream's name, which also replaces the stream of given records.
    - `shard_id`: the shard's id, which also replaces the shard of given records.
    - `behind_ms`: how far the read was behind the shard's tip (ms), or None if that is not known.

    Raises: TypeError if a value cannot be written as JSON.
    """
    records = [as_record(item, number) for number, item in enumerate(items, 1)]
    times = [each.event_time for each in records]
    return RecordBatch(
        Shard(stream, shard_id),
        [as_user_record(each) for each in records],
        behind_ms,
        SequenceNumber(records[-1].sequence_number, records[-1].sub_sequence_number) if records else None,
        raw_count=len(records),
        raw_bytes=sum(len(each.data) for each in records),
        decoded=[each.value for each in records],
        event_times=times,
        watermarks=list(accumulate(times, max)),
    )


def as_record(item: Any, number: int) -> Record[Any]:
    """Return `item` if it is a record. A payload or a value becomes a record with the sequence number `number`."""
    if isinstance(item, Record):
        return item
    if isinstance(item, bytes | str):
        return record(item, sequence_number=number)
    return record(value=item, sequence_number=number)


def _as_json(value: Any) -> bytes:
    """Return the JSON document that a deserializer turns into this value.

    Raises: TypeError if the value cannot be written as JSON, or if its type is never read from JSON.
    """
    try:
        return msgspec.json.encode(value, enc_hook=_fields)
    except TypeError as error:
        raise TypeError(
            f'the payload cannot be made from the value ({error}): give both, as in record(b"...", value=...)'
        ) from error


def _fields(value: Any) -> Any:
    if is_protobuf_message(value):
        raise TypeError(f"{type(value).__name__} is a Protobuf message, which is not read from JSON")
    return fields_of_model(value, by_alias=True)  # By alias, because pydantic reads a field by its alias.


def as_user_record(of: Record[Any]) -> UserRecord:
    """Return a record in the form in which publishers give it to a job."""
    return UserRecord(
        of.data,
        of.sequence_number,
        of.arrival_millis / 1000,
        of.partition_key,
        of.explicit_hash_key,
        of.sub_sequence_number,
    )
