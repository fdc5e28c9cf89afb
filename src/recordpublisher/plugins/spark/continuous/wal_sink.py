"""WalSink: the fetcher's sink, which writes batches as files of rows and entries of the write-ahead log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from recordpublisher.fetcher.sink import Checkpoint, Sink, SinkContext, State
from recordpublisher.plugins.sinks.failed_commit_guard import FailedCommitGuard
from recordpublisher.publishers.errors import SinkError
from recordpublisher.publishers.records import RecordBatch

from ..continuous_options import ContinuousSettings
from .back_pressure import BackPressure
from .row_file import PendingRows
from .wal_writer import WalWriter

QUIET_SECONDS = 300.0
"""How often positions are logged while no record arrives: the query has to read past every such entry."""


class WalSink(Sink):
    """Owns the rows of the next file.

    A file is made at a checkpoint, whose state goes into the same entry (S6). The sink requests one when the first row has waited for
    the roll interval, or when there are enough rows. `state` is that of the log's last entry at the start.
    """

    def __init__(
        self,
        writer: WalWriter,
        state: State,
        pressure: BackPressure,
        settings: ContinuousSettings,
        global_watermark: Callable[[], int | None],
    ) -> None:
        self._writer = writer
        self._state = state
        self._pressure = pressure
        self._settings = settings
        self._global_watermark = global_watermark
        self._context = SinkContext()
        self._guard = FailedCommitGuard()
        self._rows = PendingRows()
        self._timer: asyncio.TimerHandle | None = None
        self._logged: dict[str, object] | None = None
        self._logged_at = 0.0
        self.records = 0

    async def open(self, context: SinkContext) -> State:
        """Return the state at which the log ends. Raises: StateError."""
        self._context = context
        await self._pressure.count_unread(self._writer.store)
        return self._state

    async def write(self, batch: RecordBatch) -> None:
        """Keep the rows for the next file; waits while too many rows are unread by the query. Raises: FencedError."""
        while self._pressure.is_full():
            await self._pressure.wait()
            await self._writer.check_ownership()
        await self._rows.add(batch)
        if self._rows.payload >= self._settings.roll_bytes or self._rows.count >= self._settings.roll_records:
            self._context.request_checkpoint()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._settings.roll_seconds, self._context.request_checkpoint)

    async def flush(self, checkpoint: Checkpoint | None = None) -> None:
        """Append the waiting rows to the log as one file, with the state after them.

        Raises: FencedError when another start has taken over the log, StateError.
        """
        if checkpoint is None:
            if self._rows.count:
                raise SinkError(
                    "rows are written to the write-ahead log only at checkpoints: `flush` needs a checkpoint"
                )
            return
        self._stop_timer()
        if not self._rows.count and not self._must_log(checkpoint.state):
            return
        with self._guard:
            await self._append(checkpoint.state)

    async def close(self) -> None:
        """Drop the rows that are not stored: the next start reads them again."""
        self._stop_timer()

    async def _append(self, state: State) -> None:
        rows = await asyncio.to_thread(self._rows.to_file) if self._rows.count else None
        number = await self._writer.append(rows, state, self._global_watermark())
        self._pressure.add(number, 0 if rows is None else rows.payload)
        self.records += 0 if rows is None else rows.count
        self._rows = PendingRows()
        self._logged, self._logged_at = _progress(state), asyncio.get_running_loop().time()

    def _must_log(self, state: State) -> bool:
        is_due = asyncio.get_running_loop().time() - self._logged_at >= QUIET_SECONDS
        return is_due or self._logged != _progress(state)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _progress(state: State) -> dict[str, object]:
    """The parts of a state that are logged at once: records and shard ends. Positions of empty reads are logged only now and then."""
    return {
        key: (entry.get("position"), entry.get("subSequenceNumber"), entry.get("ended"), entry.get("waitingForParents"))
        for key, entry in state["shards"].items()
    }
