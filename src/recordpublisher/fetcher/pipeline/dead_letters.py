"""BadRecordHandler: what becomes of records that nobody can use, found by the deserialiser or by the sink (S7)."""

from __future__ import annotations

import base64
import logging
from dataclasses import replace
from typing import Any

from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard

from ..shards.shard_table import ShardTable
from ..sink import Checkpoint, Sink, SinkContext, refuse

log = logging.getLogger("recordpublisher.fetcher")
_NO_STATE = Checkpoint({})
"""The positions of the job are not the dead-letter sink's to keep."""


class BadRecordHandler:
    """Fails the job, skips and counts, or writes a dead letter. Owns the life of the dead-letter sink, if there is one.

    Dead letters are safe before the position moves past their records, so none is lost; after a crash one may be written again.
    """

    def __init__(self, table: ShardTable, skips: bool, dead_letters: Sink | None) -> None:
        self._table = table
        self._skips = skips
        self._sink = dead_letters

    async def open(self, job: SinkContext) -> SinkContext:
        """Open the dead-letter sink. Returns the context of the job's own sink, by which that one gives away records.

        State that the dead-letter sink returns is ignored: it does not keep the job's positions.
        """
        if self._sink is not None:
            await self._sink.open(SinkContext(job.subtask, job.parallelism, job.streams))
        return replace(job, reject=self.reject)

    async def poisoned(self, batch: RecordBatch) -> None:
        """Write the records of a batch that could not be deserialised."""
        for found in batch.poisoned:
            await self._write(batch.shard, found.record, found.reason)

    async def reject(self, record: RecordBatch, reason: str) -> None:
        """A sink gives away a record, as a batch of one, that it can never write. Raises: SinkError when that fails the job."""
        if self._sink is not None:
            await self._write(record.shard, record.records[0], reason)
            await self.flush()
        elif self._skips:
            log.warning("record %s of %s is skipped: %s", record.sequence_numbers[0], record.shard.key, reason)
            self._table[record.shard.key].metrics.skipped_records += 1
        else:
            await refuse(record, reason)

    async def flush(self) -> None:
        """Return when every dead letter is safe."""
        if self._sink is not None:
            await self._sink.flush(_NO_STATE)

    async def close(self) -> None:
        """Close the dead-letter sink."""
        if self._sink is not None:
            await self._sink.close()

    async def _write(self, shard: Shard, record: UserRecord, reason: str) -> None:
        if self._sink is None:
            raise AssertionError("dead letters were asked for without a sink for them")
        await self._sink.write(dead_letter(shard, record, reason))
        if shard.key in self._table:
            self._table[shard.key].metrics.dead_letters += 1


def dead_letter(shard: Shard, record: UserRecord, reason: str) -> RecordBatch:
    """A batch of one: the record as it came; its value says what is wrong with it and shows its payload as text, else as base64."""
    value: dict[str, Any] = {"error": reason}
    try:
        value["payload"] = record.data.decode()
    except UnicodeDecodeError:
        value |= {"payload": base64.b64encode(record.data).decode(), "base64": True}
    return RecordBatch(shard, [record], raw_count=1, raw_bytes=len(record.data), values=[value])
