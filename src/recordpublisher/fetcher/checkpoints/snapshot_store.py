"""Stores each subtask's snapshot with its generation in a conditional store (S6)."""

import logging
from dataclasses import replace
from typing import Any

from recordpublisher.publishers.errors import FencedError, StateError

from ..conditional_store import ConditionalStore, ConflictError, Stored, VersionedValue, pause, write_value
from ..sink import State
from .assignment_kinds import LEASE_TABLE, refuse_assignment, refuse_other_job
from .state_entries import StateEntry, entry_name, life_name, read_entries

log = logging.getLogger("recordpublisher.start")
_ATTEMPTS = 10


class SnapshotStore:
    """The snapshots of a job's subtasks in a conditional store. Owns the version of each entry that this process has last written.

    Each start replaces the entry by one with a higher generation. A process can replace an entry only if it knows its version, and earlier
    starts do not know the new version. So neither a replaced process nor a delayed retry can bring back an older position.

    `job_name` is `flink.job.name`; positions of another job are refused.
    """

    def __init__(self, store: ConditionalStore, job_name: str | None = None) -> None:
        self._store = store
        self._job = job_name or ""
        self._known: dict[int, tuple[str, StateEntry]] = {}

    async def load(self) -> list[State]:
        """Return every subtask's snapshot. Raises: StateError, with the entry's name, if an entry cannot be read."""
        return [entry.snapshot for entry in (await self.entries()).values() if entry.snapshot is not None]

    async def entries(self) -> dict[str, StateEntry]:
        """Return every entry by name. Raises: StateError, with the entry's name, if an entry cannot be read."""
        return {name: stored.document for name, stored in (await read_entries(self._store)).items()}

    async def own_entries(self) -> dict[str, StateEntry]:
        """Return every entry by name.

        Raises: StateError if an entry cannot be read, or belongs to a job with another name.
        """
        return self._checked(await self.entries())

    def _checked(self, entries: dict[str, StateEntry]) -> dict[str, StateEntry]:
        for entry in entries.values():
            refuse_other_job(self._store.place, entry.job, self._job)
        return entries

    def known(self, subtask: int) -> tuple[str, StateEntry]:
        """Return the version and the content of the entry that this process has last written for the subtask."""
        return self._known[subtask]

    async def open_generation(self, subtask: int) -> int:
        """Begin the next generation. From now on `store` raises FencedError for earlier starts of this subtask.

        Raises: StateError if a group of workers (E10), or a job with another name, keeps its positions here, or if other processes open it
        again and again.
        """
        await self._store.end_sessions(str(subtask))
        for attempt in range(_ATTEMPTS):
            await self._refuse_group()
            entries = await read_entries(self._store)
            self._checked({name: stored.document for name, stored in entries.items()})
            generation = max((stored.document.generation for stored in entries.values()), default=0) + 1
            previous = entries.get(entry_name(subtask), Stored(StateEntry(), ""))
            try:
                job = self._job or previous.document.job
                life = life_name(job or "job", subtask, generation, previous.document.life)
                entry = replace(previous.document, generation=generation, checkpoint=0, life=life, job=job)
                await self._write(subtask, entry, previous.version or None)
            except ConflictError:
                await pause(attempt)
            else:
                await self._check_first_entry(subtask, is_first=not previous.version)
                if previous.version:
                    log.info(
                        "start %d of subtask %d takes over the positions that start %d has stored in %s; "
                        "if that one is still running, it ends with FencedError",
                        generation,
                        subtask,
                        previous.document.generation,
                        self._store.place,
                    )
                return generation
        raise StateError(f"{self._place(subtask)} cannot be opened: other processes open it again and again")

    async def fence_subtasks_from(self, first: int, *, is_replaced: bool = False) -> None:
        """Give the stored subtasks from number `first` on a newer generation: their next `store` raises FencedError.

        `is_replaced`: the snapshot of another subtask replaces their snapshots, which are dropped. What their entries name is kept.

        Raises: StateError if these subtasks start again and again.
        """
        for attempt in range(_ATTEMPTS):
            entries = await read_entries(self._store)
            next_generation = max((stored.document.generation for stored in entries.values()), default=0) + 1
            kept = {entry_name(subtask) for subtask in range(first)}
            try:
                for name, stored in entries.items():
                    if name not in kept:
                        entry = replace(stored.document, generation=next_generation, checkpoint=0)
                        if is_replaced:
                            staged = tuple(replace(each, before=None) for each in entry.staged)
                            entry = replace(entry, snapshot=None, staged=staged)
                        await write_value(self._store, name, entry.to_bytes(), stored.version)
            except ConflictError:  # a checkpoint of one of them, or another subtask of this start does the same
                await pause(attempt)
            else:
                return
        raise StateError(f"subtasks from {first} in {self._store.place} cannot be fenced: they start again and again")

    async def forget_former(self, parallelism: int) -> bool:
        """Empty the entries from number `parallelism` on, if each subtask of this start has committed and so replaced them.

        Return whether this was done. What they name was published when this start was opened.
        """
        entries = await read_entries(self._store)
        ours = [entries.get(entry_name(subtask)) for subtask in range(parallelism)]
        snapshots = [stored.document.snapshot or {} for stored in ours if stored and stored.document.checkpoint]
        if sum(snapshot.get("parallelism") == parallelism for snapshot in snapshots) < parallelism:
            return False
        kept = {entry_name(subtask) for subtask in range(parallelism)}
        for name, stored in entries.items():
            if name not in kept and stored.document.snapshot is not None:
                entry = replace(stored.document, checkpoint=stored.document.checkpoint + 1, snapshot=None, staged=())
                try:
                    await write_value(self._store, name, entry.to_bytes(), stored.version)
                except ConflictError:  # another subtask was faster, or a newer start has taken it
                    continue
        return True

    async def store(self, subtask: int, generation: int, state: State) -> None:
        """Replace the subtask's snapshot.

        Raises: FencedError if a later start of the subtask owns it; StateError if other processes write it again and again.
        """
        if subtask not in self._known:
            self._adopt(subtask, generation, await self._store.get(entry_name(subtask)))
        for _ in range(_ATTEMPTS):
            version, known = self._known[subtask]
            self._check_owner(subtask, generation, known)
            # These positions replace those of a commit, for example after a reset. They must stay if the commit is taken back.
            staged = tuple(replace(each, before=dict(state)) for each in known.staged)
            entry = replace(known, checkpoint=known.checkpoint + 1, snapshot=dict(state), staged=staged)
            try:
                await self._write(subtask, entry, version)
            except (
                ConflictError
            ) as error:  # the stored value is ours if an earlier write succeeded and its response was lost
                self._adopt(subtask, generation, error.current)
                if error.current is not None and error.current.value == entry.to_bytes():
                    return
            else:
                return
        raise StateError(f"{self._place(subtask)} cannot be written: other processes write it again and again")

    async def close(self) -> None:
        """Close the conditional store."""
        await self._store.close()

    async def _write(self, subtask: int, entry: StateEntry, version: str | None) -> None:
        self._known[subtask] = await write_value(self._store, entry_name(subtask), entry.to_bytes(), version), entry

    async def _refuse_group(self) -> None:
        if await self._store.get(LEASE_TABLE) is not None:
            refuse_assignment(self._store.place, "ELASTIC", "STATIC")

    async def _check_first_entry(self, subtask: int, *, is_first: bool) -> None:
        """Check once more that no group keeps its positions here (E10).

        A group that begins from now on sees the entry, and this check sees a group that has begun before.
        """
        if await self._store.get(LEASE_TABLE) is None:
            return
        if is_first:
            await self._store.delete(entry_name(subtask))
        refuse_assignment(self._store.place, "ELASTIC", "STATIC")

    def _adopt(self, subtask: int, generation: int, current: VersionedValue | None) -> None:
        """Continue from the stored entry. Raises: FencedError if it is of another generation; StateError if it cannot be read."""
        entry = StateEntry() if current is None else StateEntry.from_bytes(current.value, self._place(subtask))
        self._check_owner(subtask, generation, entry)
        self._known[subtask] = "" if current is None else current.version, entry

    def _check_owner(self, subtask: int, generation: int, entry: StateEntry) -> None:
        if entry.generation != generation:
            raise FencedError(
                f"generation {entry.generation} of subtask {subtask} owns the state in {self._store.place}; generation {generation} "
                "must stop: a later start, or a reset of the positions, has taken its place"
            )

    async def check_owner(self, subtask: int, generation: int) -> None:
        """Check that this start still owns the subtask's entry.

        Raises: FencedError if another generation owns it; StateError if the entry cannot be read.
        """
        if (stored := await self._store.get(entry_name(subtask))) is not None:
            self._check_owner(subtask, generation, StateEntry.from_bytes(stored.value, self._place(subtask)))

    def _place(self, subtask: int) -> str:
        return f"{entry_name(subtask)} in {self._store.place}"


