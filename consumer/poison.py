"""What happens to a record that cannot be turned into a value with a time (S7)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from ..publishers.errors import DeserializationError
from ..publishers.metrics import ShardMetrics
from ..publishers.records import RecordBatch, UserRecord

Work = Callable[[RecordBatch], RecordBatch]


class PoisonPolicy:
    """Finds poisoned records of a batch that failed as a whole; counts skipped ones into the shard's metrics.

    Position and watermark are the same whether such records are skipped or end the job: the batch keeps its read position, and a record
    without a time moves no watermark.
    """

    def __init__(self, skips: bool, metrics: ShardMetrics) -> None:
        self._skips = skips
        self._metrics = metrics

    def apply(self, batch: RecordBatch, work: Work) -> RecordBatch:
        """What `work` makes of the batch, without the records that it fails for. Raises: DeserializationError unless such are skipped."""
        try:
            return work(batch)
        except Exception:
            return _joined(batch, [part for index in range(len(batch)) for part in self._one(batch, index, work)])

    def _one(self, batch: RecordBatch, index: int, work: Work) -> list[RecordBatch]:
        try:
            return [work(batch.slice(index, index + 1))]
        except Exception as error:
            if not self._skips:
                raise _told_of(batch, batch.records[index], error) from error
            self._metrics.skipped_records += 1
            return []


def _joined(batch: RecordBatch, parts: Sequence[RecordBatch]) -> RecordBatch:
    values = None if any(part.values is None for part in parts) else _column(part.value_column for part in parts)
    return replace(
        batch,
        records=_column(part.records for part in parts),
        values=values,
        event_times=_column(part.event_time_column for part in parts),
        watermarks=_column(part.watermarks or () for part in parts),
    )


def _column(columns: Any) -> list[Any]:
    return [each for column in columns for each in column]


def _told_of(batch: RecordBatch, record: UserRecord, error: Exception) -> DeserializationError:
    if isinstance(error, DeserializationError):
        return error
    reason = f"{type(error).__name__}: {error}"
    return DeserializationError(batch.stream, batch.shard_id, record.sequence_number, reason)
