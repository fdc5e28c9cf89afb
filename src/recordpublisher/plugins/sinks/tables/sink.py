"""Writes Parquet files into a table's folder, and publishes them with transactions of the table."""

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

from recordpublisher.fetcher.conditional_store import ConditionalStore, pause_after_conflict
from recordpublisher.fetcher.sink import CommitNumber, Leftover, RejectedRecord, SinkContext, Staged
from recordpublisher.plugins.columns.file_columns import FileColumns, InferredColumns
from recordpublisher.plugins.columns.parquet_encoder import ParquetOptions
from recordpublisher.plugins.columns.partitions import Partitions
from recordpublisher.plugins.deserializers.schemas import InferColumns
from recordpublisher.plugins.stores.by_location import conditional_store_of
from recordpublisher.publishers.errors import ConfigurationError, SinkError, StateError, StoreUnavailableError
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.sink_properties import (
    ARCHIVE,
    FILES_BUFFER_BYTES,
    PARQUET_COLUMNS,
    PARTITIONS,
    SINK_BUFFER,
)
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.safe_text import counted, few_of

from ..archived_shards import (
    SHARDS,
    ArchivingSink,
    WaitingBatch,
    batches_by_file,
    check_partitions,
    joined_range,
    no_archive_of_fields,
    store_documents,
)
from ..unfinished_uploads import UnfinishedUploads
from .staged_data_files import OpenFiles, StagedDataFiles, stage_folder_path, stage_mark_path, staged_data_files
from .table import ConflictingCommitError, LakeTable, NoTableError
from .table_folder import DATA, STAGED, TableFolder

log = logging.getLogger("recordpublisher.lake")
T = TypeVar("T")
_GROUP_BYTES = 4 * 2**20
"""Memory of the records that are turned into columns at once (bytes)."""
_MOST_ATTEMPTS = 30
"""Most attempts for one commit while other processes commit to the same table."""
_MOST_LEARNINGS = 3
"""Most attempts to add the columns of one group of records while other processes add columns to the same table."""
_TAKEN_BACK = "/taken-back"
"""A suffix of a writer's name. Under the name with it the table stores the number of the writer's first commit that was taken back."""
_NO_MORE = 2**63 - 1
"""The commit number of a writer that must no longer publish anything."""


