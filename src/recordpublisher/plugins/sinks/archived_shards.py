"""Decides which range of positions each file of an archive covers completely, and stores a document for each shard of the archive."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from recordpublisher.fetcher.conditional_store import ConditionalStore, ConflictError, read_document, write_value
from recordpublisher.fetcher.shards.read_state import latest
from recordpublisher.fetcher.sink import CommittingSink
from recordpublisher.publishers.errors import ConfigurationError, SinkError
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.properties.job_properties import COMPRESSION
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.sink_properties import ARCHIVE, PARQUET_COLUMNS, PARTITIONS
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.shards import Shard, is_valid_name, shard_to_json

HIDDEN = ".recordpublisher"
"""Folder inside the folder of a file sink, for files that are not committed yet. No table may be inside it."""
SHARDS = "_recordpublisher/shards"
"""Folder inside an archive, with a JSON document for each shard (`ShardDocument`)."""
RANGES = "_recordpublisher/ranges"
"""Folder inside an archive, with empty files whose names are ranges of positions (`FileRange`).

In a table these are the ranges of all files, otherwise only ranges without records.
"""
COLUMNS = (
    "sequenceNumber",
    "subSequenceNumber",
    "approximateArrivalTimestamp",
    "partitionKey",
    "explicitHashKey",
    "data",
)
"""The columns that the files of an archive must have."""
BEGIN = "BEGIN"
"""The name of a range begins so if the range has every record from the beginning of the shard."""
AT = "AT"
"""The name of a range begins so if the shard may have had records before the first record of the range."""
_NUMBER = re.compile(r"[A-Za-z0-9.-]{1,100}")


class ArchivedShards:
    """Decides which range of positions each file of an archive covers, and collects the shard documents that must be stored.

    Sequence numbers of Kinesis have gaps, so the records of two files do not show whether a file between them is missing. Therefore each
    range begins where the shard's last range ended, or at the position from which the shard's reader started.
    """

    def __init__(self) -> None:
        self._reached: dict[str, str] = {}
        self._changed: dict[str, ShardDocument] = {}
        self._staged: dict[str, ShardDocument] = {}

    def begin(self) -> None:
        """Forget where the last range of each shard ended, because readers start again at committed positions.

        Shard documents that are not published yet will be stored again, because their commit may never take effect.
        """
        self._reached, self._changed, self._staged = {}, self._staged | self._changed, {}
        self._without_ends(self._changed.keys())

    def forget(self, shards: Collection[str]) -> None:
        """Forget where the last ranges of these shards ended, because another process reads the shards."""
        for key in shards:
            self._reached.pop(key, None)
        self._without_ends(shards)

    def _without_ends(self, shards: Collection[str]) -> None:
        for key in self._changed.keys() & set(shards):
            self._changed[key] = msgspec.structs.replace(self._changed[key], end=None)

    def on_listed(self, shard: Shard, open_ms: int | None) -> None:
        """Let the next commit store a document for the shard. `open_ms`: a time at which the shard was open (epoch ms), if known."""
        document = msgspec.convert(shard_to_json(shard), ShardDocument)
        self._change(msgspec.structs.replace(document, open_ms=open_ms))

    def on_started(self, shard: Shard, start: StartingPosition, follows_parents: bool) -> None:
        """Let the range of the shard's next file begin at `start`.

        `follows_parents`: whether a start at TRIM_HORIZON has every record of the shard. Otherwise older records may have expired.
        """
        after = _after(start, follows_parents)
        if after == AT or self._reached.get(shard.key) != after:
            self._reached[shard.key] = after

    def on_ended(self, shard: Shard, children: Sequence[Shard]) -> None:
        """Let the next commit store that the shard has ended, and which children it has."""
        end = ArchivedShardEnd("", tuple(child.shard_id for child in children))
        self._change(msgspec.structs.replace(msgspec.convert(shard_to_json(shard), ShardDocument), end=end))

    def _change(self, newer: ShardDocument) -> None:
        before = self._changed.get(newer.name)
        self._changed[newer.name] = newer if before is None else before.united(newer)

    def range_of(self, batch: RecordBatch) -> FileRange:
        """Return the range of positions that `batch` covers. The shard's next range begins where this one ends.

        Raises: SinkError if a sequence number cannot be a part of a file name.
        """
        first, last = _row(batch, 0), _row(batch, -1)
        position = batch.read_position
        through = last if position is None or position.continuation else position_text(position)
        _check_names(batch.shard, first, last, through)
        after = self._reached.get(batch.shard.key, AT)
        self._reached[batch.shard.key] = through
        return FileRange(f"{AT}-{first}" if after == AT else after, through)

    def left_out_range(self, shard: Shard, position: SequenceNumber) -> FileRange | None:
        """Return the range from the end of the shard's last range to `position`. Nothing was written for this range.

        Return None if the end of the last range is not known. Without an empty file for this range, its records would count as missing.
        """
        through = position_text(position)
        _check_names(shard, through)
        after, self._reached[shard.key] = self._reached.get(shard.key, AT), through
        return None if after == AT else FileRange(after, through)

    def changes(self) -> Mapping[str, ShardDocument]:
        """Return the shard documents that the next commit must store, by `Shard.key`."""
        return dict(self._changed)

    def finished(self, documents: Mapping[str, ShardDocument]) -> list[ShardDocument]:
        """Return `documents`. The document of each ended shard also gets the position where the shard's files end."""
        return [self._with_through(key, each) for key, each in documents.items()]

    def on_staged(self, documents: Mapping[str, ShardDocument]) -> None:
        """Remove the staged documents from `changes`. A newer document of the same shard stays there for a later commit."""
        self._staged |= documents
        for key, document in documents.items():
            if self._changed.get(key) is document:
                del self._changed[key]

    def on_published(self, documents: Sequence[ShardDocument]) -> None:
        """Remember that these documents are stored, so that a new run of the worker does not store them again."""
        for document in documents:
            self._staged.pop(document.name, None)

    def _with_through(self, key: str, document: ShardDocument) -> ShardDocument:
        if document.end is None:
            return document
        return msgspec.structs.replace(
            document, end=ArchivedShardEnd(self._reached.get(key, AT), document.end.children)
        )


