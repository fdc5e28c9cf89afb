"""Knows in which ranges the files of an archive are complete, and writes one document for each archived shard."""

import re
from collections.abc import Collection, Mapping, Sequence

import msgspec

from recordpublisher.fetcher.conditional_store import ConditionalStore, ConflictError, write_value
from recordpublisher.fetcher.stored_documents import read_document
from recordpublisher.publishers.errors import SinkError
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.shards import Shard, shard_to_json

SHARDS = "_recordpublisher/shards"
"""Where an archive has the documents of its shards, below its folder."""
EMPTY_RANGES = "_recordpublisher/ranges"
"""Where an archive has the ranges without records, as names of empty files."""
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
"""The beginning of a range that lacks no record of its shard before."""
AT = "AT"
"""A range begins with its first record: whether the shard had records before is not known."""
_NUMBER = re.compile(r"[A-Za-z0-9.-]{1,100}")


class Range(msgspec.Struct, frozen=True):
    """The range of a file, which has every record of one shard behind `after`, up to and including `through`.

    Both are positions as `position_text` writes them. `after` may also be `BEGIN`, or `AT-` and the position of the first record.
    """

    after: str
    through: str

    def __str__(self) -> str:
        """Return the range as it stands in the name of a file."""
        return f"{self.after}_{self.through}"


class ShardEnd(msgspec.Struct, frozen=True, omit_defaults=True):
    """The end of an archived shard: the position where its files end, as in `Range`, and the ids of its children."""

    through: str
    children: tuple[str, ...] = ()


class ShardDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """The document of one shard: its lineage and hash range, as `shard_to_json` has them.

    - `open_ms`: a time at which the shard was open (epoch ms), so that the records of its children arrived later.
    - `end`: the shard's end, if the archive has it.
    """

    stream: str
    id: str
    parents: tuple[str, ...] = ()
    range: str | None = None
    arn: str | None = None
    open_ms: int | None = msgspec.field(default=None, name="openMs")
    end: ShardEnd | None = None

    @property
    def name(self) -> str:
        """The name under which the document is stored, which is also the key of the shard."""
        return f"{self.stream}/{self.id}"

    def united(self, newer: "ShardDocument") -> "ShardDocument":
        """Return this document with what a newer one adds. A listing may lack parents that an earlier one had."""
        parents, open_ms = self.parents or newer.parents, self.open_ms if newer.open_ms is None else newer.open_ms
        return msgspec.structs.replace(self, parents=parents, open_ms=open_ms, end=newer.end or self.end)


def position_text(position: SequenceNumber) -> str:
    """Return a position as names of files have it: sequence number, dot, sub-sequence number. The last is -1 for a whole record."""
    return f"{position.sequence}.{position.sub_sequence}"


class ArchivedShards:
    """Owns how far the ranges of each shard reach, and what the documents of the shards must say.

    Kinesis' sequence numbers are not dense, so the records of a file never show that one is missing between two files. So a range begins
    where the range before it ended, or where the reader of the shard started. Only the position of the job knows that.
    """

    def __init__(self) -> None:
        self._reached: dict[str, str] = {}
        self._listed: dict[str, ShardDocument] = {}
        self._ended: dict[str, ShardDocument] = {}

    def begin(self) -> None:
        """Forget how far the ranges reach, because the next readers start at committed positions."""
        self._reached, self._ended = {}, {}

    def forget(self, shards: Collection[str]) -> None:
        """Forget how far the ranges of these shards reach, because another process reads the shards."""
        for key in shards:
            for each in (self._reached, self._ended):
                each.pop(key, None)

    def on_listed(self, shard: Shard, open_ms: int | None) -> None:
        """Remember that the shard needs a document."""
        if open_ms is None and (before := self._listed.get(shard.key)) is not None:
            open_ms = before.open_ms  # A listing has shown it, and then the shard was found in another way, too.
        document = msgspec.convert(shard_to_json(shard), ShardDocument)
        self._listed[shard.key] = msgspec.structs.replace(document, open_ms=open_ms)

    def on_started(self, shard: Shard, start: StartingPosition, follows_parents: bool) -> None:
        """Begin a range, unless the last one ended there."""
        after = _after(start, follows_parents)
        if after == AT or self._reached.get(shard.key) != after:
            self._reached[shard.key] = after

    def on_ended(self, shard: Shard, children: Sequence[Shard]) -> None:
        """Remember that the next document of the shard must have its end."""
        end = ShardEnd("", tuple(child.shard_id for child in children))
        self._ended[shard.key] = msgspec.structs.replace(msgspec.convert(shard_to_json(shard), ShardDocument), end=end)

    def range_of(self, batch: RecordBatch) -> Range:
        """Return the range of a batch that is written, and begin the next range there.

        Raises: SinkError if a sequence number cannot be a part of such a name.
        """
        first, last = _row(batch, 0), _row(batch, -1)
        position = batch.read_position
        through = last if position is None or position.continuation else position_text(position)
        _check_names(batch.shard, first, last, through)
        after = self._reached.get(batch.shard.key, AT)
        self._reached[batch.shard.key] = through
        return Range(f"{AT}-{first}" if after == AT else after, through)

    def passed(self, shard: Shard, position: SequenceNumber) -> Range | None:
        """Return the range of records of which none is written, and begin the next range there.

        None if where the range begins is not known. A restart begins its range at the position, so without a file of this range the
        records before it would count as missing.
        """
        through = position_text(position)
        _check_names(shard, through)
        after, self._reached[shard.key] = self._reached.get(shard.key, AT), through
        return None if after == AT else Range(after, through)

    def changes(self) -> Mapping[str, ShardDocument]:
        """Return the documents that the next commit must store, by the key of the shard."""
        return self._listed | self._ended

    def finished(self, documents: Mapping[str, ShardDocument]) -> list[ShardDocument]:
        """Return these documents, each end with the position through which the files of its shard reach."""
        return [self._with_through(key, each) for key, each in documents.items()]

    def on_staged(self, documents: Mapping[str, ShardDocument]) -> None:
        """Remember that these documents are in an entry, or will be when it is committed."""
        for key, document in documents.items():
            for each in (self._listed, self._ended):
                if each.get(key) is document:
                    del each[key]

    def _with_through(self, key: str, document: ShardDocument) -> ShardDocument:
        if document.end is None:
            return document
        return msgspec.structs.replace(document, end=ShardEnd(self._reached.get(key, AT), document.end.children))


async def store_documents(store: ConditionalStore, documents: Sequence[ShardDocument]) -> None:
    """Store what the documents add to those that are there. Several processes may do so at the same time, and again.

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
    for text in texts:
        if not _NUMBER.fullmatch(text):
            raise SinkError(
                f"the position {text[:200]!r} of {shard.key} cannot be part of a file's name in an archive: use letters, digits, . "
                "and -, at most 100 characters"
            )


def _row(batch: RecordBatch, index: int) -> str:
    return f"{batch.sequence_numbers[index]}.{batch.sub_sequence_numbers[index]}"
