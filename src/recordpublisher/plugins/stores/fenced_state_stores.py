"""State stores: each subtask's snapshot with its generation, in a conditional store (S6). The four kinds are at the end."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from recordpublisher.fetcher.checkpoints.state_store import SUBTASK_PREFIX, StateStore
from recordpublisher.fetcher.conditional_store import ConditionalStore, ConflictError, VersionedValue, pause
from recordpublisher.fetcher.leases.documents.group_store import LEASE_TABLE
from recordpublisher.fetcher.sink import State
from recordpublisher.publishers.errors import ConfigurationError, FencedError, StateError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.table import JOB_NAME, STATE_URI

from .folder import FolderStore

FORMAT = 2
_ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class StateEntry:
    """The stored entry of a subtask. `checkpoint` counts the checkpoints of a generation, so that no value is ever written twice."""

    generation: int = 0
    checkpoint: int = 0
    snapshot: State | None = None

    def to_bytes(self) -> bytes:
        """As JSON."""
        content = {
            "format": FORMAT,
            "generation": self.generation,
            "checkpoint": self.checkpoint,
            "snapshot": self.snapshot,
        }
        return json.dumps(content).encode()

    @classmethod
    def from_bytes(cls, content: bytes, place: str) -> StateEntry:
        """Read what `to_bytes` wrote. Raises: StateError naming the place."""
        try:
            entry: dict[str, Any] = json.loads(content)
            found = entry.get("format", 1)
            if found == FORMAT:
                return cls(int(entry["generation"]), int(entry["checkpoint"]), entry["snapshot"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StateError(f"the stored state {place} cannot be read: {error}") from error
        raise StateError(
            f"the stored state {place} cannot be read: it has format {found}, this version reads format {FORMAT}"
        )


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
        entries = await self._entries()
        return [entry.snapshot for _, entry in entries.values() if entry.snapshot is not None]

    async def open_generation(self, subtask: int) -> int:
        """Take the next generation. From then on `store` raises FencedError for earlier starts of this subtask.

        Raises: StateError when a group of workers keeps its positions here (E10).
        """
        if await self._store.get(LEASE_TABLE) is not None:
            raise StateError(
                f"{self._store.place} has the positions of a job with flink.shard.assignment=ELASTIC, which STATIC cannot go on from yet: "
                "use another flink.state.uri or flink.job.name"
            )
        for attempt in range(_ATTEMPTS):
            entries = await self._entries()
            generation = max((entry.generation for _, entry in entries.values()), default=0) + 1
            version, found = entries.get(_name(subtask), (None, StateEntry()))
            try:
                await self._write(subtask, StateEntry(generation, 0, found.snapshot), version)
            except ConflictError:
                await pause(attempt)
            else:
                return generation
        raise StateError(f"{self._place(subtask)} cannot be opened: other processes open it again and again")

    async def store(self, subtask: int, generation: int, state: State) -> None:
        """Replace the subtask's snapshot. Raises: FencedError when a later start of the subtask owns it."""
        if subtask not in self._known:
            self._adopt(subtask, generation, await self._store.get(_name(subtask)))
        for _ in range(_ATTEMPTS):
            version, known = self._known[subtask]
            self._check_owner(subtask, generation, known.generation)
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
        name, content = _name(subtask), entry.to_bytes()
        if version is None:
            written = await self._store.put_if_absent(name, content)
        else:
            written = await self._store.compare_and_set(name, content, version)
        self._known[subtask] = written, entry

    def _adopt(self, subtask: int, generation: int, current: VersionedValue | None) -> None:
        """Continue from the stored entry, if it is of this generation. Raises: FencedError."""
        entry = StateEntry() if current is None else StateEntry.from_bytes(current.value, self._place(subtask))
        self._check_owner(subtask, generation, entry.generation)
        self._known[subtask] = "" if current is None else current.version, entry

    def _check_owner(self, subtask: int, generation: int, owner: int) -> None:
        if owner != generation:
            raise FencedError(
                f"generation {owner} of subtask {subtask} owns the state in {self._store.place}; generation {generation} must stop"
            )

    async def _entries(self) -> dict[str, tuple[str, StateEntry]]:
        """Version and entry by name, in the order of the subtasks."""
        stored = await self._store.list(SUBTASK_PREFIX)
        entries = {
            name: (value.version, StateEntry.from_bytes(value.value, f"{name} in {self._store.place}"))
            for name, value in stored.items()
        }
        return dict(sorted(entries.items(), key=lambda each: (len(each[0]), each[0])))

    def _place(self, subtask: int) -> str:
        return f"{_name(subtask)} in {self._store.place}"


def _name(subtask: int) -> str:
    return f"{SUBTASK_PREFIX}{subtask}"


class FileStateStore(ConditionalStateStore):
    """State in a folder, local or on a network: a folder `subtask-0.versions` for each subtask, with its snapshot as one JSON file."""

    def __init__(self, folder: Path | str | Properties) -> None:
        """`folder` is created if missing; with properties it is `flink.state.uri`, a path or file:// URI. Raises: ConfigurationError."""
        place = folder_of(folder) if isinstance(folder, Properties) else Path(folder)
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            reason = str(error)
            raise ConfigurationError(
                STATE_URI.key, str(place), "a folder that can be written", reason=reason
            ) from error
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