class FileRange(msgspec.Struct, frozen=True):
    """The range of a file that has every record of one shard after the position `after`, up to and including `through`.

    `position_text` writes these positions. `after` may also be `BEGIN`, or `AT-` and the position of the first record.
    """

    after: str
    through: str

    def __str__(self) -> str:
        """Return the range as text, in the form for names of files."""
        return f"{self.after}_{self.through}"


class ArchivedShardEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """The end of an archived shard.

    - `through`: the position where the shard's files end, in the form of `position_text`.
    - `children`: the ids of the shard's children.
    """

    through: str
    children: tuple[str, ...] = ()


class ShardDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """The document of one shard: its lineage and hash range, as `shard_to_json` has them.

    - `open_ms`: a time at which the shard was open (epoch ms). The records of its children arrived later.
    - `end`: the shard's end, if the archive has it.
    """

    stream: str
    id: str
    parents: tuple[str, ...] = ()
    range: str | None = None
    arn: str | None = None
    open_ms: int | None = msgspec.field(default=None, name="openMs")
    end: ArchivedShardEnd | None = None

    @property
    def name(self) -> str:
        """The name under which the document is stored, which is also the key of the shard."""
        return f"{self.stream}/{self.id}"

    def united(self, newer: ShardDocument) -> ShardDocument:
        """Return this document with what a newer one adds. Known parents stay, because a later listing may lack them."""
        # A newer document may have an older time: the commit of a worker that was replaced is published late.
        parents, open_ms = self.parents or newer.parents, latest(self.open_ms, newer.open_ms)
        return msgspec.structs.replace(self, parents=parents, open_ms=open_ms, end=newer.end or self.end)


def position_text(position: SequenceNumber) -> str:
    """Return a position in the form for names of files: `<sequence number>.<sub-sequence number>`. For a whole record it ends in `.-1`."""
    return f"{position.sequence}.{position.sub_sequence}"


@dataclass(frozen=True, slots=True)
class WaitingBatch:
    """A batch that waits for a checkpoint.

    - `first`, `last`: sequence and sub-sequence number of its first and last record.
    - `content`: the batch in the form that the sink writes; None if none of its records can be written.
    - `held_bytes`: bytes that `content` holds in memory.
    - `covered`: the range whose records are all in the batch; None if the sink writes no archive.
    """

    stream: str
    shard_id: str
    first: str
    last: str
    content: Any
    held_bytes: int
    covered: FileRange | None = None

    @property
    def shard(self) -> str:
        """Key of the shard, like `Shard.key`."""
        return f"{self.stream}/{self.shard_id}"


