"""Handles rows that cannot be put: they become dead letters if the job has a sink for them, otherwise they are counted (S7, K3)."""

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from recordpublisher.fetcher.pipeline.dead_letter_format import DeadLetter
from recordpublisher.fetcher.sink import Checkpoint, Sink, SinkContext
from recordpublisher.plugins.sinks.kinesis.records import VALIDATION_EXCEPTION, FailedRecord
from recordpublisher.publishers.records import RecordBatch, UserRecord
from recordpublisher.publishers.shards import Shard
from recordpublisher.publishers.stream_arns import stream_name

from .columns import WriteColumns, data_of
from .row_ids import IdField, RowIds

LOG = logging.getLogger("recordpublisher.spark")
_NO_STATE = Checkpoint({"shards": {}})
RejectRow = Callable[[str, FailedRecord], None]
"""A function that receives the target stream of a row, and why the row cannot be put."""


class RejectedRows:
    """Owns the rows that one attempt of a task could not put, and its dead-letter sink, which is opened for the first of them.

    When a task succeeds, its dead letters are stored. The dead letters of a failed attempt may or may not be stored; the next attempt
    writes them again with the same `sequenceNumber`.

    - `where`: names the task in dead letters.
    - `scope`: makes its row ids different from the row ids of other tasks.
    """

    def __init__(self, make_sink: Callable[[], Sink] | None, task: int, where: str, scope: str) -> None:
        self._make_sink = make_sink
        self._task = task
        self._where = where
        self._ids = RowIds(scope)
        self._pending: deque[tuple[str, FailedRecord]] = deque()
        self._sink: Sink | None = None
        self._needs_flush = False
        self._has_warned = False
        self.letters = 0

    def add(self, stream: str, failed: FailedRecord) -> None:
        """Keep a row until it is written. Writers call this on the loop, and the task calls it in its thread."""
        if self._make_sink is not None:
            self._pending.append((stream, failed))
        elif not self._has_warned:
            self._has_warned = True
            LOG.warning("%s; further ones of this task are only counted", self._reason(stream, failed))

    async def write(self) -> None:
        """Write the added rows. Raises: the errors of the dead-letter sink. Then the task fails, so that no dead letter is lost."""
        while self._pending:
            sink = self._sink or await self._open_sink()
            await sink.write(self._letter(*self._pending.popleft()))
            self.letters += 1
        if self._needs_flush and self._sink is not None:
            self._needs_flush = False
            await self._sink.flush(_NO_STATE)

    async def finish(self) -> None:
        """Return when every dead letter is stored. Raises: the errors of `write`."""
        await self.write()
        if self._sink is not None:
            await self._sink.flush(_NO_STATE)
            await self.close()

    async def close(self) -> None:
        """Close the sink without a flush."""
        sink, self._sink = self._sink, None
        if sink is not None:
            await sink.close()

    async def _open_sink(self) -> Sink:
        """Open the sink with the number of the task as subtask."""
        assert self._make_sink is not None
        self._sink = self._make_sink()
        await self._sink.open(SinkContext(self._task, request_checkpoint=self._request_flush))
        return self._sink

    def _request_flush(self) -> None:
        self._needs_flush = True

    def _letter(self, stream: str, failed: FailedRecord) -> RecordBatch:
        row_id = self._ids.id_of(stream, None, None, failed.data)
        record = UserRecord(failed.data, row_id, time.time(), failed.partition_key, failed.explicit_hash_key)
        shard = Shard(stream_name(stream), self._where.replace(" ", "-"))
        return DeadLetter(shard, record, self._reason(stream, failed)).batch()

    def _reason(self, stream: str, failed: FailedRecord) -> str:
        return (
            f"{self._where}: a row of {len(failed.data)} bytes with the partition key {failed.partition_key!r} was not put into {stream}: "
            f"{failed.error_code}: {failed.error_message}"
        )


def valid_rows(
    rows: pa.RecordBatch, columns: WriteColumns, stream: str | None, field: IdField | None, reject: RejectRow
) -> pa.RecordBatch:
    """Return the rows with data, a target and room for their id. Pass the other rows to `reject`.

    - `stream`: the target if no column names it.
    """
    problems = {
        **_nulls(rows, columns.stream, "stream"),
        **({} if field is None else _without_place_for_id(rows, columns, field)),
        **_nulls(rows, columns.data, "data"),
    }
    if not problems:
        return rows
    for row, problem in sorted(problems.items()):
        target = stream if columns.stream is None else _text(rows, columns.stream, row)
        key = _text(rows, columns.partition_key, row) or ""
        hash_key = _text(rows, columns.explicit_hash_key, row)
        data = data_of(rows.slice(row, 1).column(columns.data))[0] or b""
        reject(target or "null", FailedRecord(data, key, hash_key, VALIDATION_EXCEPTION, problem))
    return rows.filter(pa.array([row not in problems for row in range(rows.num_rows)]))


def _nulls(rows: pa.RecordBatch, place: int | None, name: str) -> dict[int, str]:
    if place is None or not rows.column(place).null_count:
        return {}
    missing = rows.column(place).is_null().to_pylist()
    return {row: f"the row has no {name} (null)" for row, is_missing in enumerate(missing) if is_missing}


def _without_place_for_id(rows: pa.RecordBatch, columns: WriteColumns, field: IdField) -> dict[int, str]:
    problems = ((row, field.problem_with(data)) for row, data in enumerate(data_of(rows.column(columns.data))) if data)
    return {row: problem for row, problem in problems if problem is not None}


def _text(rows: pa.RecordBatch, place: int | None, row: int) -> Any:
    return None if place is None else rows.column(place)[row].as_py()
