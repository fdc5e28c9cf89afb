"""BackPressure: the fetcher waits while the query has too many unread entries of the write-ahead log."""

from __future__ import annotations

import asyncio
import logging

from recordpublisher.plugins.stores.write_once_store import WriteOnceStore

from .wal_entry import entry_numbers, read_entries_without_state

LOG = logging.getLogger("recordpublisher.spark")
MAX_UNREAD_ENTRIES = 5_000
"""The most entries that may be unread, however small: all of them are listed for every batch."""


class BackPressure:
    """Owns how much of the log the query has not read. The fetcher's sink and the query's planning share it, on one event loop."""

    def __init__(self, limit_bytes: int, poll_seconds: float = 10.0) -> None:
        """`limit_bytes` of unread rows are allowed; `poll_seconds` is the longest that `wait` lasts."""
        self._poll_seconds = poll_seconds
        self._limit = limit_bytes
        self._read = 0
        self._unread: dict[int, int] = {}
        self._changed = asyncio.Event()
        self._is_over = False
        self._was_full = False

    async def count_unread(self, store: WriteOnceStore) -> None:
        """Count the entries of earlier starts that the query has not read. Raises: StateError."""
        left = [number for number in await entry_numbers(store) if number > self._read]
        entries = await read_entries_without_state(store, left)
        self._unread |= {number: entry.payload for number, entry in entries.items()}

    def add(self, number: int, payload: int) -> None:
        """Count an entry as unread, unless the query has planned it already."""
        if number > self._read:
            self._unread[number] = payload

    def read_up_to(self, number: int) -> None:
        """Count every entry up to this one as read."""
        if number > self._read:
            self._read = number
            self._unread = {unread: payload for unread, payload in self._unread.items() if unread > number}
            self._changed.set()

    def is_full(self) -> bool:
        """Whether a write has to wait."""
        has_too_much = sum(self._unread.values()) >= self._limit or len(self._unread) >= MAX_UNREAD_ENTRIES
        return has_too_much and not self._is_over

    async def wait(self) -> None:
        """Return when the query has read more, after `release`, or after `poll_seconds`."""
        if not self._was_full:
            LOG.info("%s entries of the write-ahead log are unread, the fetcher waits for the query", len(self._unread))
        self._was_full = True
        self._changed.clear()
        try:
            async with asyncio.timeout(self._poll_seconds):
                await self._changed.wait()
        except TimeoutError:
            return
        self._was_full = self.is_full()

    def release(self) -> None:
        """The fetcher stops: nothing waits any more, and its last rows may exceed the limit."""
        self._is_over = True
        self._changed.set()
