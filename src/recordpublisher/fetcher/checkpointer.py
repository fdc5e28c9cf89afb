"""Takes checkpoints: the interface, and the implementation for a job that runs alone (in one process, without a group)."""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from recordpublisher.publishers.errors import StoreUnavailableError
from recordpublisher.publishers.properties.job_properties import DRAIN_TIMEOUT
from recordpublisher.publishers.properties.retry_properties import MAX_OUTAGE
from recordpublisher.publishers.retry import duration_words
from recordpublisher.publishers.safe_text import with_notes

from .checkpoints.checkpoint_schedule import CheckpointAge
from .checkpoints.shard_starts import AloneWorkerPort
from .checkpoints.snapshot_format import snapshot_to_json
from .checkpoints.staged_commits import CommitCounts
from .conditional_store import wait_for_store
from .dependencies import FetcherDependencies
from .pipeline.checked_sink_calls import copied_state, naming_sink, states_of_sink, unfinished_of
from .pipeline.dead_letters import DeadLetterHandler
from .pipeline.emitter import Emitter
from .pipeline.process_suspension import TICK_SECONDS
from .shards.shard_state import ShardState
from .shards.shard_table import ShardTable
from .sink import Checkpoint
from .startup import OpenedJob

log = logging.getLogger("recordpublisher.fetcher")
LAST_PAUSE_SECONDS = 1.0
"""Seconds between two checkpoints at the end of a run, while the sink still works on records."""
LAST_PROGRESS_SECONDS = 60.0
"""If the sink makes no progress for this time at the end of a run, a complete checkpoint is taken (seconds).

The sink may be waiting for such a checkpoint.
"""


class Checkpointer(ABC):
    """Stores how far each shard was written to the sink, but only as far as the sink has confirmed the records.

    - `times`: when its checkpoints began and were stored.
    - `commit_counts`: counts and times of the commits of a `CommittingSink`; None for other sinks.
    """

    times: CheckpointAge
    commit_counts: CommitCounts | None = None

    @abstractmethod
    async def checkpoint(self) -> dict[str, Any]:
        """Flush the sink, store all positions, and return a snapshot of them.

        Raises: FencedError if another process has taken over the positions; StateError if the positions cannot be stored; SinkError if the
        sink fails.
        """

    @abstractmethod
    async def take_periodic(self) -> None:
        """Take a checkpoint after an interval or on request.

        A sink with unfinished records may return an older state (`Sink.flush`). Then that state is stored.
        """

    async def take_first(self) -> None:
        """Store the state that the job starts from. Called after the job was opened, before the first read."""
        await self.checkpoint()

    @abstractmethod
    async def take_last(self, *, is_stopped: bool) -> None:
        """Store everything that was written, at the end of a run.

        `is_stopped`: whether `stop` has ended the run. If so, records that the sink has not begun to handle may be left to the job's next
        run.
        """


class Snapshotter:
    """Takes snapshots of how far each shard was written to the sink.

    Each snapshot also contains the generation (the number of this start of the job), and the time that replaced LATEST at the job's first
    start.

    `kept_states`: returns the states of shards that are not read now.
    """

    def __init__(
        self, job: FetcherDependencies, table: ShardTable, kept_states: Callable[[], Mapping[str, ShardState]] = dict
    ) -> None:
        self._job = job
        self._table = table
        self._kept_states = kept_states
        self._generation = 0
        self._pinned_ms: int | None = None

    def resume_from(self, opened: OpenedJob) -> None:
        """Take the generation, and the time that replaced LATEST, from the opened job. All later snapshots contain them."""
        self._generation, self._pinned_ms = opened.generation, opened.pinned_ms

    def snapshot(self) -> dict[str, Any]:
        """Return a snapshot that covers exactly the records for which the sink's `write` has returned.

        Raises: StateError if the job was not opened.
        """
        return snapshot_to_json(
            {**self._kept_states(), **self._table.states()},
            self._pinned_ms,
            self._generation,
            self._job.clock.now_ms(),
        )


