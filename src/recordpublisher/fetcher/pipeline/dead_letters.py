"""Decides what happens to a record that cannot be processed: it fails the job, is skipped, or is written as a dead letter (S7)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from recordpublisher.publishers.errors import ConfigurationError, PluginError
from recordpublisher.publishers.properties.job_properties import DEAD_LETTER as DEAD_LETTER_SETTINGS
from recordpublisher.publishers.properties.job_properties import OnBadRecord
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.safe_text import repr_of, writable
from recordpublisher.publishers.shard_metrics import SUMMED_COUNTERS
from recordpublisher.publishers.shards import Shard
from recordpublisher.publishers.skipped_records_log import DEAD_LETTER, SkippedRecordsLog

from ..sink import Checkpoint, RejectedRecord, Sink, SinkContext, fail_on_rejected_record
from .checked_sink_calls import check_unchanged, close_sink, naming_sink
from .dead_letter_format import DeadLetter

log = logging.getLogger("recordpublisher.fetcher")
_NO_STATE = Checkpoint({"shards": {}})
"""The checkpoint that is passed to the dead-letter sink. It has no state, because that sink does not store the job's positions."""
DEAD_LETTER_SINK_WORDS = "dead-letter sink"
SINK_KEY_PREFIX = "flink.sink."
"""The prefix of the keys of a sink's settings."""


