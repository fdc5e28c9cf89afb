"""CommittedPositions: the positions of a group whose sink commits: each worker's one part commits what its sink has staged (E1, E3)."""

from collections.abc import Sequence

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import FencedError, StateError, StoreUnavailableError

from ..checkpoints.commit_counts import CommitCounts
from ..checkpoints.commits import Commits
from ..committing_sink import CommittingSink, Staged
from ..conditional_store import ConditionalStore
from ..leases.documents.group_store import GroupStore, part_name
from ..leases.documents.position_part import PositionPart, Positions, is_stored, positions_to_json
from ..leases.documents.worker_record import WorkerRecord
from ..leases.position_store import PositionStore, read_positions, seal_part
from ..pipeline.emitter import Emitter


class SinkLives:
    """Owns which life of this process the sink has. A life stages nothing once the next one has begun."""

    def __init__(self, sink: CommittingSink, emitter: Emitter, clock: Clock) -> None:
        self.sink = sink
        self.counts = CommitCounts(clock)
        self._emitter = emitter
        self._life = ""

    async def begin(self, life: str) -> None:
        """When the last call of the life before has ended: what was written until then is dropped."""
        async with self._emitter.between_writes():
            await self.sink.begin(life)
            self._life = life

    @property
    def records(self) -> int:
        """Written to the sink, in all lives."""
        return self._emitter.records

    def check(self, life: str) -> None:
        """Raises: FencedError for a life that has ended. To be called while nothing is written."""
        if life != self._life:
            raise FencedError(f"worker {life} has ended: worker {self._life} has the sink now")


class CommittedPositions(PositionStore):
    """One life's part, and those of other workers. They lie where the sink has its entries, else in the store of the group.

    A commit that is undecided for a lease duration ends the life: it is sealed, and the process joins anew. Positions that were imported
    are in parts of the group's store: there no worker has written rows yet.
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
    ) -> None:
        """`store`: of the group. `duration`: of a lease, in seconds."""
        entries = lives.sink.entries()
        self._lives = lives
        self._sink = lives.sink
        self._group = group
        self._entries = None if entries is None else GroupStore(entries)
        self._worker = worker
        self._clock = clock
        self._duration = duration
        self._place = (entries or store).place
        self._commits = Commits(
            self._sink, entries or store, part_name(worker, 0), f"{job}/{worker}", counts=lives.counts
        )
        self._stored: Positions | None = None
        self._has_joined = False
        self._without_parts: set[str] = set()
        self._undecided_since: float | None = None

    @property
    def parts(self) -> int:
        """In the group's store: the part is there before the record names it."""
        return int(self._has_joined and self._entries is None)

    async def join(self) -> None:
        """Create the worker's part, before its record is written."""
        if not self._has_joined:
            await self._lives.begin(self._worker)
            await self.settle()
            await self.commit({})
            if self._entries is not None:
                await self._entries.refuse_subtasks()  # one that starts now sees the part (E10)
            self._has_joined = True

    async def settle(self) -> None:
        """Repeat a commit without an answer. Raises: FencedError, also when it stayed undecided for a lease duration."""
        was_undecided = self._commits.is_undecided
        try:
            await self._commits.settle()
        except StoreUnavailableError as error:
            self._check_time(error)
            raise
        if was_undecided:
            self._undecided_since = None

    async def stage(self) -> None:
        """Let the sink stage what it was given in this life."""
        self._lives.check(self._worker)
        await self._commits.stage(self._lives.records)

    async def commit(self, positions: Positions, *, is_checkpoint: bool = False) -> None:
        """Write the part, unless it is the same as before and nothing was staged."""
        names_staged = is_checkpoint and self._commits.has_staged
        if not names_staged and self._stored is not None and is_stored(positions, self._stored):
            return
        self._stored = None

        def value(number: int, staged: Sequence[Staged]) -> bytes:
            part = PositionPart(self._worker, number, positions=positions, staged=staged, target=self._sink.target())
            return part.to_bytes()

        try:
            await self._commits.commit(value, positions_to_json(positions), names_staged=is_checkpoint)
        except StoreUnavailableError as error:
            self._check_time(error)
            raise
        self._stored = positions

    async def publish(self) -> None:
        """Make visible what is committed."""
        await self._commits.publish()

    async def read(self, record: WorkerRecord) -> Positions:
        """Read a worker's parts."""
        return await read_positions(self._group, self._entries, record)

    async def seal(self, record: WorkerRecord) -> Positions:
        """Seal a worker's parts, publish what they name, and return the positions."""
        parts = [await self._seal(self._group, record.worker, number) for number in range(record.parts)]
        if self._entries is not None:
            parts.append(await self._seal(self._entries, record.worker, 0))
        sealed = [part for part in parts if part is not None]
        await self._sink.publish([staged for part in sealed for staged in part.staged])
        return {key: stored for part in sealed for key, stored in part.positions.items()}

    async def delete(self, worker: str) -> bool:
        """Delete a worker's part, when what it names is published, and what the worker has staged besides.

        The record stays until the sink has forgotten the worker: whoever comes next knows by it what to let the sink forget.
        """
        if worker not in self._without_parts:
            part = await self._seal(self._entries or self._group, worker, 0)
            await self._sink.publish([] if part is None else part.staged)
            await self._sink.discard(lambda life: life == worker, ())
            for place in (self._entries, self._group):
                if place is not None:
                    await place.delete_parts(worker)
            self._without_parts.add(worker)
        return await self._sink.forget(lambda life: life == worker)

    async def _seal(self, place: GroupStore, worker: str, number: int) -> PositionPart | None:
        await self._sink.end_life(worker)
        part = await seal_part(place, worker, number)
        if part is not None and part.target not in ("", self._sink.target()):
            raise StateError(
                f"the positions of worker {worker} in {place.place} belong to rows in {part.target}, and this process writes to "
                f"{self._sink.target()}: start with that sink again, or take the positions along with `recordpublisher positions`"
            )
        return part

    def _check_time(self, error: StoreUnavailableError) -> None:
        """Raises: FencedError when the commit has no answer for a lease duration."""
        now = self._clock.monotonic()
        if not self._commits.is_undecided:
            self._undecided_since = None
            return
        self._undecided_since = now if self._undecided_since is None else self._undecided_since
        if now - self._undecided_since >= self._duration:
            raise FencedError(
                f"{self._place} did not answer for {self._duration:g} s, and whether the last commit is stored is not known: {error}"
            ) from error
