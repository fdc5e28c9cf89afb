"""WalWriter: the only way rows get into the write-ahead log. Of several writers the one that took over last can append, and no other."""

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

    Entries are numbered from 1, and each number can be put once. A start puts an entry without rows behind the last one. The writer
    before it then finds its next number taken, and has lost the log: whatever it still holds was never part of it (S6).
    """

    def __init__(self, store: WriteOnceStore, clock: Clock) -> None:
        self.store = store
        self._clock = clock
        self._writer = ""
        self._number = 0
        self._checked_at = clock.monotonic()

    async def take_over(self, starting_state: Callable[[], Awaitable[State]]) -> State:
        """Shut out every earlier writer; returns the state to go on from. An empty log begins with `starting_state`.

        Raises: FencedError when another start came right behind this one, StateError.
        """
        self._writer = uuid.uuid4().hex
        while True:
            found = await last_entry(self.store)
            last, state = (0, await starting_state()) if found is None else (found[0], found[1].state)
            mine = WalEntry(self._writer, self._clock.now_ms(), state)
            if (await put_entry(self.store, last + 1, mine)).writer != self._writer:
                continue  # somebody appended since the listing
            self._number = last + 1
            if await self._is_at_end():
                LOG.info("the fetcher has taken over the write-ahead log at entry %s", self._number)
                return state

    async def append(self, rows: RowFile | None, state: State, watermark: int | None) -> int:
        """Add rows and the position behind them as one entry; returns its number. Raises: FencedError, StateError.

        After an error it is not known whether they are part of the log: it must be taken over anew.
        """
        if not self._writer:
            raise ImpossibleStateError("the write-ahead log is taken over before anything is appended")
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
        """Now and then: whether this is still the last writer. Raises: FencedError.

        A writer that slept for long finds its next number free again: those behind it were read by the query and purged. Nobody would
        read what it puts there.
        """
        if self._clock.monotonic() - self._checked_at < OWNERSHIP_CHECK_SECONDS:
            return
        self._checked_at = self._clock.monotonic()
        numbers = await entry_numbers(self.store)
        if numbers and numbers[-1] > self._number:
            raise self._fenced()

    async def _is_at_end(self) -> bool:
        """Whether the entry that was just put is the log's end; else it must be put again behind the end. Raises: FencedError.

        A start that slept between the listing and its entry may have put the entry where others were purged meanwhile. Then its
        predecessor was purged as well, since purging removes the oldest first. If the predecessor is there, another start came behind.
        """
        numbers = await entry_numbers(self.store)
        if not numbers or numbers[-1] <= self._number:
            return True
        if {self._number - 1, self._number + 1} <= set(numbers):
            raise self._fenced()
        return False

    def _fenced(self) -> FencedError:
        return FencedError(
            f"another start of this query has taken over its write-ahead log behind entry {self._number}; this one must stop"
        )