class SubtaskCheckpoints:
    """The checkpoints of one subtask. Owns the generation of this start."""

    def __init__(self, store: SnapshotStore, subtask: int, parallelism: int) -> None:
        self._store = store
        self._subtask = subtask
        self._parallelism = parallelism
        self._generation = 0

    async def open(self) -> tuple[int, list[State]]:
        """Begin the next generation, fence subtasks that this start does not have, and load what is stored.

        Raises: StateError if the stored state cannot be read, or belongs to a group or another job.
        """
        self._generation = await self._store.open_generation(self._subtask)
        await self._store.fence_subtasks_from(self._parallelism)
        return self._generation, await self._store.load()

    async def check_owner(self) -> None:
        """Check that this start still owns its entry.

        Raises: FencedError if another generation owns it; StateError if it cannot be read.
        """
        await self._store.check_owner(self._subtask, self._generation)

    async def load(self) -> list[State]:
        """Return what every subtask of the job has stored. Raises: StateError if an entry cannot be read."""
        return await self._store.load()

    async def store(self, state: dict[str, Any]) -> None:
        """Store a snapshot. Raises: FencedError if a newer generation owns the state; StateError if it cannot be stored."""
        await self._store.store(self._subtask, self._generation, state)

    async def close(self) -> None:
        """Close the store."""
        await self._store.close()
