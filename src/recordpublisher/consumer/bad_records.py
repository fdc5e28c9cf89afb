"""What happens to a record that cannot be turned into a value with a time (S7)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from enum import Enum
from typing import Any

from recordpublisher.publishers.errors import DeserializationError
from recordpublisher.publishers.records import PoisonedRecord, RecordBatch, UserRecord
from recordpublisher.publishers.shard_metrics import ShardMetrics

Work = Callable[[RecordBatch], RecordBatch]


class OnPoison(Enum):
    """What is done about it, as `flink.deserializer.error` says."""

    FAIL = "the job ends with a DeserializationError"
    SKIP = "the record is left out and counted"
    DEAD_LETTER = "the record leaves its batch's columns and travels with it to the dead-letter sink"


class PoisonPolicy:
    """Finds poisoned records of a batch that failed as a whole; counts skipped ones into the shard's metrics.

    Position and watermark are the same whatever is done: the batch keeps its read position, and a record without a time moves no watermark.
    """

    def __init__(self, action: OnPoison, metrics: ShardMetrics) -> None:
        self._action = action
        self._metrics = metrics

    def apply(self, batch: RecordBatch, work: Work) -> RecordBatch:
        """What `work` makes of the batch, without the records that it fails for. Raises: DeserializationError unless such are skipped."""
        try:
            return work(batch)
        except Exception:
            return self._one_by_one(batch, work)

    def _one_by_one(self, batch: RecordBatch, work: Work) -> RecordBatch:
        parts: list[RecordBatch] = []
        poisoned: list[PoisonedRecord] = []
        for index, record in enumerate(batch.records):
            try:
                parts.append(work(batch.slice(index, index + 1)))
            except Exception as error:
                told = _told_of(batch, record, error)
                if self._action is OnPoison.FAIL:
                    raise told from error
                poisoned.append(PoisonedRecord(len(parts), record, str(told)))
        if self._action is OnPoison.SKIP:
            self._metrics.skipped_records += len(poisoned)
            poisoned.clear()
        return _joined(batch, parts, tuple(poisoned))


def _joined(batch: RecordBatch, parts: Sequence[RecordBatch], poisoned: tuple[PoisonedRecord, ...]) -> RecordBatch:
    values = None if any(part.values is None for part in parts) else _column(part.value_column for part in parts)
    return replace(
        batch,
        records=_column(part.records for part in parts),
        values=values,
        event_times=_column(part.event_time_column for part in parts),
        watermarks=_column(part.watermarks or () for part in parts),
        poisoned=poisoned,
    )


def _column(columns: Any) -> list[Any]:
    return [each for column in columns for each in column]


def _told_of(batch: RecordBatch, record: UserRecord, error: Exception) -> DeserializationError:
    if isinstance(error, DeserializationError):
        return error
    reason = f"{type(error).__name__}: {error}"
    return DeserializationError(batch.stream, batch.shard_id, record.sequence_number, reason)
