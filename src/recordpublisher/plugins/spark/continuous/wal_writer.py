"""WalWriter: appends to the write-ahead log. Of several writers only the one that took over last can append."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Awaitable, Callable

from recordpublisher.fetcher.sink import State
from recordpublisher.plugins.stores.write_once_store import WriteOnceStore
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import FencedError, ImpossibleStateError

from .row_file import RowFile
from .wal_entry import WalEntry, entry_numbers, file_name, last_entry, put_entry

LOG = logging.getLogger("recordpublisher.spark")
OWNERSHIP_CHECK_SECONDS = 10.0
"""How often a writer lists the log to see whether another one has taken over."""


class WalWriter:
    """Owns the end of the log from `take_over` until another writer takes over.

    Entries are numbered from 1, and each number can be put once. A start puts an entry without rows after the last one. The previous
    writer then finds its next number taken and is fenced off: the rows that it still holds never become part of the log (S6).
    """

    def __init__(self, store: WriteOnceStore, clock: Clock) -> None:
        self.store = store
        self._clock = clock
        self._writer = ""
        self._number = 0
        self._checked_at = clock.monotonic()

    async def take_over(self, starting_state: Callable[[], Awaitable[State]]) -> State:
        """Fence off every earlier writer; returns the state to continue from. An empty log begins with `starting_state`.

        Raises: FencedError when another start took over right after this one, StateError.
        """
        self._writer = uuid.uuid4().hex
        while True:
            found = await last_entry(self.store)
            last, state = (0, await starting_state()) if found is None else (found[0], found[1].state)
            mine = WalEntry(self._writer, self._clock.now_ms(), state)
            if (await put_entry(self.store, last + 1, mine)).writer != self._writer:
                continue  # another writer has appended since the listing
            self._number = last + 1
            if await self._is_at_end():
                LOG.info("the fetcher has taken over the write-ahead log at entry %s", self._number)
                return state

    async def append(self, rows: RowFile | None, state: State, watermark: int | None) -> int:
        """Add rows and the position after them as one entry; returns its number. Raises: FencedError, StateError.

        After an error it is not known whether they are part of the log: a new start has to take it over.
        """
        if not self._writer:
            raise ImpossibleStateError("the write-ahead log must be taken over before anything is appended")
        await self.check_ownership()
        number = self._number + 1
        file = None
        if rows is not None:
            file = file_name(number, self._writer)
            await self.store.put(file, rows.content)
        count, payload = (0, 0) if rows is None else (rows.count, rows.payload)
        entry = WalEntry(self._writer, self._clock.now_ms(), state, file, count, payload, watermark)
        if (await put_entry(self.store, number, entry)).writer != self._writer:
            raise self._fenced()
        self._number = number
        return number

    async def check_ownership(self) -> None:
        """Check from time to time that no other writer has taken over. Raises: FencedError.

        After a long suspension a writer's next number may be free again, since the query has read and purged the entries of its successor.
        Nobody would read an entry that it put there.
        """
        if self._clock.monotonic() - self._checked_at < OWNERSHIP_CHECK_SECONDS:
            return
        self._checked_at = self._clock.monotonic()
        numbers = await entry_numbers(self.store)
        if numbers and numbers[-1] > self._number:
            raise self._fenced()

    async def _is_at_end(self) -> bool:
        """Whether the entry that was just put is the log's last; if not, it must be put again after the last. Raises: FencedError.

        A start that was suspended between the listing and its put may have put the entry under a number that was purged meanwhile. Then the
        entry before it was purged as well, since purging removes the oldest first. If that one exists, another start took over after this.
        """
        numbers = await entry_numbers(self.store)
        if not numbers or numbers[-1] <= self._number:
            return True
        if {self._number - 1, self._number + 1} <= set(numbers):
            raise self._fenced()
        return False

    def _fenced(self) -> FencedError:
        return FencedError(
            f"another start of this query has taken over its write-ahead log after entry {self._number}; this one must stop"
        )
