"""SparkSink: the push direction, micro-batch DataFrames from a DataFetcher that runs beside the Spark driver."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ....fetcher.sink import Checkpoint, Sink, SinkContext, State
from ....publishers.errors import SinkError
from ....publishers.records import RecordBatch
from .columns import ArrowRows

Callback = Callable[[Any, int], object]
"""Takes a DataFrame and the batch's number, like foreachBatch."""


class SparkSink(Sink):
    """Collects rows and hands them to `callback(df, batch_id)` in a thread, when there are `max_rows` rows, `max_bytes` of payload,
    or the oldest has waited `max_seconds`. While the callback runs, `write` waits: that is the back-pressure.

    `state_path`: a file that keeps the number of the next batch and the state of the last checkpoint, so that a restarted job goes on
    there. What was delivered after the last checkpoint is delivered again, under the same numbers, but may be cut into batches
    differently: at least once. The exact way is `format("kinesis")`.
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
        self._rows = ArrowRows()
        self._bytes = 0
        self._next_batch = 0
        self._delivering = asyncio.Lock()
        self._timer: asyncio.Task[None] | None = None
        self._failure: SinkError | None = None

    async def open(self, context: SinkContext) -> State | None:
        """Go on from the kept state, if there is any."""
        if self._state_path is None or not self._state_path.exists():
            return None
        kept = json.loads(self._state_path.read_text())
        self._next_batch = kept["batch"]
        state: State = kept["state"]
        return state

    async def write(self, batch: RecordBatch) -> None:
        """Collect; deliver when there is enough. Raises: SinkError when an earlier delivery failed."""
        self._raise_if_failed()
        async with self._delivering:
            await self._rows.write(batch)
            self._bytes += batch.raw_bytes
        if len(self._rows) >= self._max_rows or self._bytes >= self._max_bytes:
            await self._deliver()
        elif self._timer is None and len(self._rows):
            self._timer = asyncio.create_task(self._deliver_later())

    async def flush(self, checkpoint: Checkpoint | None = None) -> None:
        """Deliver what is collected; keep the state once the callback has returned (S6)."""
        self._raise_if_failed()
        await self._deliver()
        if checkpoint is not None and self._state_path is not None:
            await asyncio.to_thread(_keep, self._state_path, self._next_batch, checkpoint.state)

    async def close(self) -> None:
        """Let go of the timer; rows that were not flushed are read again after a restart."""
        if self._timer is not None:
            self._timer.cancel()
            await asyncio.gather(self._timer, return_exceptions=True)

    async def _deliver(self) -> None:
        async with self._delivering:
            if not len(self._rows):
                return
            rows, self._rows, self._bytes = self._rows, ArrowRows(), 0
            try:
                await asyncio.to_thread(self._call, rows, self._next_batch)
            except Exception as error:
                # for good: a later flush must not confirm rows that were never taken
                self._failure = SinkError(f"the callback failed for Spark batch {self._next_batch}: {error}")
                raise self._failure from error
            self._next_batch += 1

    async def _deliver_later(self) -> None:
        await asyncio.sleep(self._max_seconds)
        self._timer = None
        with contextlib.suppress(SinkError):  # the next write or flush raises it
            await self._deliver()

    def _raise_if_failed(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _call(self, rows: ArrowRows, batch: int) -> None:
        self._callback(self._spark.createDataFrame(rows.table()), batch)


def _keep(path: Path, next_batch: int, state: State) -> None:
    """Replace the file as a whole: a reader sees the old state or the new one."""
    aside = path.with_suffix(".tmp")
    with aside.open("w") as file:
        json.dump({"batch": next_batch, "state": state}, file)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
