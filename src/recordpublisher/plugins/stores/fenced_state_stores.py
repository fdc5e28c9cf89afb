"""State stores: each subtask's snapshot with its generation, in a conditional store (S6). The four kinds are at the end."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlsplit

from recordpublisher.fetcher.checkpoints.state_entries import (
    StateEntry,
    StoredEntry,
    entry_name,
    read_entries,
    write_entry,
)
from recordpublisher.fetcher.checkpoints.state_store import StateStore, refuse_assignment
from recordpublisher.fetcher.conditional_store import ConditionalStore, ConflictError, VersionedValue, pause
from recordpublisher.fetcher.leases.documents.group_store import GroupStore
from recordpublisher.fetcher.sink import State
from recordpublisher.publishers.errors import ConfigurationError, FencedError, StateError
from recordpublisher.publishers.properties.groups.discovery_and_state import STATE_URI
from recordpublisher.publishers.properties.groups.job import JOB_NAME
from recordpublisher.publishers.properties.properties import Properties

from .durable_files import why_not_writable
from .folder import FolderStore

_ATTEMPTS = 10


class ConditionalStateStore(StateStore):
    """Owns the version of each subtask's entry that this process has last written.

    Each start replaces the entry by one with a higher generation. An entry can be replaced only by a process that knows its version, and
    earlier starts do not know the new one. So neither a replaced process nor a delayed retry can bring back an older position.
    """

    def __init__(self, store: ConditionalStore) -> None:
        self._store = store
        self._known: dict[int, tuple[str, StateEntry]] = {}

    @property
    def conditional_store(self) -> ConditionalStore:
        """Where the snapshots are."""
        return self._store

    async def load(self) -> list[State]:
        """Every subtask's snapshot. Raises: StateError naming the entry that cannot be read."""
        entries = await read_entries(self._store)
        return [each.entry.snapshot for each in entries.values() if each.entry.snapshot is not None]

    async def open_generation(self, subtask: int) -> int:
        """Take the next generation. From then on `store` raises FencedError for earlier starts of this subtask.

        Raises: StateError when a group of workers keeps its positions here (E10).
        """
        for attempt in range(_ATTEMPTS):
            await self._refuse_group()
            entries = await read_entries(self._store)
            generation = max((each.entry.generation for each in entries.values()), default=0) + 1
            found = entries.get(entry_name(subtask), StoredEntry(StateEntry(), ""))
            try:
                await self._write(subtask, StateEntry(generation, 0, found.entry.snapshot), found.version or None)
            except ConflictError:
                await pause(attempt)
            else:
                await self._check_first_entry(subtask, is_first=not found.version)
                return generation
        raise StateError(f"{self._place(subtask)} cannot be opened: other processes open it again and again")

    async def fence_subtasks_from(self, first: int) -> None:
        """Give the stored subtasks from number `first` on a newer generation: their next `store` raises FencedError."""
        for attempt in range(_ATTEMPTS):
            entries = await read_entries(self._store)
            next_generation = max((each.entry.generation for each in entries.values()), default=0) + 1
            kept = {entry_name(subtask) for subtask in range(first)}
            try:
                for name, each in entries.items():
                    if name not in kept:
                        entry = StateEntry(next_generation, 0, each.entry.snapshot)
                        await write_entry(self._store, name, entry, each.version)
            except ConflictError:  # a checkpoint of one of them, or another subtask of this start does the same
                await pause(attempt)
            else:
                return
        raise StateError(f"subtasks from {first} in {self._store.place} cannot be fenced: they start again and again")

    async def store(self, subtask: int, generation: int, state: State) -> None:
        """Replace the subtask's snapshot. Raises: FencedError when a later start of the subtask owns it."""
        if subtask not in self._known:
            self._adopt(subtask, generation, await self._store.get(entry_name(subtask)))
        for _ in range(_ATTEMPTS):
            version, known = self._known[subtask]
            self._check_owner(subtask, generation, known)
            try:
                await self._write(subtask, StateEntry(generation, known.checkpoint + 1, dict(state)), version)
            except ConflictError as error:  # our own value, if an earlier write succeeded and its response was lost
                self._adopt(subtask, generation, error.current)
            else:
                return
        raise StateError(f"{self._place(subtask)} cannot be written: other processes write it again and again")

    async def close(self) -> None:
        """Close the conditional store."""
        await self._store.close()

    async def _write(self, subtask: int, entry: StateEntry, version: str | None) -> None:
        self._known[subtask] = await write_entry(self._store, entry_name(subtask), entry, version), entry

    async def _refuse_group(self) -> None:
        if await GroupStore(self._store).read_table() is not None:
            refuse_assignment(self._store.place, "ELASTIC", "STATIC")

    async def _check_first_entry(self, subtask: int, *, is_first: bool) -> None:
        """Look once more, now that a group that begins sees the entry. One that has begun before is seen here (E10)."""
        try:
            await self._refuse_group()
        except StateError:
            if is_first:
                await self._store.delete(entry_name(subtask))
            raise

    def _adopt(self, subtask: int, generation: int, current: VersionedValue | None) -> None:
        """Continue from the stored entry, if it is of this generation. Raises: FencedError."""
        entry = StateEntry() if current is None else StateEntry.from_bytes(current.value, self._place(subtask))
        self._check_owner(subtask, generation, entry)
        self._known[subtask] = "" if current is None else current.version, entry

    def _check_owner(self, subtask: int, generation: int, entry: StateEntry) -> None:
        if entry.generation != generation:
            raise FencedError(
                f"generation {entry.generation} of subtask {subtask} owns the state in {self._store.place}; generation {generation} "
                "must stop"
            )

    def _place(self, subtask: int) -> str:
        return f"{entry_name(subtask)} in {self._store.place}"


