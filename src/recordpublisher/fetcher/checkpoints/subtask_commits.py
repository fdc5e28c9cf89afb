"""Commits what a sink has staged with the snapshot of one subtask of a fixed number (STATIC, S6)."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from recordpublisher.publishers.clock import Clock, SystemClock
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.groups.job import JOB_NAME

from ..committing_sink import CommittingSink, Staged
from ..conditional_store import ConditionalStore
from ..sink import State
from .assignment_kinds import PARTS, SUBTASK_PREFIX, refuse_assignment
from .commit_counts import CommitCounts
from .commits import Commits, tell_of_others
from .snapshot_store import SnapshotStore
from .state_entries import StateEntry, entry_name, job_part, parsed_life


class SubtaskCommits:
    """Owns the generation of this start, its commits, and whether entries of another parallelism are still to be emptied."""

    def __init__(
        self,
        sink: CommittingSink,
        store: ConditionalStore,
        job_name: str | None,
        subtask: int,
        parallelism: int,
        clock: Clock | None = None,
    ) -> None:
        self._sink = sink
        self._store = store
        self._snapshots = SnapshotStore(store, job_name)
        self._job = job_name or "job"
        self._subtask = subtask
        self._parallelism = parallelism
        self._entry = StateEntry()
        self._commits: Commits | None = None
        self._has_former = False
        self._origins: set[str] = set()
        self.counts = CommitCounts(clock or SystemClock())

    async def open(self) -> list[State]:
        """Begin the next generation, publish what entries name, discard what ended starts have left, and return every snapshot.

        From now on, earlier starts of this subtask are fenced, and so are all subtasks that this start does not have.

        Raises: ConfigurationError if entries have another target, which is checked before a running job is replaced; StateError if the
        positions cannot be used; StoreUnavailableError if the store or the destination cannot be reached now.
        """
        stored = await self._snapshots.own_entries()
        self._check_target(stored)
        await self._refuse_group()
        await self._end_lives(stored)
        await self._snapshots.open_generation(self._subtask)
        await self._refuse_group()  # checked again, because a worker that joins from now on sees the entry (E10)
        await self._snapshots.fence_subtasks_from(self._parallelism)
        entries = await self._snapshots.entries()
        named = [staged for entry in entries.values() for staged in entry.staged]
        await self._sink.publish(named)
        version, known = self._snapshots.known(self._subtask)
        self._entry = entry = StateEntry(known.generation, target=self._sink.target(), life=known.life, job=known.job)
        lives = (parsed_life(each.life) for each in entries.values())
        self._origins = {life[2] for life in lives if life is not None}
        await self._sink.discard(self._has_ended, named)
        lives_named = {each.number.writer.rpartition("/")[2] for each in named}
        await self._sink.forget(lambda life: life not in lives_named and self._has_ended(life))
        if all(entry.snapshot is None for entry in entries.values()):
            await tell_of_others(self._sink, self._store.place)
        await self._sink.begin(entry.life)
        writer, name = f"{self._job}/{entry.life}", entry_name(self._subtask)
        self._commits = Commits(
            self._sink, self._store, name, writer, version=version, positions=known.snapshot, counts=self.counts
        )
        ours = {entry_name(subtask) for subtask in range(self._parallelism)}
        self._has_former = any(entry.snapshot is not None for name, entry in entries.items() if name not in ours)
        return [entry.snapshot for entry in entries.values() if entry.snapshot is not None]

    async def settle(self) -> None:
        """Repeat an undecided commit until its outcome is known. Call this before the snapshot is taken.

        Raises: FencedError if another process has written the entry; StoreUnavailableError if the store cannot be reached now; StateError
        if waiting does not help.
        """
        await self._opened.settle()

    async def commit(self, state: dict[str, Any], records: int = 0) -> None:
        """Stage what was written, and commit it with this snapshot, which must cover exactly these records.

        No write may be in progress. `records`: number of records written so far. Raises: the errors of `settle` and of the sink.
        """
        await self._opened.stage(records)

        def value(number: int, staged: Sequence[Staged]) -> bytes:
            entry = replace(self._entry, checkpoint=number, snapshot=state, staged=staged)
            return entry.to_bytes()

        await self._opened.commit(value, state)

    async def publish(self) -> None:
        """Make visible what is committed, and empty the entries of another parallelism once every subtask has committed.

        Raises: StoreUnavailableError if the destination cannot be reached now; StateError if a staged item is missing; FencedError if
        another process has written the entry.
        """
        await self._opened.publish()
        if self._has_former:
            self._has_former = not await self._snapshots.forget_former(self._parallelism)

    async def check_owner(self) -> None:
        """Check that this start still owns its entry.

        Raises: FencedError if another generation owns it; StateError if it cannot be read.
        """
        await self._snapshots.check_owner(self._subtask, self._entry.generation)

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()

    @property
    def _opened(self) -> Commits:
        if self._commits is None:
            raise AssertionError("the commits are not open")
        return self._commits

    async def _refuse_group(self) -> None:
        """Raise StateError if a group of workers keeps its positions where the sink has its entries (E10)."""
        if self._sink.entries() is not None and await self._store.list_names(PARTS):
            refuse_assignment(self._store.place, "ELASTIC", "STATIC")

    async def _end_lives(self, entries: dict[str, StateEntry]) -> None:
        """Release the locks of replaced lives, so that one that is suspended within a commit does not delay this start."""
        for name, entry in entries.items():
            number = name.removeprefix(SUBTASK_PREFIX)
            if entry.life and (int(number) == self._subtask or int(number) >= self._parallelism):
                await self._sink.end_life(entry.life)

    def _check_target(self, entries: dict[str, StateEntry]) -> None:
        target = self._sink.target()
        if other := next((entry.target for entry in entries.values() if entry.target not in ("", target)), None):
            reason = (
                f"the positions in {self._store.place} belong to rows in {other}: another one would begin in the middle"
            )
            anew = (
                f"to begin again another {JOB_NAME.key} (its positions are its own), or delete these rows and positions"
            )
            raise ConfigurationError("sink", target, f"{other}; {anew}", reason=reason)

    def _has_ended(self, life: str) -> bool:
        """Return whether this start has replaced a life of this job: an older start of this subtask, or of a subtask that it has fenced."""
        if (parsed := parsed_life(life)) is None:
            return False
        job, subtask, origin, generation, _ = parsed
        if job != job_part(self._entry.job or self._job) or origin not in self._origins:
            return False
        is_replaced = subtask == self._subtask or subtask >= self._parallelism
        return is_replaced and generation < self._entry.generation
