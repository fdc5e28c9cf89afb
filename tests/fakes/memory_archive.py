"""An archive in memory, which a real fetcher writes through the rules of the file sinks, and the publisher ARCHIVE reads."""

from __future__ import annotations

from typing import Any

from recordpublisher.fetcher.checkpoints.snapshot_format import merge_snapshots
from recordpublisher.fetcher.sink import Sink
from recordpublisher.plugins.archive.next_step import ranges_of
from recordpublisher.plugins.sinks.archived_shards import ArchivedShards, FileRange
from recordpublisher.publishers.records import RecordColumns, columns_of


class Rows:
    """The rows of a file, in groups of a few."""

    def __init__(self, rows: RecordColumns, size: int) -> None:
        self._rows, self._size = rows, size
        self.groups = -(-len(rows) // size)

    async def rows(self, group):
        return self._rows[group * self._size : (group + 1) * self._size]

    def close(self):
        pass


class MemoryArchive:
    """The catalogue. A listing shows what was published when it was made."""

    place = "memory"

    def __init__(self) -> None:
        self.published: dict[str, tuple[str, FileRange, RecordColumns]] = {}
        self.stored: dict[str, Any] = {}
        self.state: Any = None
        self.group_size = 3
        self._view: dict[str, tuple[str, FileRange, RecordColumns]] | None = None

    def reader(self):
        """A catalogue of another process."""
        other = MemoryArchive()
        other.published, other.stored, other.owner = self.published, self.stored, self
        return other

    async def documents(self, stream):
        return {each.id: each for each in self.stored.values()}

    async def document(self, shard):
        return self.stored.get(shard.key)

    async def shard_ids(self, stream):
        return {key.rpartition("/")[2] for key, _, _ in self.published.values()}

    async def files(self, shard, *, again):
        if self._view is None:
            self._view = dict(self.published)
        if again:
            others = {path: each for path, each in self._view.items() if each[0] != shard.key}
            self._view = others | {path: each for path, each in self.published.items() if each[0] == shard.key}
        mine = [(path, str(covered)) for path, (key, covered, _) in self._view.items() if key == shard.key]
        return ranges_of(mine, int)

    async def committed(self):
        state = getattr(self, "owner", self).state
        return [] if state is None else [*merge_snapshots([state]).shards.items()]

    async def open(self, file):
        if file.paths[0] not in self.published:
            raise FileNotFoundError(file.paths[0])
        return Rows(self.published[file.paths[0]][2], self.group_size)

    async def close(self):
        pass


class MemoryArchiveSink(Sink):
    """Keeps batches until `commit`, and files until they are published, as the file sinks do."""

    def __init__(self, archive: MemoryArchive) -> None:
        self.archive = archive
        self.archived = ArchivedShards()
        self.waiting: list[tuple[str, FileRange, RecordColumns]] = []
        self.staged: list[tuple[str, FileRange, RecordColumns]] = []
        self.documents: list[Any] = []

    async def write(self, batch):
        self.waiting.append((batch.shard.key, self.archived.range_of(batch), columns_of(batch.records)))

    def shard_listed(self, shard, open_ms=None):
        self.archived.on_listed(shard, open_ms)

    def shard_started(self, shard, start, *, follows_parents):
        self.archived.on_started(shard, start, follows_parents)

    def shard_passed(self, shard, position):
        if (covered := self.archived.left_out_range(shard, position)) is not None:
            self.waiting.append((shard.key, covered, RecordColumns(records=[])))

    def shard_ended(self, shard, children):
        self.archived.on_ended(shard, children)

    def commit(self, snapshot) -> None:
        """Stage a file for each shard and gap, with the positions: in one step, as a commit is."""
        changes = self.archived.changes()
        for key, covered, rows in self.waiting:
            last = next((each for each in self.staged if each[0] == key and each[1].through == covered.after), None)
            if last is None:
                self.staged.append((key, covered, rows))
            else:
                together = RecordColumns(records=[*last[2].records, *rows.records])
                self.staged[self.staged.index(last)] = key, FileRange(last[1].after, covered.through), together
        self.waiting = []
        self.documents += self.archived.finished(changes)
        self.archived.on_staged(changes)
        self.archive.state = snapshot

    def publish(self, count: int) -> None:
        """Publish the documents, and some of the files in any order."""
        for document in self.documents:
            old = self.archive.stored.get(document.name)
            self.archive.stored[document.name] = document if old is None else old.united(document)
        self.documents = []
        for key, covered, rows in self.staged[:count]:
            path = f"{key}/{covered}"
            while path in self.archive.published:
                path += "+"
            self.archive.published[path] = key, covered, rows
        self.staged = self.staged[count:]

    def take_over(self, former: MemoryArchiveSink) -> None:
        """Publish what a former start has committed."""
        self.staged, self.documents = former.staged, former.documents