class FileStateStore(ConditionalStateStore):
    """State in a folder, local or on a network: a folder `subtask-0.versions` for each subtask, with its snapshot as one JSON file."""

    def __init__(self, folder: Path | str | Properties) -> None:
        """With properties `folder` is `flink.state.uri`, a path or file:// URI. The first snapshot creates it.

        Raises: ConfigurationError, also when it could not be created.
        """
        place = folder_of(folder) if isinstance(folder, Properties) else Path(folder)
        if (reason := why_not_writable(place)) is not None:
            raise ConfigurationError(STATE_URI.key, str(place), "a folder that this user can write", reason=reason)
        super().__init__(FolderStore(place))


class S3StateStore(ConditionalStateStore):
    """State in S3: an object for each subtask, `<prefix>/subtask-0`, written only if it has not changed.

    The credentials need GetObject, PutObject and ListBucket.
    """

    def __init__(self, properties: Properties) -> None:
        """Raises: ConfigurationError when `flink.state.uri` is not s3://bucket/prefix."""
        from .s3 import S3Store

        super().__init__(S3Store(properties.value(STATE_URI) or "", STATE_URI.key, properties))


class DynamoDbStateStore(ConditionalStateStore):
    """State in DynamoDB: an item for each subtask, written only if it has not changed.

    One table may serve many jobs (`dynamodb://table/job`). An item holds 400 KB, enough for more than a thousand shards a subtask.
    """

    def __init__(self, properties: Properties) -> None:
        """Raises: ConfigurationError when `flink.state.uri` is not dynamodb://table/job."""
        from .dynamodb import DynamoDbStore

        super().__init__(DynamoDbStore(properties.value(STATE_URI) or "", STATE_URI.key, properties))


class SqlStateStore(ConditionalStateStore):
    """State in PostgreSQL or SQLite: a row for each subtask in the table `recordpublisher_state`. Jobs share it, by `flink.job.name`."""

    def __init__(self, properties: Properties) -> None:
        """Raises: ConfigurationError when `flink.state.uri` is no database URI or `flink.job.name` is not set."""
        from .sql.sql_store import SqlStore

        uri, job = properties.value(STATE_URI), properties.value(JOB_NAME)
        if job is None:
            raise ConfigurationError(JOB_NAME.key, None, JOB_NAME.valid, reason="the state is kept under this name")
        self._rows = SqlStore(uri or "", STATE_URI.key, job, properties)
        super().__init__(self._rows)

    async def open_generation(self, subtask: int) -> int:
        """Take the next generation. First end the session of a predecessor that is suspended in a transaction: it would hold its locks."""
        await self._rows.end_sessions(str(subtask))
        return await super().open_generation(subtask)


def folder_of(properties: Properties) -> Path:
    """The folder at `flink.state.uri`. Raises: ConfigurationError."""
    uri = properties.value(STATE_URI)
    parsed = urlsplit(uri or "")
    if not uri or parsed.scheme not in ("", "file"):
        raise ConfigurationError(STATE_URI.key, uri, "a path or a file:// URI")
    return Path(unquote(parsed.path))
