"""PoisonPolicy decides what happens to a record without a valid value or event time (S7)."""

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from recordpublisher.publishers.errors import DeserializationError
from recordpublisher.publishers.properties.groups.job import OnBadRecord
from recordpublisher.publishers.records import PoisonedRecord, RecordBatch, UserRecord
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.skipped_records import DEAD_LETTER, SkippedRecordsLog, how_to_continue
from recordpublisher.publishers.user_code import describe_error, log_user_error

log = logging.getLogger("recordpublisher.consumer")
Decorate = Callable[[RecordBatch], RecordBatch]


class PoisonPolicy:
    """Finds the poisoned records of a batch that failed as a whole. Counts skipped records in the shard's metrics.

    The action has no effect on position and watermark: the batch keeps its read position, and a record without a time
    moves no watermark.

    All shards of a job share `skipped_log`.
    """

    def __init__(
        self, action: OnBadRecord, metrics: ShardMetrics, skipped_log: SkippedRecordsLog | None = None
    ) -> None:
        self._action = action
        self._metrics = metrics
        self._skipped_log = skipped_log or SkippedRecordsLog(log)

    def apply(self, batch: RecordBatch, decorate: Decorate) -> RecordBatch:
        """Decorate a batch, without the records for which that fails. Raises: DeserializationError if one fails and the action is FAIL."""
        with suppress(Exception):
            return decorate(batch)
        return self._decorate_one_by_one(batch, decorate)

    def _decorate_one_by_one(self, batch: RecordBatch, decorate: Decorate) -> RecordBatch:
        parts: list[RecordBatch] = []
        poisoned: list[PoisonedRecord] = []
        for index, record in enumerate(batch.records):
            try:
                parts.append(decorate(batch.slice(index, index + 1)))
            except Exception as error:
                reason = describe_error(error)
                name = f"record {record.sequence_number} of {batch.shard.key}"
                if self._action is OnBadRecord.FAIL:
                    message = f"{name} cannot be deserialised: {reason}"
                    log_user_error(log, error, message, batch.shard.key, record.sequence_number)
                    remedy = how_to_continue(batch.stream, batch.shard_id, record.sequence_number)
                    raise _deserialization_error(batch, record, f"{reason}; {remedy}") from error
                is_kept = self._action is OnBadRecord.DEAD_LETTER
                key, number = batch.shard.key, record.sequence_number
                self._skipped_log.skipped(name, reason, error, key, number, how=DEAD_LETTER if is_kept else "skipped")
                if is_kept:
                    poisoned.append(
                        PoisonedRecord(len(parts), record, str(_deserialization_error(batch, record, reason)))
                    )
                else:
                    self._metrics.add("skipped_records")
        return _joined(batch, parts, tuple(poisoned))


def _joined(batch: RecordBatch, parts: Sequence[RecordBatch], poisoned: tuple[PoisonedRecord, ...]) -> RecordBatch:
    values = None if any(part.decoded is None for part in parts) else _column(part.values for part in parts)
    return replace(
        batch,
        records=_column(part.records for part in parts),
        raw_bytes=max(batch.raw_bytes, sum(part.raw_bytes for part in parts)),  # payloads may have been decompressed
        decoded=values,
        event_times=_column(part.event_time_column for part in parts),
        watermarks=_column(part.watermarks or () for part in parts),
        poisoned=poisoned,
    )


def _column(columns: Any) -> list[Any]:
    return [each for column in columns for each in column]


def _deserialization_error(batch: RecordBatch, record: UserRecord, reason: str) -> DeserializationError:
    return DeserializationError(batch.stream, batch.shard_id, record.sequence_number, reason)
