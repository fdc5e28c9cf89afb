"""The base of the file sinks: batches wait for a checkpoint, which writes them as one file for each shard."""

import asyncio
import logging
import re
import secrets
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import quote

import msgspec

from recordpublisher.fetcher.conditional_store import ConditionalStore, document_as
from recordpublisher.fetcher.sink import CommitNumber, Leftover, RejectedRecord, SinkContext, Staged
from recordpublisher.plugins.stores.back_ends import back_end_of
from recordpublisher.plugins.stores.durable_files import path_of
from recordpublisher.publishers.base import Checks
from recordpublisher.publishers.errors import ConfigurationError, SinkError, StateError
from recordpublisher.publishers.properties.declaration import Property
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.sink_properties import FILES_BUFFER_BYTES, SINK_BUFFER
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.safe_text import few_of
from recordpublisher.publishers.shards import is_valid_name

from ..archived_shards import (
    RANGES,
    ArchivingSink,
    ShardDocument,
    WaitingBatch,
    batches_by_file,
    joined_range,
    store_documents,
)
from .staged_files import StagedFile, StagedFiles, StagedItem

if TYPE_CHECKING:
    from .staged_objects import StagedObjects

log = logging.getLogger("recordpublisher.files")
MOST_NAME_BYTES = 255
"""Longest name of one folder or file on the usual file systems (bytes)."""
_MOST_PATH_BYTES, _MOST_KEY_BYTES = 4096, 1024
"""Longest path in Linux, and longest key in S3, Google and Azure (bytes)."""
_SHARD_FILE_BYTES = 128 + 128 + MOST_NAME_BYTES + 4
"""Longest names of stream, shard and file together, with slashes (bytes)."""