class TableSink(ArchivingSink):
    """Writes records to Parquet files in a table's folder, and adds the files to the table, exactly once.

    `stage` ends the files. The table does not have them yet: an empty file (the mark) says that they are not published. `publish` adds
    them to the table in one transaction, together with the number of the writer's commit, and then deletes the mark. The number shows
    which commits the table already has.

    In an archive (`flink.sink.archive`) each file is of one shard. Names of empty files below `_recordpublisher` say which ranges are
    complete in the files (`RangeProof`). These empty files are stored before the transaction, and count only for files of the table.
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
        """Read the properties.

        - `place`: the table in words.
        - `commit_bytes`: the sink requests a checkpoint when it has written this many bytes.
        - `uploads`: finds unfinished uploads into the folder of the table.

        Raises: ConfigurationError if a property is invalid.
        """
        super().__init__(properties)
        self._properties = properties
        self._documents: ConditionalStore | None = None
        self._table, self._place, self._commit_bytes = table, place, commit_bytes
        self._uploads = uploads
        self._takes_fields = properties.value(PARQUET_COLUMNS) == "FIELDS"
        self._options = ParquetOptions.of(properties)
        self._partitions = Partitions(properties.value(PARTITIONS))
        if self.keeps_archive and not table.keeps_partition_columns:
            check_partitions(self._partitions.names, properties.value(PARTITIONS))
        self._buffer_bytes = properties.value(SINK_BUFFER) or FILES_BUFFER_BYTES
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
        self._waiting: list[WaitingBatch] = []
        self._waiting_bytes = 0
        self._rejected: list[RejectedRecord] = []

    def destination(self) -> str:
        """Return the sink's class and the table, as text."""
        return f"{type(self).__name__}, {self._place}"

    async def open(self, context: SinkContext) -> None:
        """Create the table, or compare its columns and partitions.

        Raises: ConfigurationError if the table cannot accept the rows; StoreUnavailableError if it cannot be reached.
        """
        self._context = context
        columns = await self._prepare_columns(context, may_change=True)
        self._files = OpenFiles(
            self._table.folder,
            columns,
            self._partitions,
            self._options,
            self._buffer_bytes,
            self._table.describe,
            without=() if self._table.keeps_partition_columns else self._partitions.names,
        )
        if self.keeps_archive:
            location = await self._with_table(self._table.location)
            self._documents = conditional_store_of(f"{location}/{SHARDS}", ARCHIVE.key, self._properties)
            # This read finds missing permissions before the first commit. The store uses the job's credentials, which may differ from those
            # that a catalogue gives for the table's files.
            await self._documents.get("none")
        await self.begin(secrets.token_hex(8))

    async def check_values(self, context: SinkContext) -> str | None:
        """Check as `open` does whether the table accepts the rows, and return the result in words. The table need not exist.

        Raises: ConfigurationError if the table cannot accept the rows; StoreUnavailableError if it cannot be reached.
        """
        columns = await self._prepare_columns(context, may_change=False)
        return f"{self._place} has, or gets, {counted(len(columns.schema), 'column')}"

    async def _prepare_columns(self, context: SinkContext, *, may_change: bool) -> FileColumns:
        check = partial(self._table.check_rows, partitions=self._partitions)
        columns = await self._first_columns(context, check)
        complete = columns
        if isinstance(columns, InferredColumns):
            complete = columns.complete()
            # If the type of a partition field is not known yet, the table is changed only when the first records show it.
            may_change = may_change and complete.shape == columns.shape
        self._partitions.check(complete.schema)
        has_all = self._table.keeps_partition_columns
        self._options.check(complete.schema if has_all else self._partitions.columns_of_files(complete.schema))
        prepare = partial(self._table.prepare, complete.schema, self._partitions, may_change=may_change)
        self._schema, self._types = columns.schema, await self._with_table(prepare)
        if may_change and self._inferred is None:
            await self._warn_of_columns_left_null(complete)
        return columns

    async def _warn_of_columns_left_null(self, columns: FileColumns) -> None:
        """Log the columns of the table that the records do not have.

        Such columns are allowed, because others may add them to the table. But the schema may lack a field, whose values are then lost.
        """
        ours = {*columns.schema.names, *self._partitions.names}
        if left := [name for name in (await self._with_table(self._table.columns)).names if name not in ours]:
            log.warning(
                "%s has %s that the records of this job do not have; in its rows they are null. If the records have such a field, add it "
                "to flink.deserializer.schema or to the type",
                self._place,
                f"the column{'s' if len(left) > 1 else ''} {few_of([*map(repr, left)])}",
            )

    async def _first_columns(self, context: SinkContext, check: Callable[[pa.RecordBatch], None]) -> FileColumns:
        if not self._takes_fields or context.value_type is not InferColumns:
            columns = FileColumns(context.value_type if self._takes_fields else None, check)
            if self.keeps_archive and columns.schema != FileColumns().schema:
                raise no_archive_of_fields()
            return columns
        if self.keeps_archive:
            raise no_archive_of_fields()
        there = await self._with_table(self._table.columns)
        kinds = self._options.types_by_path() | self._partitions.types_by_path()
        self._inferred = InferredColumns(there, self._partitions.derived_names, check, kinds=kinds)
        return self._inferred

    async def begin(self, life: str) -> None:
        """Forget the records and files that are not staged, and begin a new run of the worker. `discard` deletes the files."""
        self._waiting, self._waiting_bytes, self._rejected = [], 0, []
        self._archived.begin()
        await asyncio.wrap_future(self._thread.submit(self._begin_in_thread, life))

    async def write(self, batch: RecordBatch) -> None:
        """Keep records until enough of them can be written to files together. Raises: SinkError if a file cannot be written."""
        if len(batch) == 0:
            return
        covered = self._archived.range_of(batch) if self.keeps_archive else None
        self._waiting.append(WaitingBatch(batch.stream, batch.shard_id, "", "", batch, batch.held_bytes, covered))
        self._waiting_bytes += batch.held_bytes
        if self._waiting_bytes >= _GROUP_BYTES:
            await self._write_waiting()
            if self._opened.written_bytes >= self._commit_bytes:
                self._context.request_checkpoint()

    async def stage(self, number: CommitNumber) -> Staged | None:
        """End all files, report rejected records, and return what is staged. Return None if there is nothing to commit.

        Raises:

        - SinkError if a file cannot be written; StoreUnavailableError if the table cannot be reached.
        - ConfigurationError if the table was changed so that it no longer accepts the rows. Nothing is committed then.
        - The error of the job's policy for bad records, if a record is rejected.
        """
        documents = self._archived.changes()  # Documents of shards that end from here on belong to a later snapshot.
        await self._write_waiting()
        if self._opened.has_rows:
            await self._with_table(lambda: self._table.prepare_if_changed(self._schema, self._partitions))
        await self._on_file_thread(self._opened.end_files)
        if self._rejected:
            await self._context.reject_all(tuple(self._rejected))
            self._rejected = []
        taken = await self._on_file_thread(self._opened.take_staged, self._types)
        # The next stage begins only now, because a cancelled stage must not lose its files. The thread runs calls in order, so the stage
        # begins before any later write.
        self._thread.submit(self._write_in_thread, self._opened.begin_stage)
        self._archived.on_staged(documents)
        if documents:
            taken = msgspec.structs.replace(taken, shards=self._archived.finished(documents))
        if not (taken.files or taken.ranges or taken.shards):
            return None
        return Staged(number, msgspec.to_builtins(taken), len(taken.files), sum(file.size for file in taken.files))

    async def publish(self, staged: Sequence[Staged]) -> None:
        """Add the files of commits to the table, in one transaction for each writer.

        Raises: StoreUnavailableError if the table cannot be reached; StateError if it does not accept the rows, or files are missing.
        """
        for writer, commits in _by_writer(staged):
            contents = list(map(staged_data_files, commits))
            await self._prove(contents)
            if with_files := [each for each, content in zip(commits, contents, strict=True) if content.files]:
                await self._publish(writer, with_files)
            # Stored only after the commit. If the commit is taken back, the records are read again, and may then be written.
            await self._mark([name for content in contents for name in content.empty_ranges()])
        await self._delete_marks(staged)

    async def _prove(self, contents: Sequence[StagedDataFiles]) -> None:
        """Store the documents of shards, then the ranges of files, so that an archive has both before it has the files."""
        if documents := [document for content in contents for document in content.shards]:
            assert self._documents is not None
            await store_documents(self._documents, documents)
            self._archived.on_published(documents)
        await self._mark([name for content in contents for name in content.proof_paths()])

    async def _mark(self, names: Sequence[str]) -> None:
        def mark() -> None:
            folder = self._table.folder()
            for name in names:
                with suppress(FileExistsError):  # An earlier call, or another process, has written it.
                    folder.write_empty(name)

        if names:
            await self._with_table(mark)

    async def unpublished(self, staged: Sequence[Staged]) -> Sequence[Staged]:
        """Return the commits that are not published. The table shows this by the number of each writer's last commit."""

        def found() -> list[Staged]:
            try:
                loaded = self._table.load()
            except NoTableError:
                return list(staged)
            return [
                each for writer, commits in _by_writer(staged) for each in self._unpublished(loaded, writer, commits)
            ]

        return await self._with_table(found)

    async def take_back(self, staged: Sequence[Staged]) -> Sequence[Staged]:
        """Store in the table that these writers must not publish any further commit. Return the commits that were not published.

        If a process publishes at the same time, either the table refuses its commit, or it was faster and its commit is not returned.
        """
        taken = [
            each
            for writer, commits in _by_writer(staged)
            for each in await self._retry_after_conflict(partial(self._take_back_once, writer, commits))
        ]
        # The other commits are published, so the stored positions will no longer name them. Their marks (empty files which say that a
        # stage's files are not published) are deleted, because a clean-up deletes the files of each stage that has a mark and is not
        # named.
        await self._delete_marks([each for each in staged if each not in taken])
        if proofs := [name for each in taken for name in staged_data_files(each).proof_paths()]:
            await self._with_table(lambda: self._table.folder().delete(proofs))
        return taken

    async def writers(self) -> Sequence[str]:
        """Return the names of the writers that the table has in its log or properties."""
        return sorted({name.removesuffix(_TAKEN_BACK) for name in await self._numbered()})

    async def _numbered(self) -> Collection[str]:
        try:
            return await self._with_table(lambda: self._table.writers(self._table.load()))
        except NoTableError:
            return ()

    async def _delete_marks(self, published: Sequence[Staged]) -> None:
        if marks := [staged_data_files(each).mark_path for each in published]:
            await self._with_table(lambda: self._table.folder().delete(marks))

    async def discard(self, has_ended: Callable[[str], bool], kept: Sequence[Staged]) -> None:
        """Delete the unpublished files of worker runs that have ended, except those in `kept`.

        Raises: StoreUnavailableError if the table cannot be reached.
        """
        await self.remove([left for left in await self._list_staged(kept) if has_ended(left.life)])

    async def forget_ended_lives(self, is_forgotten: Callable[[str], bool]) -> bool:
        """Let a later commit remove the commit numbers of ended runs from the table. Return whether no such number is left.

        Return True if the table drops old numbers itself. A suspended process of such a run may continue later. It still publishes nothing,
        because its marks are gone.

        - `is_forgotten`: returns whether the run with this name has ended and can be forgotten.
        """

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
        """Return the unpublished files of each `stage` that is not in `kept`, and in S3 the unfinished uploads."""
        uploads = () if self._uploads is None else await self._uploads.find(f"{DATA}/")
        return [*await self._list_staged(kept), *uploads]

    async def remove(self, leftovers: Sequence[Leftover]) -> None:
        """Delete the files of these leftovers, then the empty files that mark them as unpublished."""
        if self._uploads is not None:
            await self._uploads.abort(leftovers)
        if stages := [left for left in leftovers if left.upload is None]:  # Without stages the table may not exist yet.
            await self._with_table(lambda: self._remove(stages))

    async def _list_staged(self, kept: Sequence[Staged]) -> list[Leftover]:
        try:
            return await self._with_table(lambda: self._leftovers(kept))
        except NoTableError:
            return []

    def assigned(self, shards: Collection[str]) -> None:
        """Write separate files for each shard from now on, so that they can be dropped if the shard moves to another process."""
        self._is_in_group = True

    def revoked(self, shards: Collection[str]) -> None:
        """Drop the waiting records and the files of these shards."""
        self._waiting = [part for part in self._waiting if part.shard not in shards]
        self._waiting_bytes = sum(part.held_bytes for part in self._waiting)
        self._archived.forget(shards)
        self._thread.submit(self._write_in_thread, self._opened.drop, frozenset(shards))

    async def close(self) -> None:
        """Drop the files that are not staged, and end the thread."""
        if self._files is not None:
            self._thread.submit(self._begin_in_thread, "")
        self._thread.shutdown(wait=False)
        if self._documents is not None:
            await self._documents.close()

    @property
    def _opened(self) -> OpenFiles:
        if self._files is None:
            raise AssertionError("the sink is not open")
        return self._files

    async def _write_waiting(self) -> None:
        waiting = list(self._waiting)  # Ranges that are passed from here on belong to a later stage.
        with suppress(StoreUnavailableError):  # The credentials that were found last may still be valid.
            await self._table.refresh()
        async with self._learning:
            if self._inferred is not None:
                await self._learn(self._inferred, [part.content for part in waiting])
            left = set(map(id, self._waiting))  # Some shards of these batches may have been revoked since.
            waiting = [part for part in waiting if id(part) in left]
            self._waiting = self._waiting[len(waiting) :]
            self._waiting_bytes = sum(part.held_bytes for part in self._waiting)
            await self._on_file_thread(self._write_all, waiting, self._rejected)

    async def _learn(self, columns: InferredColumns, waiting: Sequence[RecordBatch]) -> None:
        """Add columns for fields of waiting records that have none.

        If another process adds columns at the same time, the columns of the table are read again, up to `_MOST_LEARNINGS` times.

        Raises: ConfigurationError if the last attempt fails.
        """
        seen = await asyncio.to_thread(columns.unknown, waiting)
        for attempt in range(_MOST_LEARNINGS if seen is not None else 0):
            assert seen is not None
            grown = columns.grown_by(seen, await self._with_table(self._table.columns))
            try:
                types = await self._with_table(partial(self._table.prepare, grown.schema, self._partitions))
            except ConfigurationError:
                if attempt + 1 == _MOST_LEARNINGS:
                    raise
                continue
            self._schema, self._types, self._inferred = grown.schema, types, grown
            await self._on_file_thread(self._opened.use, grown)
            grown.log_change(self._place, columns)
            break

    def _write_all(self, waiting: Sequence[WaitingBatch], rejected: list[RejectedRecord]) -> None:
        """Write the waiting batches to files, and add records that do not fit to `rejected`. Called in the thread that writes files."""
        if not (self._is_in_group or self.keeps_archive):
            rejected += self._opened.write([part.content for part in waiting], None)
            return
        for parts in batches_by_file(waiting):
            batches = [part.content for part in parts if part.content is not None]
            rejected += self._opened.write(batches, parts[0].shard, joined_range(parts))

    async def _on_file_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        """Make a call in the thread that writes files, after earlier calls, and return the result. A cancelled call is still carried out.

        Raises: SinkError if a file cannot be written.
        """
        running = self._thread.submit(self._write_in_thread, call, *arguments)
        try:
            return await asyncio.shield(asyncio.wrap_future(running))
        except OSError as error:
            raise SinkError(f"files of {self._place} cannot be written: {error}") from error

    def _write_in_thread(self, call: Callable[..., T], *arguments: Any) -> T:
        """Make a call. If an earlier call has failed since `begin`, raise its error again instead.

        The first error may have been lost, because the task that waited for the failed call was cancelled.
        """
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

    async def _with_table(self, call: Callable[[], T]) -> T:
        """Call the table in another thread and return the result. Calls run one at a time, even after one was cancelled.

        Raises: StoreUnavailableError if the table cannot be reached; StateError if the table does not accept the call.
        """

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
            await self._retry_after_conflict(partial(self._publish_once, writer, commits))
        except (StateError, NoTableError) as error:
            if isinstance(error, StoreUnavailableError):
                raise
            is_gone = isinstance(error, NoTableError)
            reason = str(error) or "there is no such table now"
            way = (
                "Start the job again, which creates the table" if is_gone else "Change the table so that it takes them"
            )
            raise StateError(
                f"rows for {self._place} are committed and cannot be published: {reason}. {way}. Or stop "
                "the job, and take the commit back: `recordpublisher leftovers PROPERTIES --take-back` sets the positions back to before it"
            ) from error

    async def _retry_after_conflict(self, call: Callable[[], T]) -> T:
        for attempt in range(_MOST_ATTEMPTS):
            try:
                return await self._with_table(call)
            except ConflictingCommitError as error:
                log.info(
                    "another commit changed %s, so its newest version is loaded and this commit is tried again: %s",
                    self._place,
                    error,
                )
            await pause_after_conflict(attempt)
        raise StoreUnavailableError(
            f"{self._place} was changed by another commit during each of {_MOST_ATTEMPTS} attempts"
        )

    def _publish_once(self, writer: str, commits: list[Staged]) -> None:
        loaded = self._table.load()
        last = self._table.last_number(loaded, writer)
        if last == _NO_MORE and self._after(loaded, writer, commits):
            raise StateError(
                "the commit was taken back, but the positions are not set back yet: run `recordpublisher leftovers PROPERTIES --take-back` "
                "again"
            )
        new = [each for each in commits if each.number.n > last]
        folder = self._table.folder()
        if not last:
            new = [each for each in new if not self._is_known_as_published(folder, each)]
        for files in map(staged_data_files, new):
            if not last and folder.size(files.mark_path) is None:
                raise StateError(
                    f"it is not known whether the table has the rows already, because {files.mark_path} is missing: the sink deletes this "
                    "file when the commit is published, and a removal of orphan files may delete it earlier"
                )
            missing = [name for file in files.files if folder.size(name := files.name(file)) != file.size]
            if missing:
                reason = "a full vacuum or a removal of orphan files may have deleted them, and their records are in no table"
                raise StateError(f"{few_of(missing)} of {self._place} are committed but missing: {reason}")
            partitions = files.files[0].partition if files.files else ()
            if (misfit := self._table.misfit(loaded, files.columns, partitions)) is not None:
                raise StateError(misfit)
        if new:
            retired = self._retired - {writer}
            self._table.commit(loaded, new, {writer: new[-1].number.n}, retired)
            self._retired -= retired

    def _is_known_as_published(self, folder: TableFolder, staged: Staged) -> bool:
        """Return whether a commit was published although the table does not have its number. Publishing deletes the mark of a commit.

        So a missing mark shows that, but only if the table drops old numbers. In other tables the number alone decides, because a removal
        of orphan files may have deleted the mark.
        """
        content = staged_data_files(staged)  # A stage without files has no mark.
        return self._table.numbers_expire and bool(content.files) and folder.size(content.mark_path) is None

    def _after(self, loaded: Any, writer: str, commits: list[Staged]) -> list[Staged]:
        """Return the commits of a writer that were taken back. The table has the number of the first one; all later ones belong to them."""
        first = self._table.last_number(loaded, writer + _TAKEN_BACK)
        return [each for each in commits if each.number.n >= first] if first else []

    def _unpublished(self, loaded: Any, writer: str, commits: list[Staged]) -> list[Staged]:
        last = self._table.last_number(loaded, writer)
        if last == _NO_MORE:
            return self._after(loaded, writer, commits)
        folder = self._table.folder()
        new = [each for each in commits if each.number.n > last]
        new = [each for each in new if last or not self._is_known_as_published(folder, each)]
        # The table does not show whether a commit without files was published. Such a commit counts as not published if it follows an
        # unpublished one.
        has_files = [bool(staged_data_files(each).files) for each in new]
        return new[has_files.index(True) :] if any(has_files) else []

    def _take_back_once(self, writer: str, commits: list[Staged]) -> list[Staged]:
        try:
            loaded = self._table.load()
        except NoTableError as error:
            raise StateError(
                f"the table {self._place} does not exist, so the job's unpublished commit cannot be taken back. Start the job, which "
                "creates the table and publishes the commit"
            ) from error
        found = self._unpublished(loaded, writer, commits)
        if found and self._table.last_number(loaded, writer) != _NO_MORE:
            self._table.commit(loaded, (), {writer: _NO_MORE, writer + _TAKEN_BACK: found[0].number.n})
        return found

    def _leftovers(self, kept: Sequence[Staged]) -> list[Leftover]:
        folder, named = self._table.folder(), {staged_data_files(each).mark_path for each in kept}
        found: list[Leftover] = []
        for life in folder.names(STAGED):
            marks = f"{STAGED}/{life}"
            for stage in folder.names(marks):
                if stage_mark_path(life, stage) not in named:
                    size, written = folder.total(stage_folder_path(life, stage))
                    found.append(
                        Leftover(stage_folder_path(life, stage), size, written or folder.total(marks)[1], life)
                    )
        return found

    def _remove(self, leftovers: Sequence[Leftover]) -> None:
        folder = self._table.folder()
        for left in leftovers:
            folder.delete_folder(left.name)
            folder.delete([stage_mark_path(left.life, left.name.rpartition("/")[2])])
            log.info("deleted %s of %s, which was never committed", left.name, self._place)
        for life in {left.life for left in leftovers}:
            if not folder.names(f"{STAGED}/{life}"):
                folder.delete_folder(f"{STAGED}/{life}")


def _by_writer(staged: Sequence[Staged]) -> Iterator[tuple[str, list[Staged]]]:
    for writer, commits in groupby(staged, key=lambda each: each.number.writer):
        yield writer, list(commits)
