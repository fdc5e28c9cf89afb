"""SpoolSink: the sink of a long-running fetcher; what it writes becomes files and steps of its lane."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from recordpublisher.fetcher.sink import Checkpoint, Sink, SinkContext, State
from recordpublisher.plugins.sinks.commit_guard import CommitGuard
from recordpublisher.plugins.spark.continuous_options import SpoolSettings
from recordpublisher.publishers.errors import SinkError
from recordpublisher.publishers.records import RecordBatch

from .lane import Lane
from .room import Room
from .rows import Waiting

QUIET_SECONDS = 300.0
"""While no record comes, the lane says so seldom how far it is: every word of it is one more for the query to pass over."""


class SpoolSink(Sink):
    """Owns the rows that wait for the next file.

    A file is made at a checkpoint, whose state goes into the same manifest (S6): asked for when the first row has waited for the roll
    interval, or there are enough of them. `write` waits while the lane is full. `global_watermark` answers the job's.
    """

    def __init__(self, lane: Lane, settings: SpoolSettings, global_watermark: Callable[[], int | None]) -> None:
        self._lane = lane
        self._settings = settings
        self._global_watermark = global_watermark
        limit = max(1, settings.limit_bytes // lane.generation.lanes)
        self._room = Room(lane.store, lane.generation.number, lane.number, limit)
        self._context = SinkContext()
        self._guard = CommitGuard()
        self._rows = Waiting()
        self._timer: asyncio.TimerHandle | None = None
        self._begun: set[str] = set()
        self._said: dict[str, object] | None = None
        self._said_at = 0.0
        self.records = 0

    async def open(self, context: SinkContext) -> State:
        """Take the lane over and go on from where all lanes stand. Raises: FencedError, StateError."""
        self._context = context
        state = await self._lane.take_over()
        self._begun = {key for key, entry in state["shards"].items() if "position" in entry}
        await self._room.open()
        return state

    async def write(self, batch: RecordBatch) -> None:
        """Keep the rows for the next file; waits while the query has too much to read."""
        await self._room.wait()
        key = batch.shard.key
        await self._rows.take(batch, key not in self._begun)
        self._begun.add(key)
        if self._rows.payload >= self._settings.roll_bytes or self._rows.count >= self._settings.roll_records:
            self._context.request_checkpoint()
        elif self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._settings.roll_seconds, self._context.request_checkpoint)

    async def flush(self, checkpoint: Checkpoint | None = None) -> None:
        """Make a file of what waits and add it to the lane, with the state behind it.

        Raises: FencedError when somebody else has the lane, StateError.
        """
        if checkpoint is None:
            if self._rows.count:
                raise SinkError("the spool makes files at checkpoints only: it needs one to flush")
            return
        self._stop_timer()
        if not self._rows.count and not self._is_news(checkpoint.state):
            return
        with self._guard:
            await self._append(checkpoint.state)

    async def close(self) -> None:
        """Let the rows go that were not stored: the next attempt reads them again."""
        self._stop_timer()

    def give_up_waiting(self) -> None:
        """The fetcher stops: a write that waits for room returns."""
        self._room.give_up()

    async def _append(self, state: State) -> None:
        rows = await asyncio.to_thread(self._rows.spooled) if self._rows.count else None
        place = await self._lane.append(rows, state, self._global_watermark())
        self._room.took(place, 0 if rows is None else rows.payload)
        self.records += 0 if rows is None else rows.count
        self._rows = Waiting()
        self._said, self._said_at = _progress(state), asyncio.get_running_loop().time()

    def _is_news(self, state: State) -> bool:
        is_due = asyncio.get_running_loop().time() - self._said_at >= QUIET_SECONDS
        return is_due or self._said != _progress(state)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _progress(state: State) -> dict[str, object]:
    """What of a state cannot wait: records and ends; where an empty read stood is worth a step now and then."""
    return {
        key: (entry.get("position"), entry.get("sub"), entry.get("ended"), entry.get("waiting"))
        for key, entry in state["shards"].items()
    }
