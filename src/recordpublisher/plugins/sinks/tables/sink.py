"""TableSink: writes Parquet files into a table's folder, and publishes them by transactions of the table (S6)."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from recordpublisher.fetcher.committing_sink import CommitNumber, CommittingSink, Leftover, Staged
from recordpublisher.fetcher.conditional_store import pause
from recordpublisher.fetcher.sink import SinkContext
from recordpublisher.plugins.columns.file_columns import FileColumns, Rejected
from recordpublisher.plugins.columns.inferred_columns import InferredColumns
from recordpublisher.plugins.columns.parquet_encoder import ParquetOptions
from recordpublisher.plugins.columns.partitions import Partitions
from recordpublisher.plugins.deserializers.schemas.inference import InferredRow
from recordpublisher.publishers.errors import ConfigurationError, SinkError, StateError, StoreUnavailableError
from recordpublisher.publishers.log_fields import counted
from recordpublisher.publishers.properties.groups.files_and_tables import FILE_BUFFER, PARQUET_COLUMNS, PARTITIONS
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import RecordBatch

from ..unfinished_uploads import UnfinishedUploads
from .folder import DATA, STAGED, TableFolder
from .open_files import OpenFiles
from .staged_data_files import folder_of, mark_of, staged_data_files
from .table import ConflictingCommitError, LakeTable, NoTableError

log = logging.getLogger("recordpublisher.lake")
T = TypeVar("T")
_GROUP_BYTES = 4 * 2**20
"""Memory of records that become columns together."""
_MOST_ATTEMPTS = 30
"""Of one commit while others commit to the same table."""
_MOST_LEARNINGS = 3
"""Of one group of records, while others add columns to the same table."""
_TAKEN_BACK = "/taken-back"
"""What the name of a writer gets, for the number of its first commit that was taken back."""
_NO_MORE = 2**63 - 1
"""The number of a writer that can publish nothing more."""


class TableSink(CommittingSink):
    """Owns the records that are no columns yet, the open files, and the thread that writes them.

    A stage ends the files: they are in the folder of the table, which does not know them. A mark beside them says that they are not
    published. To publish is to add them in one transaction with the writer's number, which tells what the table has already.
    """

    can_take_back = True

    def __init__(
        self,
        properties: Properties,
        table: LakeTable,
        place: str,
        commit_bytes: int,
        uploads: UnfinishedUploads | None = None,
    ) -> None:
        """`place`: the table in words. `uploads`: into its folder. Raises: ConfigurationError."""
        self._table, self._place, self._commit_bytes = table, place, commit_bytes
        self._uploads = uploads
        self._takes_fields = properties.value(PARQUET_COLUMNS) == "FIELDS"
        self._options = ParquetOptions.of(properties)
        self._partitions = Partitions(properties.value(PARTITIONS))
        self._buffer_bytes = properties.value(FILE_BUFFER)
        self._lock = threading.Lock()
        self._learning = asyncio.Lock()
        self._context = SinkContext()
        self._is_in_group = False
        self._thread = ThreadPoolExecutor(1, f"{type(self).__name__} files")
        self._files: OpenFiles | None = None
        self._error: Exception | None = None
        self._schema: pa.Schema | None = None
        self._inferred: InferredColumns | None = None
        self._types: Mapping[str, str] = {}
        self._retired: set[str] = set()
        self._waiting: list[RecordBatch] = []
        self._waiting_bytes = 0
        self._rejected: Rejected = []

    def destination(self) -> str:
        """The table."""
        return f"{type(self).__name__}, {self._place}"

    async def open(self, context: SinkContext) -> None:
        """Create the table, or compare its columns. Raises: ConfigurationError, StoreUnavailableError."""
        self._context = context
        columns = await self._prepared(context, may_change=True)
        self._files = OpenFiles(
            self._table.folder,
            columns,
            self._partitions,
            self._options,
            self._buffer_bytes,
            self._table.describe,
            without=() if self._table.keeps_partition_columns else self._partitions.names,
        )
        await self.begin(secrets.token_hex(8))

    async def check_values(self, context: SinkContext) -> str | None:
        """Whether the table can be read and fits, as `open` would find; it need not be there."""
        columns = await self._prepared(context, may_change=False)
        return f"{self._place} has, or gets, {counted(len(columns.schema), 'column')}"

    async def _prepared(self, context: SinkContext, *, may_change: bool) -> FileColumns:
        check = partial(self._table.check_rows, partitions=self._partitions)
        columns = await self._first_columns(context, check)
        self._partitions.check(columns.schema)
        has_all = self._table.keeps_partition_columns
        self._options.check(columns.schema if has_all else self._partitions.columns_of_files(columns.schema))
        prepare = partial(self._table.prepare, columns.schema, self._partitions, may_change=may_change)
        self._schema, self._types = columns.schema, await self._called(prepare)
        return columns

    async def _first_columns(self, context: SinkContext, check: Callable[[pa.RecordBatch], None]) -> FileColumns:
        if not self._takes_fields or context.value_type is not InferredRow:
            return FileColumns(context.value_type if self._takes_fields else None, check)
        there = await self._called(self._table.columns)
        derived = [part.name for part in self._partitions.parts if part.is_derived]
        self._inferred = InferredColumns(there, derived, check)
        return self._inferred

    async def begin(self, life: str) -> None:
        """Forget what is not staged. Its files stay until they are discarded."""
        self._waiting, self._waiting_bytes, self._rejected = [], 0, []
        await asyncio.wrap_future(self._thread.submit(self._begin_in_thread, life))

    async def write(self, batch: RecordBatch) -> None:
        """Write records to files, together with later ones. Raises: SinkError."""
        if len(batch) == 0:
            return
        self._waiting.append(batch)
        self._waiting_bytes += batch.held_bytes
        if self._waiting_bytes >= _GROUP_BYTES:
            await self._write_waiting()
            if self._opened.written_bytes >= self._commit_bytes:
                self._context.request_checkpoint()

    async def stage(self, number: CommitNumber) -> Staged | None:
        """End all files, if the table still takes them. Raises: SinkError, StoreUnavailableError; ConfigurationError if the table was
        changed so that it does not: then nothing is committed. What is rejected is reported before."""
        await self._write_waiting()
        if self._opened.has_rows:
            await self._called(lambda: self._table.look_again(self._schema, self._partitions))
        await self._written(self._opened.end_files)
        if self._rejected:
            await self._context.reject_all(tuple(self._rejected))
            self._rejected = []
        taken = await self._written(self._opened.taken, self._types)
        # Only now, because a stage that is cancelled hands nothing over. The thread does it before anything that comes later.
        self._thread.submit(self._write_in_thread, self._opened.begin_stage)
        if taken is None:
            return None
        return Staged(number, msgspec.to_builtins(taken), len(taken.files), sum(file.size for file in taken.files))

    async def publish(self, staged: Sequence[Staged]) -> None:
        """One transaction of the table for each writer. Raises: StoreUnavailableError, StateError."""
        for writer, commits in _by_writer(staged):
            await self._publish(writer, commits)
        await self._delete_marks(staged)

    async def unpublished(self, staged: Sequence[Staged]) -> Sequence[Staged]:
        """As the numbers of the writers in the table prove."""

        def found() -> list[Staged]:
            try:
                loaded = self._table.load()
            except NoTableError:
                return list(staged)
            return [
                each for writer, commits in _by_writer(staged) for each in self._unpublished(loaded, writer, commits)
            ]

        return await self._called(found)

    async def take_back(self, staged: Sequence[Staged]) -> Sequence[Staged]:
        """Store in the table that these writers have nothing more to publish: a process that publishes now is refused, or was faster."""
        taken = [
            each
            for writer, commits in _by_writer(staged)
            for each in await self._retried(partial(self._take_back_once, writer, commits))
        ]
        # The entry will not name the others either, and a file whose stage has a mark and is in no entry is deleted.
        await self._delete_marks([each for each in staged if each not in taken])
        return taken

    async def writers(self) -> Sequence[str]:
        """Return the writers that the table names."""
        return sorted({name.removesuffix(_TAKEN_BACK) for name in await self._numbered()})

    async def _numbered(self) -> Collection[str]:
        return await self._called(lambda: self._table.writers(self._table.load()))

    async def _delete_marks(self, published: Sequence[Staged]) -> None:
        if marks := [staged_data_files(each).mark for each in published]:
            await self._called(lambda: self._table.folder().delete(marks))

    async def discard(self, has_ended: Callable[[str], bool], kept: Sequence[Staged]) -> None:
        """Delete the files of stages that have a mark, of lives that have ended. Raises: StoreUnavailableError."""
        await self.remove([left for left in await self._staged(kept) if has_ended(left.life)])

    async def forget(self, is_forgotten: Callable[[str], bool]) -> bool:
        """Let the numbers of these lives go with a later commit, where the table does not drop them by itself. A process of such a life
        that wakes up finds that its mark is gone, and publishes nothing."""

        def of(names: Collection[str]) -> set[str]:
            return {name for name in names if is_forgotten(name.removesuffix(_TAKEN_BACK).rpartition("/")[2])}

        if self._table.numbers_expire:
            return True
        if waiting := of(self._retired):
            return False
        waiting = of(await self._numbered())
        self._retired |= waiting
        return not waiting

    async def leftovers(self, kept: Sequence[Staged]) -> Sequence[Leftover]:
        """Stages that have a mark; in S3 also uploads that did not end."""
        uploads = () if self._uploads is None else await self._uploads.found(f"{DATA}/")
        return [*await self._staged(kept), *uploads]

    async def remove(self, leftovers: Sequence[Leftover]) -> None:
        """Delete the files, then the marks."""
        if self._uploads is not None:
            await self._uploads.abort(leftovers)
        await self._called(lambda: self._remove([left for left in leftovers if left.upload is None]))

    async def _staged(self, kept: Sequence[Staged]) -> list[Leftover]:
        try:
            return await self._called(lambda: self._leftovers(kept))
        except NoTableError:
            return []

    def assigned(self, shards: Collection[str]) -> None:
        """Each shard gets files of its own from now on: they are dropped if it goes to another process."""
        self._is_in_group = True

    def revoked(self, shards: Collection[str]) -> None:
        """Drop what is written of these shards."""
        self._waiting = [batch for batch in self._waiting if batch.shard.key not in shards]
        self._waiting_bytes = sum(batch.held_bytes for batch in self._waiting)
        self._thread.submit(self._write_in_thread, self._opened.drop, frozenset(shards))

    async def close(self) -> None:
        """End the files, of which nobody knows, and the thread."""
        if self._files is not None:
            self._thread.submit(self._begin_in_thread, "")
        self._thread.shutdown(wait=False)

    @property
    def _opened(self) -> OpenFiles:
        if self._files is None:
            raise AssertionError("the sink is not open")
        return self._files

    async def _write_waiting(self) -> None:
        with suppress(StoreUnavailableError):  # then those that were found last may still be valid
            await self._table.refresh()
        async with self._learning:
            waiting = list(self._waiting)
            if self._inferred is not None:
                await self._learn(self._inferred, waiting)
            left = set(map(id, self._waiting))  # without those of shards that were revoked in the meantime
            waiting = [batch for batch in waiting if id(batch) in left]
            self._waiting = self._waiting[len(waiting) :]
            self._waiting_bytes = sum(batch.held_bytes for batch in self._waiting)
            await self._written(self._write_all, waiting, self._rejected)

    async def _learn(self, columns: InferredColumns, waiting: Sequence[RecordBatch]) -> None:
        """Add columns for fields that wait and have none. The table decides where another process adds the same at this time."""
        seen = await asyncio.to_thread(columns.unknown, waiting)
        for attempt in range(_MOST_LEARNINGS if seen is not None else 0):
            assert seen is not None
            grown = columns.grown_by(seen, await self._called(self._table.columns))
            try:
                types = await self._called(partial(self._table.prepare, grown.schema, self._partitions))
            except ConfigurationError:
                if attempt + 1 == _MOST_LEARNINGS:
                    raise
                continue
            self._schema, self._types, self._inferred = grown.schema, types, grown
            await self._written(self._opened.use, grown)
            log.info("columns of %s: %s", self._place, grown.text())
            break

    def _write_all(self, waiting: Sequence[RecordBatch], rejected: Rejected) -> None:
        """In the thread."""
        if not self._is_in_group:
            rejected += self._opened.write(waiting, None) if waiting else ()
            return
        of_shard = sorted(waiting, key=lambda batch: batch.shard.key)  # stable: each shard keeps its order
        for shard, batches in groupby(of_shard, key=lambda batch: batch.shard.key):
            rejected += self._opened.write(list(batches), shard)

    async def _written(self, call: Callable[..., T], *arguments: Any) -> T:
        """In the thread of files, after what it does already. A call that was cancelled is carried out. Raises: SinkError."""
        running = self._thread.submit(self._write_in_thread, call, *arguments)
        try:
            return await asyncio.shield(asyncio.wrap_future(running))
        except OSError as error:
            raise SinkError(f"files of {self._place} cannot be written: {error}") from error

    def _write_in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        """After an error nothing is written in this life: who waited for the call may have been cancelled, and does not know."""
        if self._error is not None:
            raise self._error
        try:
            return call(*arguments)
        except Exception as error:
            self._error = error
            raise

    def _begin_in_thread(self, life: str) -> None:
        self._error = None
        self._opened.begin(life)

    async def _called(self, call: Callable[[], T]) -> T:
        """One call of the table at a time, also after one that was cancelled. Raises: StoreUnavailableError, StateError."""

        def alone() -> T:
            with self._lock:
                return call()

        await self._table.refresh()
        try:
            return await asyncio.to_thread(alone)
        except OSError as error:
            raise StoreUnavailableError(f"{self._place} cannot be used: {error}") from error

    async def _publish(self, writer: str, commits: list[Staged]) -> None:
        try:
            await self._retried(partial(self._publish_once, writer, commits))
        except (StateError, NoTableError) as error:
            if isinstance(error, StoreUnavailableError):
                raise
            reason = str(error) or "there is no such table now"
            raise StateError(
                f"rows for {self._place} are committed and cannot be published: {reason}. Change the table so that it takes them. Or stop "
                "the job, and take the commit back: `recordpublisher leftovers PROPERTIES --take-back` returns the positions to before it"
            ) from error

    async def _retried(self, call: Callable[[], T]) -> T:
        for attempt in range(_MOST_ATTEMPTS):
            try:
                return await self._called(call)
            except ConflictingCommitError as error:
                log.info("%s has a newer version, which is loaded: %s", self._place, error)
            await pause(attempt)
        raise StoreUnavailableError(f"{self._place} was committed to by others {_MOST_ATTEMPTS} times meanwhile")

    def _publish_once(self, writer: str, commits: list[Staged]) -> None:
        loaded = self._table.load()
        last = self._table.last_number(loaded, writer)
        if last == _NO_MORE and self._after(loaded, writer, commits):
            raise StateError("it was taken back, and the positions were not returned yet: run the command again")
        new = [each for each in commits if each.number.n > last]
        folder = self._table.folder()
        if not last:
            new = [each for each in new if not self._is_known_as_published(folder, each)]
        for files in map(staged_data_files, new):
            if not last and folder.size(files.mark) is None:
                raise StateError(
                    f"{files.mark} is gone: the commit was published, or a removal of orphans took the mark"
                )
            missing = [name for file in files.files if folder.size(name := files.name(file)) != file.size]
            if missing:
                reason = "a full vacuum or removal of orphans may have taken them: their records are in no table"
                raise StateError(f"{', '.join(missing)} of {self._place} are committed and not there: {reason}")
            partitions = files.files[0].partition if files.files else ()
            if (misfit := self._table.misfit(loaded, files.columns, partitions)) is not None:
                raise StateError(misfit)
        if new:
            retired = self._retired - {writer}
            self._table.commit(loaded, new, {writer: new[-1].number.n}, retired)
            self._retired -= retired

    def _is_known_as_published(self, folder: TableFolder, staged: Staged) -> bool:
        """Whether the mark of a commit is gone, whose number the table may have dropped: the mark goes when the table has the rows.

        Where no number goes while an entry names the commit, a removal of orphans may have taken the mark."""
        return self._table.numbers_expire and folder.size(staged_data_files(staged).mark) is None

    def _after(self, loaded: Any, writer: str, commits: list[Staged]) -> list[Staged]:
        """Those of the commits that were taken back."""
        first = self._table.last_number(loaded, writer + _TAKEN_BACK)
        return [each for each in commits if each.number.n >= first] if first else []

    def _unpublished(self, loaded: Any, writer: str, commits: list[Staged]) -> list[Staged]:
        last = self._table.last_number(loaded, writer)
        if last == _NO_MORE:
            return self._after(loaded, writer, commits)
        folder = self._table.folder()
        new = [each for each in commits if each.number.n > last]
        return [each for each in new if last or not self._is_known_as_published(folder, each)]

    def _take_back_once(self, writer: str, commits: list[Staged]) -> list[Staged]:
        try:
            loaded = self._table.load()
        except NoTableError as error:
            raise StateError(f"there is no {self._place}: the next start makes one, and publishes into it") from error
        found = self._unpublished(loaded, writer, commits)
        if found and self._table.last_number(loaded, writer) != _NO_MORE:
            self._table.commit(loaded, (), {writer: _NO_MORE, writer + _TAKEN_BACK: found[0].number.n})
        return found

    def _leftovers(self, kept: Sequence[Staged]) -> list[Leftover]:
        folder, named = self._table.folder(), {staged_data_files(each).mark for each in kept}
        found: list[Leftover] = []
        for life in folder.names(STAGED):
            marks = f"{STAGED}/{life}"
            for stage in folder.names(marks):
                if mark_of(life, stage) not in named:
                    size, written = folder.total(folder_of(life, stage))
                    found.append(Leftover(folder_of(life, stage), size, written or folder.total(marks)[1], life))
        return found

    def _remove(self, leftovers: Sequence[Leftover]) -> None:
        folder = self._table.folder()
        for left in leftovers:
            folder.delete_folder(left.name)
            folder.delete([mark_of(left.life, left.name.rpartition("/")[2])])
            log.info("deleted %s of %s, which was never committed", left.name, self._place)
        for life in {left.life for left in leftovers}:
            if not folder.names(f"{STAGED}/{life}"):
                folder.delete_folder(f"{STAGED}/{life}")


def _by_writer(staged: Sequence[Staged]) -> Iterator[tuple[str, list[Staged]]]:
    for writer, commits in groupby(staged, key=lambda each: each.number.writer):
        yield writer, list(commits)