class SnapshotCheckpointer(Checkpointer):
    """Takes the checkpoints of a process that runs alone, one at a time.

    It stores snapshots in the state store, or in the sink if the sink keeps positions.
    """

    def __init__(
        self, job: FetcherDependencies, snapshotter: Snapshotter, emitter: Emitter, dead_letters: DeadLetterHandler
    ) -> None:
        self._job = job
        self._snapshotter = snapshotter
        self._emitter = emitter
        self._dead_letters = dead_letters
        self._lock = asyncio.Lock()
        self.times = CheckpointAge(job.clock)
        self.commit_counts = None if job.committing_worker is None else job.committing_worker.counts

    async def checkpoint(self) -> dict[str, Any]:
        """Take a snapshot, flush the sink, then store the snapshot."""
        return await self._checkpoint(Checkpoint({}))

    async def take_periodic(self) -> None:
        """Store a snapshot, or the older one that the sink returns instead.

        If the store is unavailable, log a warning: the next checkpoint stores a newer snapshot.

        Raises: StoreUnavailableError if no checkpoint could be stored for `flink.job.max.outage`. If checkpoints are taken on request only,
        it is raised at once, because no later checkpoint would try again.
        """
        settings = self._job.settings
        try:
            await self._checkpoint(Checkpoint({}, may_be_partial=True))
        except StoreUnavailableError as error:
            if settings.checkpoint_interval_ms < 0:
                raise
            if self.times.running_ms >= settings.max_outage_ms:
                # The next tick shows whether the process was suspended. Its call fails then, although the store was not away.
                await asyncio.sleep(2 * TICK_SECONDS)
            if (running_ms := self.times.running_ms) >= settings.max_outage_ms:
                lasted = duration_words(running_ms / 1000)
                words = f"{with_notes(error)}; no checkpoint could be stored for {lasted}. To wait longer, raise {MAX_OUTAGE.key}"
                raise StoreUnavailableError(words) from error
            self.times.warn_of_failure(error)

    async def take_last(self, *, is_stopped: bool) -> None:
        """Flush the sink and store the last checkpoint.

        While the sink still handles records, its progress is stored again and again, because the remaining records may fail or never be
        finished.

        If the store does not answer, wait for up to `flink.job.drain.timeout`, because no later checkpoint tries again. Without a state
        store, the sink must finish all records: the user keeps the result of `snapshot()`, which covers every write.
        """
        before = self._snapshotter.snapshot()["shards"]
        stopped = before.keys() if is_stopped and self._job.storing_worker is not None else ()
        last, monotonic = Checkpoint({}, stopped=stopped, is_last=True), self._job.clock.monotonic
        stored, since = None, monotonic()
        while (done := (await self._wait_for(replace(last, may_be_partial=True)))["shards"]) != before:
            if done != stored:
                stored, since = done, monotonic()
            if monotonic() - since > LAST_PROGRESS_SECONDS or not await self._is_sink_busy():
                await self._wait_for(last)
                return

    async def _wait_for(self, asked: Checkpoint) -> dict[str, Any]:
        settings = self._job.settings
        outages = replace(settings.store_outages, max_outage_ms=settings.drain_ms, decided_by=DRAIN_TIMEOUT.key)
        return await wait_for_store(partial(self._checkpoint, asked), outages, "the state store or the sink")

    async def _is_sink_busy(self) -> bool:
        until = self._job.clock.monotonic() + LAST_PAUSE_SECONDS
        while (unfinished := unfinished_of(self._job.sink)) is not None and unfinished.records:
            if self._job.clock.monotonic() >= until:
                return True
            await asyncio.sleep(LAST_PAUSE_SECONDS / 20)
        return False

    async def _checkpoint(self, asked: Checkpoint) -> dict[str, Any]:
        async with self._lock:
            with self.times.measured():
                state = await self._flush_and_store(asked)
        return state

    async def _flush_and_store(self, asked: Checkpoint) -> dict[str, Any]:
        state = await (
            self._flush(asked) if self._job.committing_worker is None else self._commit(self._job.committing_worker)
        )
        if self._job.storing_worker is not None:
            with self.times.storing():
                await self._job.storing_worker.store(state)
        return state

    async def _commit(self, commits: AloneWorkerPort) -> dict[str, Any]:
        """Let the sink stage its rows (make them durable), commit them together with a snapshot, and publish them (make them visible).

        No write may run between the snapshot and the end of the commit. Writes may run while the rows are published.
        """
        async with self._emitter.between_writes():
            await commits.settle()
            await self._dead_letters.flush()
            state = self._snapshotter.snapshot()
            with self.times.storing():
                await commits.commit(state, self._emitter.records)
        await commits.publish()
        return state

    async def _flush(self, asked: Checkpoint) -> dict[str, Any]:
        async with self._emitter.between_writes():
            state = self._snapshotter.snapshot()
            await self._dead_letters.flush()
            with naming_sink(self._job.sink, "flush"):
                confirmed: Any = await self._job.sink.flush(replace(asked, state=copied_state(state)))
            found = states_of_sink(self._job.sink, "flush", confirmed)
            return dict(found[0]) if found else state