class ArchivingSink(CommittingSink):
    """A sink whose files can be an archive (`flink.sink.archive`).

    For an archive it collects which positions each file covers, and a document for each shard. The next commit stores them.
    """

    _waiting: list[WaitingBatch]

    def __init__(self, properties: Properties) -> None:
        """Read `flink.sink.archive`. Raises: ConfigurationError if it is set and the job decompresses payloads."""
        self.keeps_archive: bool = properties.value(ARCHIVE)
        if self.keeps_archive and (compression := properties.value(COMPRESSION)) != "NONE":
            reason = (
                f"an archive has payloads as they were received; leave {COMPRESSION.key} "
                "out, and set it in the job that reads the archive"
            )
            raise ConfigurationError(COMPRESSION.key, compression, "NONE", reason=reason)
        self._archived = ArchivedShards()

    def shard_listed(self, shard: Shard, open_ms: int | None = None) -> None:
        """Let the next commit store a document for the shard, if the sink writes an archive.

        `open_ms`: a time at which the shard was open (epoch ms), if known.
        """
        if self.keeps_archive:
            self._archived.on_listed(shard, open_ms)

    def shard_started(self, shard: Shard, start: StartingPosition, *, follows_parents: bool) -> None:
        """Let the range of the shard's next file begin at `start`, if the sink writes an archive.

        `follows_parents`: whether a start at TRIM_HORIZON has every record of the shard. Otherwise older records may have expired.
        """
        if self.keeps_archive:
            self._archived.on_started(shard, start, follows_parents)

    def shard_passed(self, shard: Shard, position: SequenceNumber) -> None:
        """Let the next commit store, in an archive, that the job read up to `position` and found nothing to write.

        Raises: SinkError if the position cannot be a part of a file name.
        """
        if self.keeps_archive and (covered := self._archived.left_out_range(shard, position)) is not None:
            self._waiting.append(WaitingBatch(shard.stream, shard.shard_id, "", "", None, 0, covered))

    def shard_ended(self, shard: Shard, children: Sequence[Shard]) -> None:
        """Let the next commit store that the shard has ended, and which children it has, if the sink writes an archive."""
        if self.keeps_archive:
            self._archived.on_ended(shard, children)


def batches_by_file(parts: Sequence[WaitingBatch]) -> list[list[WaitingBatch]]:
    """Return a list of batches for each file. A file has the batches of one shard, in order.

    In an archive a new file begins if positions are missing between two batches.
    """
    files: list[list[WaitingBatch]] = []
    newest: dict[str, list[WaitingBatch]] = {}
    for part in parts:
        before = newest.get(part.shard)
        last = None if before is None else before[-1].covered
        has_gap = last is not None and part.covered is not None and part.covered.after != last.through
        if before is None or has_gap:
            newest[part.shard] = before = []
            files.append(before)
        before.append(part)
    return files


def joined_range(parts: Sequence[WaitingBatch]) -> FileRange | None:
    """Return the range that the batches of one file cover together, or None if the sink writes no archive."""
    first, last = parts[0].covered, parts[-1].covered
    return None if first is None or last is None else FileRange(first.after, last.through)


def check_partitions(names: Collection[str], given: str | None) -> None:
    """Check the names of an archive's partition columns. Files lack these columns, so none of them may be a column that an archive needs.

    - `given`: the value of `flink.sink.partitions`, for the message.

    Raises: ConfigurationError if one is in `COLUMNS`.
    """
    for name in names:
        if name in COLUMNS:
            reason = (
                f"the files would then lack the column {name}, which an archive needs; partition by a field or a time"
            )
            raise ConfigurationError(PARTITIONS.key, given, reason=reason)


def no_archive_of_fields() -> ConfigurationError:
    """Return the error for a job that would write an archive with the fields of a type as columns."""
    reason = f"the columns of fields replace 'data', which an archive needs; set {PARQUET_COLUMNS.key}=RECORD"
    return ConfigurationError(ARCHIVE.key, "true", reason=reason)


async def store_documents(store: ConditionalStore, documents: Sequence[ShardDocument]) -> None:
    """Add the content of these documents to the stored documents of the same shards.

    Several processes may make this call at the same time, and repeat it.

    Raises: StoreUnavailableError if the store cannot be reached now; StateError if a stored document cannot be read.
    """
    stored = await store.get_all(document.name for document in documents)
    for document in documents:
        there = stored.get(document.name)
        while True:
            place = f"{document.name} in {store.place}"
            old = None if there is None else read_document(there.value, ShardDocument, place, 1)
            new = document if old is None else old.united(document)
            if new == old:
                break
            try:
                value = msgspec.json.encode(new)
                await write_value(store, document.name, value, None if there is None else there.version)
                break
            except ConflictError as error:  # Another process was faster: add to what it has stored.
                there = error.current


def _after(start: StartingPosition, follows_parents: bool) -> str:
    if start.skip_through is not None:
        return position_text(start.skip_through)
    if start.type == "AFTER_SEQUENCE_NUMBER" and start.sequence_number is not None:
        return position_text(SequenceNumber(start.sequence_number))
    return BEGIN if start.type == "TRIM_HORIZON" and follows_parents else AT


def _check_names(shard: Shard, *texts: str) -> None:
    for name in (shard.stream, shard.shard_id):
        if not is_valid_name(name):
            raise SinkError(
                f"{name[:200]!r} cannot be part of an archive's paths: the name of a stream or shard may have letters, digits, "
                "_ . -, at most 128 characters"
            )
    for text in texts:
        if not _NUMBER.fullmatch(text):
            raise SinkError(
                f"the position {text[:200]!r} of {shard.key} cannot be part of a file's name in an archive: use letters, digits, . "
                "and -, at most 100 characters"
            )


def _row(batch: RecordBatch, index: int) -> str:
    return f"{batch.sequence_numbers[index]}.{batch.sub_sequence_numbers[index]}"