class FileSink(ArchivingSink):
    """Writes files, exactly once. Batches wait for a checkpoint, then become hidden files. The commit renames these files.

    The folder may be local, or a location of an object store: `s3://bucket/prefix`, `gs://` or `abfss://`.

    Files are named `<stream>/<shard>/<first>-<last>`, by sequence and sub-sequence numbers. A file with the same name and other content is
    never replaced: the later file has a suffix. When more than `flink.sink.buffer.bytes` wait, the sink requests a checkpoint at once.

    Files of an archive (`flink.sink.archive`) are named `<stream>/<shard>/<after>_<through>`. They have every record of the shard after the
    position `after`, up to `through`. The files of one range in several partitions end in `.1of3`. If no record of a range can be written,
    the range is the name of an empty file below `_recordpublisher`, where no query engine looks for rows.

    Raises: ConfigurationError if the folder is not set, or is not a valid path.
    """

    suffix: ClassVar[str]
    """Suffix of the names of files."""
    folder: ClassVar[Property[str | None]]
    """The property that has the folder."""

    def __init__(self, properties: Properties) -> None:
        folder, key = properties.value(self.folder), self.folder.key
        if folder is None:
            raise ConfigurationError(key, None, "a folder")
        self._path, self._key = folder, key
        self._limit = properties.value(SINK_BUFFER) or FILES_BUFFER_BYTES
        super().__init__(properties)
        self._files_there = _place_of(folder, key, properties)
        most = _MOST_KEY_BYTES if back_end_of(folder).has_objects else _MOST_PATH_BYTES
        self.folder_bytes = most - len(self._files_there.place.encode()) - _SHARD_FILE_BYTES
        """How many bytes of a path the names of partition folders may have."""
        self._context = SinkContext()
        self._life = ""
        self._never_published: set[str] = set()
        self._keep([])

    def prepare(self, batch: RecordBatch) -> tuple[Any, int]:
        """Return the form in which a batch waits for the checkpoint, and the size of that form in memory (bytes). Called on the event loop.

        The default is the batch itself. Subclasses may return a smaller form.
        """
        return batch, batch.held_bytes

    async def learn(self, contents: Sequence[Any]) -> None:
        """Store what the next files need, before `file_writers` writes `contents`. Called on the event loop.

        A sink that infers columns stores new columns here, so that no file has a column that other processes do not know.
        """

    @abstractmethod
    def file_writers(
        self, contents: Sequence[Any], rejected: list[RejectedRecord]
    ) -> Mapping[str, Callable[[Path], None]]:
        """Return for each folder a function that writes the file of one shard into it. Called in a thread.

        The folder is `""` without partitions. The result is empty if no record is valid. Invalid records are added to `rejected`.
        """

    async def open(self, context: SinkContext) -> None:
        """Open the folder.

        Raises: ConfigurationError if the folder cannot be written; StateError if it has positions of an earlier version.
        """
        self._context = context
        await self.begin(f"open-{secrets.token_hex(8)}")
        if (reason := await self._files_there.why_not_writable()) is not None:
            raise ConfigurationError(self._key, self._path, "a folder that can be written", reason=reason)
        await self._files_there.open()

    def entries(self) -> ConditionalStore:
        """Return the store of the job's positions (entries), which is in the hidden folder."""
        return self._files_there.entries

    def destination(self) -> str:
        """Return the kind of the sink and its folder."""
        return f"{type(self).__name__}, {self._files_there.place}"

    def checks(self) -> Checks:
        """Return a check that this user can write into the folder, or create it, and the checks of the base class."""

        async def folder() -> str:
            if (reason := await self._files_there.why_not_writable()) is not None:
                raise ConfigurationError(self._key, self._path, "a folder that this user can write", reason=reason)
            return f"{self._path} can be written"

        return {"folder": folder, **super().checks()}

    async def write(self, batch: RecordBatch) -> None:
        """Keep the batch for the next checkpoint.

        Raises: SinkError if the sink keeps an archive, and the names of the batch's stream and shard, or its sequence numbers, cannot be
        parts of a path.
        """
        if self.keeps_archive:
            _check_names(batch)
        names = batch.stream, batch.shard_id, _row(batch, 0), _row(batch, -1)
        content, held_bytes = self.prepare(batch)
        covered = self._archived.range_of(batch) if self.keeps_archive else None
        self._waiting.append(WaitingBatch(*names, content, held_bytes, covered))
        self._waiting_bytes += held_bytes
        if self._waiting_bytes >= self._limit:
            self._context.request_checkpoint()

    def has_room(self) -> bool:
        """Return whether less than twice `flink.sink.buffer.bytes` waits for a checkpoint. More waits only if commits fail for long."""
        return self._waiting_bytes < 2 * self._limit

    def revoked(self, shards: Collection[str]) -> None:
        """Drop the waiting batches of these shards, because another process reads the shards now."""
        self._keep([part for part in self._waiting if part.shard not in shards])
        self._archived.forget(shards)

    async def close(self) -> None:
        """Close the store that has the documents of an archive's shards."""
        await self._files_there.shards.close()

    # --- commits ---------------------------------------------------------------------------------------------------------------

    async def begin(self, life: str) -> None:
        """Begin a new run of the worker, with the name `life`, and drop the batches that wait."""
        self._life = life
        self._never_published = set()
        self._archived.begin()
        self._keep([])

    async def stage(self, number: CommitNumber) -> Staged | None:
        """Write the waiting batches into hidden files, one for each shard.

        Raises: SinkError if a record cannot be written, unless bad records are skipped or become dead letters; StateError if the files
        cannot be written.
        """
        parts, rejected = list(self._waiting), list[tuple[RecordBatch, str]]()
        documents = self._archived.changes()  # Documents of shards that end from here on belong to a later snapshot.
        await self.learn([part.content for part in parts if part.content is not None])
        files = await asyncio.to_thread(self._files, parts, rejected)
        await self._context.reject_all(rejected)
        staged, size = await self._files_there.stage(self._life, number.n, files)
        self._never_published |= {hidden for hidden, _ in staged}
        done = {id(part) for part in parts}
        self._keep([part for part in self._waiting if id(part) not in done])
        self._archived.on_staged(documents)
        if not staged and not documents:
            return None
        content = {"files": staged}
        if documents:
            content["shards"] = msgspec.to_builtins(self._archived.finished(documents))
        return Staged(number, content, len(staged), size)

    async def publish(self, staged: Sequence[Staged]) -> None:
        """Rename the files into place.

        A file may exist under neither its hidden nor its final name. This is only logged, because usually the file was published
        earlier and then moved.

        Raises: StateError if such a file was staged by this run and never published, because its records are lost.
        """
        # The documents are stored first, so that a shard with files always has a document.
        contents = [self._content(each) for each in staged]
        if documents := [document for content in contents for document in content.shards]:
            await store_documents(self._files_there.shards, documents)
            self._archived.on_published(documents)
        files = [file for content in contents for file in content.files]
        first = {hidden for hidden, _ in files} & self._never_published
        self._never_published -= first
        missing = await self._files_there.publish(files)
        if lost := [f"{hidden} ({name})" for hidden, name in missing if hidden in first]:
            raise StateError(
                f"{few_of(lost)} of {self._files_there.place} are committed but missing: another program has deleted "
                "files that waited to be published, and their records are lost"
            )
        if missing:
            names = few_of([name for _, name in missing])
            log.warning(
                "%s of %s are not there: they were probably published before, and another program has moved them",
                names,
                self._files_there.place,
            )

    async def discard(self, has_ended: Callable[[str], bool], kept: Sequence[Staged]) -> None:
        """Delete the hidden files of worker runs that have ended, except those in `kept`."""
        await self._files_there.discard(has_ended, self._hidden(kept))

    async def leftovers(self, kept: Sequence[Staged]) -> Sequence[Leftover]:
        """Return the hidden files that are not in `kept`; in S3 also uploads that were never completed."""
        return await self._files_there.leftovers(self._hidden(kept))

    async def remove(self, leftovers: Sequence[Leftover]) -> None:
        """Delete these hidden files, and abort these uploads."""
        await self._files_there.remove(leftovers)

    def _hidden(self, staged: Sequence[Staged]) -> set[str]:
        return {hidden for each in staged for hidden, _ in self._content(each).files}

    def _content(self, staged: Staged) -> "_StagedContent":
        return document_as(staged.content, _StagedContent, f"a commit in {self._files_there.entries.place}")

    def _keep(self, parts: list[WaitingBatch]) -> None:
        self._waiting, self._waiting_bytes = parts, sum(part.held_bytes for part in parts)
        self._context.resume_writing()

    def _files(self, parts: Sequence[WaitingBatch], rejected: list[RejectedRecord]) -> StagedItem:
        files: dict[str, Callable[[Path], None]] = {}
        for together in batches_by_file(parts):
            contents = [part.content for part in together if part.content is not None]
            writers = self.file_writers(contents, rejected) if contents else {}
            first, last = together[0], together[-1]
            name = f"{_path_part(first.first, _POSITION)}-{_path_part(last.last, _POSITION)}"
            numbers = [""] * len(writers)
            if (covered := joined_range(together)) is not None:
                name = str(covered)
                if not writers:  # The next range begins where this one ends.
                    files[f"{RANGES}/{first.shard}/{name}"] = Path.touch
                elif len(writers) > 1:
                    numbers = [f".{number}of{len(writers)}" for number in range(1, len(writers) + 1)]
            for (folder, writer), number in zip(writers.items(), numbers, strict=True):
                place = f"{_path_part(first.stream, _NAME)}/{_path_part(first.shard_id, _NAME)}"
                path = f"{folder}/{place}/{name}{number}{self.suffix}"
                files[path.lstrip("/")] = writer
        return files


