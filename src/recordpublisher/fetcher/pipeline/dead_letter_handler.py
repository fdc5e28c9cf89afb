"""DeadLetterHandler handles records that cannot be deserialised or that the sink rejects (S7)."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.groups.job import DEAD_LETTER as DEAD_LETTER_SETTINGS
from recordpublisher.publishers.properties.groups.job import OnBadRecord
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard
from recordpublisher.publishers.skipped_records import DEAD_LETTER, SkippedRecordsLog

from ..sink import Checkpoint, Rejected, Sink, SinkContext, fail_on_rejected_record
from .dead_letter_format import DeadLetter
from .sink_errors import naming_sink

log = logging.getLogger("recordpublisher.fetcher")
_NO_STATE = Checkpoint({"shards": {}})
"""The checkpoint of the dead-letter sink, which does not store the job's positions."""
OF_SINK = "flink.sink."
"""The beginning of every sink's keys."""


class DeadLetterHandler:
    """Fails the job, skips and counts the record, or writes a dead letter. Owns the dead-letter sink, if there is one.

    Dead letters are flushed before the position moves behind their records, so none is lost. After a crash one may be
    written again.

    `count(key, counter)` counts a record of a shard (`Shard.key`) in one of its metrics.
    """

    def __init__(
        self, count: Callable[[str, str], None], on_poison: OnBadRecord, dead_letter_sink: Sink | None
    ) -> None:
        self._count = count
        self._skips = on_poison is OnBadRecord.SKIP
        self._sink = dead_letter_sink
        self._skipped_log = SkippedRecordsLog(log)

    async def open(self, job: SinkContext) -> SinkContext:
        """Open the dead-letter sink. Return the context for the job's own sink, which rejects records through it.

        State that the dead-letter sink returns is ignored, because this sink does not store the job's positions.
        """
        if self._sink is not None:
            with _as_dead_letter_sink(self._sink, "open"):
                await self._sink.open(SinkContext(job.streams))
        return replace(
            job,
            reject=self.handle_rejected,
            reject_together=self.handle_all_rejected,
            has_dead_letters=self._sink is not None,
        )

    async def handle_undeserialized(self, batch: RecordBatch) -> None:
        """Write the records of a batch that could not be deserialised."""
        for found in batch.poisoned:
            await self._write(batch.shard, found.record, found.reason)

    async def handle_rejected(self, record: RecordBatch, reason: str) -> None:
        """Handle a record, a batch of one, that the sink can never write. Raises: SinkError if this fails the job."""
        await self.handle_all_rejected([(record, reason)])

    async def handle_all_rejected(self, rejected: Rejected, is_logged: bool = False) -> None:
        """Handle several rejected records. Their dead letters are durable when this returns. Raises: SinkError if this fails the job."""
        for record, reason in rejected:
            await self._handle(record, reason, is_logged)
        if rejected:
            await self.flush()

    async def _handle(self, record: RecordBatch, reason: str, is_logged: bool) -> None:
        is_kept = self._sink is not None
        if not is_kept and not self._skips:
            await fail_on_rejected_record(record, reason)
        key, first = record.shard.key, record.sequence_numbers[0]
        if not is_logged:
            how = DEAD_LETTER if is_kept else "skipped"
            self._skipped_log.skipped(f"record {first} of {key}", reason, None, key, first, how=how)
        if is_kept:
            await self._write(record.shard, record.records[0], reason)
        else:
            self._count(key, "skipped_records")

    async def flush(self) -> None:
        """Return when every dead letter is durable."""
        if self._sink is not None:
            with _as_dead_letter_sink(self._sink, "flush"):
                await self._sink.flush(_NO_STATE)

    async def close(self) -> None:
        """Close the dead-letter sink."""
        if self._sink is not None:
            with _as_dead_letter_sink(self._sink, "close"):
                await self._sink.close()

    async def _write(self, shard: Shard, record: UserRecord, reason: str) -> None:
        if self._sink is None:
            raise AssertionError("a dead letter was requested without a dead-letter sink")
        with _as_dead_letter_sink(self._sink, "write"):
            await self._sink.write(DeadLetter(shard, record, reason).batch())
        self._count(shard.key, "dead_letters")


def of_dead_letter_sink(error: ConfigurationError, more: str = "") -> ConfigurationError:
    """Return the error of a dead-letter sink with the keys that its user has set: `flink.deadletter.` instead of `flink.sink.`.

    `more` is a further reason.
    """
    words = "; ".join(filter(None, (error.reason, more)))
    key, valid, reason, statement = (
        each.replace(OF_SINK, DEAD_LETTER_SETTINGS.key) for each in (error.key, error.valid, words, error.statement)
    )
    return ConfigurationError(key, error.value, valid, reason=reason, statement=statement)


@contextmanager
def _as_dead_letter_sink(sink: Sink, method: str) -> Iterator[None]:
    try:
        with naming_sink(sink, method, "dead-letter sink"):
            yield
    except ConfigurationError as error:
        raise of_dead_letter_sink(error) from error
