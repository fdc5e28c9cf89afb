"""WalPlanner: plans the batches of a query that reads a write-ahead log: the next batch, its files, and what is purged."""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from recordpublisher.plugins.stores.write_once_store import WriteOnceStore
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import StateError

from .row_file import StoredFile
from .wal_entry import ENTRIES, FILES, UnreadEntries, WalEntry, check_entry, number_of
from .wal_identity import START_ANEW, check_query, claim_for_query, wal_id
from .wal_offset import WalOffset
from .wal_progress import BatchFigures

LOG = logging.getLogger("recordpublisher.spark")
IDLE_CHECK_SECONDS = 1.0
"""How often a query without new entries checks that the log still exists."""
MAX_QUIET_ENTRIES = 64
"""The most entries without rows that may wait for the next batch; then an empty batch reads past them."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one batch, approximate: a batch has whole files, at least one (None: no limit)."""

    rows: int | None = None
    payload: int | None = None

    def allow(self, rows: int, payload: int) -> bool:
        """Whether these rows and bytes fit into one batch."""
        return (self.rows is None or rows <= self.rows) and (self.payload is None or payload <= self.payload)


def last_of_batch(unread: Mapping[int, WalEntry], limits: Limits) -> int:
    """The number of the last entry of the next batch."""
    last = rows = payload = 0
    for number, entry in unread.items():
        if rows and entry.rows and not limits.allow(rows + entry.rows, payload + entry.payload):
            break
        last, rows, payload = number, rows + entry.rows, payload + entry.payload
    return last


@dataclass(slots=True)
class WalPlanner:
    """Owns what a query's driver keeps between batches. What must survive a restart is in the offsets and in the log."""

    store: WriteOnceStore
    clock: Clock
    retain: int
    """How many committed batches can be read again."""
    _figures: BatchFigures = field(default_factory=BatchFigures)
    _query: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    _unread: UnreadEntries = field(init=False)
    _wal: str = ""
    _committed: deque[WalOffset] = field(default_factory=deque)
    _is_purging: bool = False
    _checked_at: float = 0.0

    def __post_init__(self) -> None:
        self._unread = UnreadEntries(self.store)

    @property
    def figures(self) -> dict[str, object]:
        """Progress figures of the last planned batch, and of the last one that has ended."""
        return self._figures.values

    async def initial_offset(self) -> WalOffset:
        """The offset before the first entry."""
        return WalOffset(await wal_id(self.store), self._query)

    def start_of_unknown_log(self) -> WalOffset:
        """The same while the store is away: the first batch will name the log."""
        return WalOffset("", self._query)

    async def next_offset(self, start: WalOffset, limits: Limits) -> WalOffset | None:
        """The end of the next batch; None when there is nothing to read. Raises: StateError."""
        await self._check_once(start)
        self._figures.note_ended(start.batch, self.clock.now_ms())
        self._unread.forget(start.entry)
        unread = await self._unread.after(start.entry)
        if not any(entry.rows for entry in unread.values()) and len(unread) < MAX_QUIET_ENTRIES:
            await self._check_idle_log(start)
            return None
        return self._batch(start, unread, last_of_batch(unread, limits))

    async def files(self, start: WalOffset, end: WalOffset) -> list[StoredFile]:
        """The files of a batch in order: a function of the two offsets. Reserves the log for this query.

        Raises: StateError when the log belongs to another query, or some of the files were removed.
        """
        await self._check_once(end)
        await claim_for_query(self.store, end.query)
        unread = await self._unread.after(start.entry)
        if start.entry < end.entry and end.entry not in unread:
            raise StateError(f"entries of batch {end.batch} are gone from the write-ahead log: {START_ANEW}")
        taken = [entry for number, entry in unread.items() if number <= end.entry]
        return [StoredFile(entry.file, entry.rows) for entry in taken if entry.file is not None]

    async def commit(self, end: WalOffset) -> None:
        """Spark has committed a batch: purge what earlier batches have read, except the last `retain` ones."""
        self._committed.append(end)
        if len(self._committed) <= self.retain or self._is_purging:
            return
        while len(self._committed) > self.retain:
            oldest = self._committed.popleft()
        self._is_purging = True
        try:
            await purge(self.store, oldest.entry)
        except StateError as error:
            LOG.warning("old files of the write-ahead log cannot be removed: %s", error)
        finally:
            self._is_purging = False

    async def _check_once(self, known: WalOffset) -> None:
        """Check, at the first call, that the log is the one that the checkpoint was made with and belongs to this query."""
        if self._wal:
            return
        found = await wal_id(self.store)
        if known.wal and found != known.wal:
            raise StateError(
                "metadataLocation does not have the write-ahead log of this checkpoint: it was deleted, or the location is another one. "
                f"Rows that the fetcher had logged and the query had not read are lost: {START_ANEW}"
            )
        await check_query(self.store, known.query)
        if known.entry:
            await check_entry(self.store, known.entry)
        self._wal = found

    async def _check_idle_log(self, start: WalOffset) -> None:
        """End a query without new entries when its log was deleted: the last entry that was read is never purged."""
        now = self.clock.monotonic()
        if start.entry and now - self._checked_at >= IDLE_CHECK_SECONDS:
            self._checked_at = now
            await check_entry(self.store, start.entry)

    def _batch(self, start: WalOffset, unread: Mapping[int, WalEntry], last: int) -> WalOffset:
        taken = [entry for number, entry in unread.items() if number <= last]
        rows, payload = sum(entry.rows for entry in taken), sum(entry.payload for entry in taken)
        records, size = start.records + rows, start.bytes + payload
        end = WalOffset(self._wal, start.query, start.batch + 1, last, records, size)
        waiting = sum(entry.rows for entry in unread.values()) - rows
        self._figures.note_planned(end, taken, waiting, self.clock.now_ms())
        return end


async def purge(store: WriteOnceStore, read: int) -> None:
    """Remove the entries before number `read`, and their files. Entry `read` stays: the fetcher restarts from the last entry.

    A writer that was fenced off long ago may still put an entry under a purged number. It lies before every offset, so nobody reads it, and
    the next purge removes it. Raises: StateError.
    """
    names = [*await store.names(ENTRIES), *await store.names(FILES)]
    await store.delete(name for name in names if (number := number_of(name)) is not None and number < read)