class DeadLetterHandler:
    """Handles records that cannot be processed. It fails the job, skips and counts the record, or writes a dead letter.

    Owns the dead-letter sink, if there is one. Dead letters are flushed before the position moves past their records, so none is lost.
    After a crash a dead letter may be written again.

    - `count(key, counter)`: counts a record of a shard (`Shard.key`) in one of its metrics.
    - `rejected`: number of records that the job's sink has rejected or skipped. They also count as written, because the sink has received
      them.
    """

    def __init__(
        self, count: Callable[[str, str], None], on_poison: OnBadRecord, dead_letter_sink: Sink | None
    ) -> None:
        self._count = count
        self._skips = on_poison is OnBadRecord.SKIP
        self._sink = dead_letter_sink
        # A sink may reject records in several tasks, as acknowledgements arrive, while a batch with bad records is read. But no call of a
        # sink is made before the last one has returned.
        self._calls = asyncio.Lock()
        self._skipped_log = SkippedRecordsLog(log)
        self.rejected = 0

    async def open(self, job: SinkContext) -> SinkContext:
        """Open the dead-letter sink. Return the context for the job's own sink, with the functions through which that sink rejects records.

        State that the dead-letter sink returns is ignored, because that sink does not store the job's positions.
        """
        if self._sink is not None:
            of_letters = SinkContext(
                job.streams,
                outages=job.outages,
                drain_seconds=job.drain_seconds,
                is_stopping=job.is_stopping,
                clock=job.clock,
            )
            with _as_dead_letter_sink(self._sink, "open"):
                await self._sink.open(of_letters)
        return replace(
            job,
            reject=self.handle_rejected,
            reject_together=self.handle_all_rejected,
            count=self.count_in_sink,
            has_dead_letters=self._sink is not None,
        )

    async def handle_undeserialized(self, batch: RecordBatch) -> None:
        """Write a dead letter for each record of a batch that could not be deserialized."""
        async with self._calls:
            for found in batch.poisoned:
                await self._write(batch.shard, found.record, found.reason)

    async def handle_rejected(self, record: RecordBatch, reason: str) -> None:
        """Handle a record (a batch of one) that the sink can never write. Raises: SinkError if this fails the job."""
        await self.handle_all_rejected([(record, reason)])

    async def handle_all_rejected(self, rejected: Sequence[RejectedRecord], is_logged: bool = False) -> None:
        """Handle several rejected records. Their dead letters are durable when this returns.

        `is_logged`: whether the sink has already logged them.

        Raises: SinkError if this fails the job.
        """
        for each in rejected:
            self._check_rejected(each)
        async with self._calls:
            for record, reason in rejected:
                await self._handle(record, reason, is_logged)
            if rejected:
                await self._flush()

    @staticmethod
    def _check_rejected(given: Any) -> None:
        """Check the arguments of `reject`. Raises: PluginError if they are not a batch of exactly one record, and a reason."""
        is_pair = isinstance(given, tuple) and len(given) == 2
        record, reason = given if is_pair else (given, None)
        if not isinstance(record, RecordBatch) or len(record) != 1:
            raise PluginError(
                f"a sink has rejected {repr_of(record, 100)}: reject one record as a batch, `batch.slice(index, index + 1)`; `reject_all` "
                "takes a list of (batch, reason)"
            )
        if not isinstance(reason, str):
            raise PluginError(f"a sink has rejected a record with the reason {repr_of(reason, 60)}: give a text")

    async def _handle(self, record: RecordBatch, reason: str, is_logged: bool) -> None:
        # A plugin may give a reason that neither a sink nor a log file could write.
        is_kept, reason = self._sink is not None, writable(reason)
        if not is_kept and not self._skips:
            await fail_on_rejected_record(record, reason)
        key, first = record.shard.key, record.sequence_numbers[0]
        if not is_logged:
            how = DEAD_LETTER if is_kept else "skipped"
            self._skipped_log.skipped(f"record {first} of {key}", reason, None, key, first, how=how)
        if is_kept:
            await self._write(record.shard, record.records[0], reason)
            self.rejected += 1
        else:
            self.count_in_sink(key, "skipped_records")

    def count_in_sink(self, key: str, counter: str) -> None:
        """Count a record that the sink has received, in one of the counters of its shard (`Shard.key`).

        Raises: PluginError if `counter` is not one of `SUMMED_COUNTERS`. Other counters are lost when the worker releases the shard.
        """
        if counter not in SUMMED_COUNTERS:
            raise PluginError(
                f"a sink has counted a record in the counter {repr_of(counter)}. Valid values: {', '.join(SUMMED_COUNTERS)}"
            )
        self._count(key, counter)
        self.rejected += counter == "skipped_records"

    async def flush(self) -> None:
        """Flush the dead-letter sink, and return when every dead letter is durable."""
        async with self._calls:
            await self._flush()

    async def _flush(self) -> None:
        if self._sink is not None:
            with _as_dead_letter_sink(self._sink, "flush"):
                await self._sink.flush(_NO_STATE)

    async def close(self, seconds: float) -> None:
        """Close the dead-letter sink, but wait no longer than `seconds` for it."""
        if self._sink is not None:
            await close_sink(self._sink, seconds, DEAD_LETTER_SINK_WORDS)

    async def _write(self, shard: Shard, record: UserRecord, reason: str) -> None:
        if self._sink is None:
            raise AssertionError(
                "internal error: a dead letter was to be written without a dead-letter sink. Please report it"
            )
        with _as_dead_letter_sink(self._sink, "write"):
            batch = DeadLetter(shard, record, reason).batch()
            await self._sink.write(batch)
            check_unchanged(self._sink, batch, 1)
        self._count(shard.key, "dead_letters")


def dead_letter_sink_error(error: ConfigurationError, more: str = "") -> ConfigurationError:
    """Return a copy of `error` that names the dead-letter sink's own properties: `flink.deadletter.` instead of `flink.sink.`.

    `more`: a further reason to add.
    """
    words = "; ".join(filter(None, (error.reason, more)))
    key, valid, reason, statement = (
        each.replace(SINK_KEY_PREFIX, DEAD_LETTER_SETTINGS.key)
        for each in (error.key, error.valid, words, error.statement)
    )
    return error.reworded(key, valid, reason, statement)


@contextmanager
def _as_dead_letter_sink(sink: Sink, method: str) -> Iterator[None]:
    try:
        with naming_sink(sink, method, DEAD_LETTER_SINK_WORDS):
            yield
    except ConfigurationError as error:
        raise dead_letter_sink_error(error) from error
