"""From bytes to values, a batch at a time, and what happens to a record that cannot be deserialised (S7)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

import msgspec

from ..publishers.errors import DeserializationError
from ..publishers.properties import Properties
from ..publishers.records import Record, RecordBatch


class Deserializer(Protocol):
    """Makes values of a batch's payloads."""

    def values(self, batch: RecordBatch) -> Sequence[Any] | None:
        """One value for each record; None means the bytes themselves. Any exception counts as a poisoned record."""
        ...


class BytesDeserializer:
    """The bytes themselves. Built as `BytesDeserializer(properties)`, as every deserialiser."""

    def __init__(self, properties: Properties | None = None) -> None:
        pass

    def values(self, batch: RecordBatch) -> Sequence[Any] | None:
        """Nothing to do."""
        return None


class TextDeserializer:
    """UTF-8 text."""

    def __init__(self, properties: Properties | None = None) -> None:
        pass

    def values(self, batch: RecordBatch) -> Sequence[Any] | None:
        """The decoded texts."""
        return [data.decode() for data in batch.data]


class JsonDeserializer:
    """JSON documents, by msgspec: dicts, lists, text, numbers."""

    def __init__(self, properties: Properties | None = None) -> None:
        self._decode = msgspec.json.Decoder().decode

    def values(self, batch: RecordBatch) -> Sequence[Any] | None:
        """The decoded documents."""
        return list(map(self._decode, batch.data))


class CallableDeserializer:
    """A user's function from a record to a value."""

    def __init__(self, function: Callable[[Record], Any]) -> None:
        self._function = function

    def values(self, batch: RecordBatch) -> Sequence[Any] | None:
        """What the function makes of each record."""
        return list(map(self._function, batch))


class Deserialization:
    """Applies a deserialiser and the policy for poisoned records; owns the count of skipped ones."""

    def __init__(self, deserializer: Deserializer, skip_poison: bool) -> None:
        self._deserializer = deserializer
        self._skip_poison = skip_poison
        self.skipped = 0

    def apply(self, batch: RecordBatch) -> RecordBatch:
        """The batch with its values. Raises: DeserializationError for a poisoned record unless such are skipped."""
        if not len(batch):
            return batch
        try:
            values = self._deserializer.values(batch)
        except Exception:
            return self._one_by_one(batch)
        return batch if values is None else replace(batch, values=values)

    def _one_by_one(self, batch: RecordBatch) -> RecordBatch:
        """The slow path: find the poisoned records of a batch that failed as a whole."""
        records, values = [], []
        for index, record in enumerate(batch.records):
            try:
                value = self._deserializer.values(batch.slice(index, index + 1))
            except Exception as error:
                if not self._skip_poison:
                    where = (batch.stream, batch.shard_id, record.sequence_number)
                    raise DeserializationError(*where, f"{type(error).__name__}: {error}") from error
                self.skipped += 1
                continue
            records.append(record)
            values.append(record.data if value is None else value[0])
        return replace(batch, records=records, values=values)
