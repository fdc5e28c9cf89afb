"""SparkSink: a sink that gives micro-batch DataFrames to a callback; the DataFetcher runs in the Spark driver's Python process."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from recordpublisher.fetcher.sink import Checkpoint, Sink, SinkContext, State
from recordpublisher.publishers.errors import SinkError
from recordpublisher.publishers.records import RecordBatch

from .delivery_log import DeliveryLog, RowRange
from .row_buffer import RowBuffer

Callback = Callable[[Any, int], object]
"""Takes a DataFrame and the number of the batch, like foreachBatch."""
REPLAY_BUFFER_FACTOR = 8
"""While a batch is repeated, the rows of later batches may take this many times `max_bytes`."""


class SparkSink(Sink):
    """Collects rows and hands them to `callback(df, batch_id)` in a thread, when there are `max_rows` rows, `max_bytes` of payload,
    or the oldest has waited `max_seconds`. While the callback runs, `write` waits: that is the back-pressure.

    With `state_path`, a file, the sink records there which rows a batch has before the callback gets them, and again when it has returned.
    After a crash in between, a restart delivers the same rows under the same number, then continues. So delivery is exactly once if the
    callback ignores a number that it has processed already. Without the file, the fetcher's own state decides where a restart begins, and
    batches are numbered from 0.
    """

    def __init__(
        self,
        spark: Any,
        callback: Callback,
        *,
        max_rows: int = 50_000,
        max_bytes: int = 64 * 2**20,
        max_seconds: float = 5.0,
        state_path: str | Path | None = None,
    ) -> None:
        self._spark = spark
        self._callback = callback
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._max_seconds = max_seconds
        self._state_path = None if state_path is None else Path(state_path)
        self._rows = RowBuffer({})
        self._log = DeliveryLog({})
        self._delivering = asyncio.Lock()
        self._timer: asyncio.Task[None] | None = None
        self._failure: SinkError | None = None

    async def open(self, context: SinkContext) -> State | None:
        """Return the state in the file, if there is one. Raises: StateError."""
        log = None if self._state_path is None else await asyncio.to_thread(DeliveryLog.read, self._state_path)
        if log is None:
            return None
        self._log, self._rows = log, RowBuffer(log.delivered)
        return log.state

    async def write(self, batch: RecordBatch) -> None:
        """Collect rows; deliver them when there are enough. Raises: SinkError when an earlier delivery failed."""
        self._raise_if_failed()
        async with self._delivering:
            self._rows.add(batch)
        if self._log.pending:
            await self._deliver()
            self._raise_if_buffer_is_full()
        if len(self._rows) >= self._max_rows or self._rows.bytes >= self._max_bytes:
            await self._deliver()
        elif self._timer is None and len(self._rows):
            self._timer = asyncio.create_task(self._deliver_later())

    async def flush(self, checkpoint: Checkpoint | None = None) -> None:
        """Deliver what is collected; store the state once the callback has returned (S6).

        While a batch is repeated, the state before it stays in the file, since some of its rows may be in memory only.
        """
        self._raise_if_failed()
        await self._deliver()
        if checkpoint is not None and not self._log.pending:
            await self._store(DeliveryLog(checkpoint.state, self._log.batch, dict(self._rows.skip)))

    async def close(self) -> None:
        """Stop the timer; rows that were not flushed are read again after a restart."""
        if self._timer is not None:
            self._timer.cancel()
            await asyncio.gather(self._timer, return_exceptions=True)

    async def _deliver(self) -> None:
        async with self._delivering:
            self._raise_if_failed()
            wanted = {key: entry[0] for key, entry in self._log.pending.items()} or self._rows.counts()
            if not wanted or not self._rows.holds(wanted):
                return
            table, ranges = self._rows.take(wanted)
            self._check_same(ranges)
            try:
                await self._store(replace(self._log, pending=ranges))
                await asyncio.to_thread(self._call, table, self._log.batch)
                await self._store(self._log.after_delivery())
            except Exception as error:
                # kept: a later flush must not confirm rows that the callback has not processed
                self._failure = SinkError(f"the callback failed for Spark batch {self._log.batch}: {error}")
                raise self._failure from error

    async def _store(self, log: DeliveryLog) -> None:
        """Write the log, if there is a file. Before the fetcher's first state there is nothing to store."""
        if self._state_path is not None and log.state:
            await asyncio.to_thread(log.write, self._state_path)
        self._log = log

    def _check_same(self, ranges: dict[str, RowRange]) -> None:
        pending = self._log.pending
        if pending and pending != ranges:
            self._failure = SinkError(
                f"Spark batch {self._log.batch} had {pending}, but reading them again gave {ranges}; are its records past retention?"
            )
            raise self._failure

    def _raise_if_buffer_is_full(self) -> None:
        if self._log.pending and self._rows.bytes > REPLAY_BUFFER_FACTOR * self._max_bytes:
            counts = self._rows.counts()
            missing = {key: entry[0] - counts.get(key, 0) for key, entry in self._log.pending.items()}
            raise SinkError(
                f"Spark batch {self._log.batch} cannot be repeated: rows missing by shard: {missing}, and the buffer is full"
            )

    async def _deliver_later(self) -> None:
        await asyncio.sleep(self._max_seconds)
        self._timer = None
        with contextlib.suppress(SinkError):  # the next write or flush raises it
            await self._deliver()

    def _raise_if_failed(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _call(self, table: Any, batch: int) -> None:
        self._callback(self._spark.createDataFrame(table), batch)