def _place_of(location: str, key: str, properties: Properties) -> "StagedFiles | StagedObjects":
    if back_end_of(location).has_objects:
        # Imported here because it loads the SDK, which a local folder does not need.
        from .staged_objects import StagedObjects

        return StagedObjects(location, key, properties)
    return StagedFiles(path_of(location, key))


class _StagedContent(msgspec.Struct):
    files: list[StagedFile]
    shards: list[ShardDocument] = []


# At most 110 characters, because the name of a file contains two sequence numbers, each with its sub-sequence number, and may have 255
# bytes.
_NUMBER = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.-]{1,110}")
_POSITION = re.compile(r"[A-Za-z0-9_.-]{1,118}")
_NAME = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9_.-]{1,128}")
_LONGEST_QUOTED = 110


def _path_part(text: str, valid: re.Pattern[str]) -> str:
    """Return the name of a stream or shard, or a position, as it can be part of a path.

    The Kinesis client checks the names that it receives, but other publishers may name shards and records as they like. Other characters
    are written as in a URL, and a text that would then be too long as its hash. A `%` begins no valid name, so no two texts become one.
    """
    if valid.fullmatch(text):
        return text
    quoted = quote(text, safe="", errors="surrogatepass")
    # Readers of folders leave out what begins with a point.
    if len(quoted) <= _LONGEST_QUOTED and not quoted.startswith("."):
        return quoted
    return f"%{sha256(text.encode(errors='surrogatepass')).hexdigest()[:32]}"


def _check_names(batch: RecordBatch) -> None:
    """Check the names that become parts of a path, so that the path stays inside the folder.

    The Kinesis client checks the names that it receives, but other publishers may name shards and records as they like.

    Raises: SinkError if a name has other characters than letters, digits and `_.-`, or is too long.
    """
    numbers = batch.sequence_numbers
    for name in (batch.stream, batch.shard_id):
        if not is_valid_name(name):
            raise SinkError(
                f"{name[:200]!r} cannot be part of a path: the name of a stream or shard may have letters, digits, "
                "_ . -, at most 128 characters"
            )
    for number in (numbers[0], numbers[-1]):
        if not _NUMBER.fullmatch(number):
            raise SinkError(
                f"{number[:200]!r} of {batch.stream}/{batch.shard_id} cannot be part of a file name: a sequence "
                "number may have letters, digits, _ . -, at most 110 characters"
            )


def _row(batch: RecordBatch, index: int) -> str:
    return f"{batch.sequence_numbers[index]}.{batch.sub_sequence_numbers[index]}"
