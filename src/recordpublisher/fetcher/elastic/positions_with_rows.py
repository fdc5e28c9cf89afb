"""Stores a worker's positions together with the rows of a `CommittingSink` (E1, E3).

One write of the worker's part, the document with its positions, commits both.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import FencedError, StateError, StoreUnavailableError

from ..checkpoints.committing_calls import CommittingCalls
from ..checkpoints.staged_commits import CommitCounts, Commits
from ..conditional_store import ConditionalStore
from ..leases.group_store import GroupStore, part_name, read_positions
from ..leases.position_documents import PositionPart, Positions, is_stored, positions_to_json
from ..leases.position_store import PositionStore
from ..leases.worker_record import WorkerRecord
from ..leases.worker_sealing import seal_part
from ..pipeline.emitter import Emitter
from ..sink import CommittingSink, Staged, entry_store_of


class PositionsWithRows(PositionStore):
    """The positions of a worker whose sink is a `CommittingSink`, and access to the positions of other workers.

    The worker's positions are in one document, its part. The part also names the staged items that it commits: rows or files that are
    durable and not visible yet. The part is stored next to the rows if the sink has a store there (`CommittingSink.entries`), else in the
    group's store. Imported positions are in the group's store until a worker has written rows for them.

    If the outcome of a commit stays unknown for a lease duration, the worker ends, and the process joins the group again as a new worker.

    - `lives`: which worker of this process may use the sink now.
    - `store`: the group's state store.
    - `duration`: length of a lease in seconds.
    """

    def __init__(
        self,
        lives: SinkLives,
        store: ConditionalStore,
        group: GroupStore,
        worker: str,
        *,
        job: str,
        clock: Clock,
        duration: float,
        is_alone: bool = False,
    ) -> None:
        entries = entry_store_of(lives.sink)
        self._lives = lives
        self._sink = CommittingCalls(lives.sink)
        self._group = group
        self._entries = None if entries is None else GroupStore(entries)
        self._worker = worker
        self._clock = clock
        self._duration = duration
        self._is_alone = is_alone
        self._place = (entries or store).place
        self._commits = Commits(
            lives.sink, entries or store, part_name(worker, 0), f"{job}/{worker}", counts=lives.counts
        )
        self._stored: Positions | None = None
        self._has_joined = False
        self._without_parts: set[str] = set()
        self._undecided_since: float | None = None

    @property
    def entries(self) -> GroupStore | None:
        """The store of positions next to the sink's rows, or None if the positions are in the group's store."""
        return self._entries

    @property
    def parts(self) -> int:
        """Number of documents with positions (parts) that the worker's record must name: 1 if there is one in the group's store, else 0."""
        return int(self._has_joined and self._entries is None)

    async def join(self) -> None:
        """Create the document with the worker's positions (its part). Called before the worker's record, which names it, is written."""
        if not self._has_joined:
            await self._lives.begin(self._worker)
            await self.settle()
            await self.commit({})
            self._has_joined = True

    async def settle(self) -> None:
        """Find out the outcome of a commit that got no answer, by repeating it.

        Raises: FencedError if another process has written this worker's positions, or if the outcome stayed unknown for a lease duration;
        StoreUnavailableError if the store cannot be reached now; StateError if waiting does not help.
        """
        was_undecided = self._commits.is_undecided
        try:
            await self._commits.settle()
        except StoreUnavailableError as error:
            self._check_time(error)
            raise
        if was_undecided:
            self._undecided_since = None

    async def stage(self) -> None:
        """Let the sink stage the records that this worker has written.

        Raises: FencedError if another worker of this process uses the sink now; the errors of the sink.
        """
        self._lives.check(self._worker)
        await self._commits.stage(self._lives.records)

    async def commit(self, positions: Positions, *, is_checkpoint: bool = False) -> bool:
        """Store the positions, and commit the staged items with them. Do nothing if no position has changed and nothing was staged.

        Return whether anything was written. Raises: the errors of `settle`.
        """
        names_staged = is_checkpoint and self._commits.has_staged
        if not names_staged and self._stored is not None and is_stored(positions, self._stored):
            return False
        self._stored = None

        def value(number: int, staged: Sequence[Staged]) -> bytes:
            part = PositionPart(
                self._worker,
                number,
                positions=positions,
                staged=staged,
                target=self._sink.target(),
                pinned_ms=self.pinned_ms,
                taken_ms=self.taken_ms,
                is_alone=self._is_alone,
            )
            return part.to_bytes()

        try:
            await self._commits.commit(value, positions_to_json(positions), names_staged=is_checkpoint)
        except StoreUnavailableError as error:
            self._check_time(error)
            raise
        self._stored = positions
        return True

    async def publish(self) -> None:
        """Make the committed rows visible."""
        await self._commits.publish()

    async def read(self, record: WorkerRecord) -> Positions:
        """Return the stored positions of a worker, from every place that may have some."""
        return await read_positions(self._group, self._entries, record)

    async def seal(self, record: WorkerRecord) -> Positions:
        """Seal a worker's positions, so that it can commit nothing more. Publish the items that it has committed, and return its positions.

        Raises: StateError if the positions belong to rows in another target; StoreUnavailableError if the store or the destination cannot
        be reached now.
        """
        parts = [await self._seal(self._group, record.worker, number) for number in range(record.parts)]
        if self._entries is not None:
            parts.append(await self._seal(self._entries, record.worker, 0))
        sealed = [part for part in parts if part is not None]
        await self._sink.publish([staged for part in sealed for staged in part.staged])
        return {key: stored for part in sealed for key, stored in part.positions.items()}

    async def delete(self, worker: str) -> bool:
        """Publish what a sealed worker has committed. Then delete its positions, and what it has staged and not committed.

        Return True if the sink remembers nothing more of the worker. Then the worker's record can be deleted too. If the result is False,
        keep the record, and call this again later.
        """
        if worker not in self._without_parts:
            # A worker that took no shard, such as one that was refused because of a wrong table, has stored nothing that belongs to rows.
            part = await self._seal(self._entries or self._group, worker, 0, may_be_empty=True)
            await self._sink.publish([] if part is None else part.staged)
            await self._sink.discard(lambda life: life == worker, ())
            for place in (self._entries, self._group):
                if place is not None:
                    await place.delete_parts(worker)
            self._without_parts.add(worker)
        return await self._sink.forget_ended_lives(lambda life: life == worker)

    async def _seal(
        self, place: GroupStore, worker: str, number: int, *, may_be_empty: bool = False
    ) -> PositionPart | None:
        await self._sink.end_life(worker)
        part = await seal_part(place, worker, number)
        if part is not None and part.target not in ("", self._sink.target()) and not (may_be_empty and _is_empty(part)):
            raise StateError(
                f"the positions of worker {worker} in {place.place} belong to rows in {part.target}, and this process writes to "
                f"{self._sink.target()}: start with the sink that writes to {part.target}, or move the positions with "
                "`recordpublisher positions`"
            )
        return part

    def _check_time(self, error: StoreUnavailableError) -> None:
        now = self._clock.monotonic()
        if not self._commits.is_undecided:
            self._undecided_since = None
            return
        self._undecided_since = now if self._undecided_since is None else self._undecided_since
        if now - self._undecided_since >= self._duration:
            raise FencedError(
                f"{self._place} did not answer for {self._duration:g} s, so it is not known whether the last commit is "
                f"stored: {error}"
            ) from error


class SinkLives:
    """Decides which worker of this process may use the `CommittingSink`. In a group, a process is one worker after another.

    The argument `life` is the name of a worker, which is one run of the process. When the next run has begun, an earlier run can stage
    nothing.
    """

    def __init__(self, sink: CommittingSink, emitter: Emitter, clock: Clock) -> None:
        self.sink = sink
        self.counts = CommitCounts(clock)
        self._emitter = emitter
        self._life = ""

    async def begin(self, life: str) -> None:
        """Let the worker `life` use the sink, after the last call of the previous worker has ended.

        Rows that the previous worker has not committed are dropped.
        """
        async with self._emitter.between_writes():
            await CommittingCalls(self.sink).begin(life)
            self._life = life

    @property
    def records(self) -> int:
        """Number of records written to the sink by all workers of this process."""
        return self._emitter.records

    def check(self, life: str) -> None:
        """Check that the worker `life` still uses the sink. Call this while no write is in progress.

        Raises: FencedError if another worker of this process uses the sink.
        """
        if life != self._life:
            raise FencedError(f"worker {life} has ended: worker {self._life} of the same process uses the sink now")


class AloneSinkLives(SinkLives):
    """Lets the only worker of a process that runs alone use the sink. The checkpointer makes sure that no write runs during `stage`."""

    def __init__(self, sink: CommittingSink, clock: Clock) -> None:
        super().__init__(sink, self, clock)  # type: ignore[arg-type]
        self._written = 0

    def note_written(self, records: int) -> None:
        """Set how many records were written to the sink so far."""
        self._written = records

    @asynccontextmanager
    async def between_writes(self) -> AsyncIterator[None]:
        """Do nothing: no write can run now, because the worker begins before the first write."""
        yield

    @property
    def records(self) -> int:
        """Number of records written to the sink."""
        return self._written


def _is_empty(part: PositionPart) -> bool:
    return not part.positions and not part.staged
