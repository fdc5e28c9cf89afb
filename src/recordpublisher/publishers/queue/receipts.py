"""Receipts: what a process holds of a queue, what it has acknowledged lately, and how many of its receivers are needed."""

import asyncio
from collections import deque

from .client import MOST_ENTRIES, ReceivedRecord

FULL_RECEIVES = 10
REMEMBERED = 20_000
"""Acknowledged records by which a duplicate is known; about 4 MB."""


class Receipts:
    """Owns the newest receipt handle of each record that is in flight here, and the ids of those acknowledged last."""

    def __init__(self, drops: bool) -> None:
        """`drops`: a record that was acknowledged and comes again is not passed on."""
        self._drops = drops
        self._handles: dict[str, str] = {}
        self._acknowledged: set[str] = set()
        self._order: deque[str] = deque()

    def take(self, received: ReceivedRecord) -> tuple[bool, bool]:
        """Take over a record: whether it was received before, and whether it is to be passed on.

        One that is in flight here is not: its newest handle is kept for the record that was passed on.
        """
        number = received.record_id
        is_in_flight, is_known = number in self._handles, number in self._acknowledged
        if is_in_flight or not (is_known and self._drops):
            self._handles[number] = received.handle
        return is_in_flight or is_known, not is_in_flight and not (is_known and self._drops)

    def handle_of(self, number: str) -> str | None:
        """The newest handle of a record in flight."""
        return self._handles.get(number)

    def give_up(self, number: str) -> str | None:
        """The record is not held any more. Returns its newest handle."""
        return self._handles.pop(number, None)

    def acknowledged(self, number: str) -> None:
        """The record is done with."""
        self._handles.pop(number, None)
        if number not in self._acknowledged:
            self._acknowledged.add(number)
            self._order.append(number)
            if len(self._order) > REMEMBERED:
                self._acknowledged.discard(self._order.popleft())


class ReceiverTurns:
    """Owns how many receivers of a process call: one at first; one more after ten full receives in a row that the sink took, so that a slow
    one is not given more than it works on; one less after an empty receive."""

    def __init__(self) -> None:
        self._running: dict[str, None] = {}
        self._wanted = 1
        self._full_receives = self._empty_receives = 0
        self._changed = asyncio.Event()

    def begin(self, key: str) -> None:
        """A receiver runs."""
        self._running[key] = None

    def end(self, key: str) -> None:
        """It runs no more: another one takes its place."""
        del self._running[key]
        self._notify()

    def received(self, count: int) -> None:
        """A receive brought so many records, and there is room for the next ones."""
        self._full_receives = self._full_receives + 1 if count == MOST_ENTRIES else 0
        if self._full_receives == FULL_RECEIVES:
            self._full_receives = 0
            self._wanted = min(self._wanted + 1, len(self._running))
        elif not count:
            self._wanted = max(self._wanted - 1, 1)
            self._empty_receives += 1
        self._notify()

    async def wait(self, key: str) -> bool:
        """Return True when the receiver is needed, False after an empty receive of another one."""
        before = self._empty_receives
        while self._empty_receives == before:
            if list(self._running).index(key) < self._wanted:
                return True
            await self._changed.wait()
        return False

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
