"""WaitingRoom: shards whose readers wait for memory (P6)."""

from __future__ import annotations

import asyncio

from ..min_heap import LowestOf
from ..shards.shard_table import ShardEntry
from .memory_budget import ByteBudget

MARKER_FIRST = float("-inf")


class WaitingRoom:
    """Owns who waits for room, and for what.

    A shard over a bound of its own (held at the gate, too much queued) is looked at again when it emitted; one that waits for the
    subtask's bytes when any are free, the lowest head watermark first. An emission costs the same with one shard held as with a thousand.
    """

    def __init__(self, budget: ByteBudget) -> None:
        self._budget = budget
        self._waiting: dict[str, ShardEntry] = {}
        self._for_bytes = LowestOf()

    async def wait(self, entry: ShardEntry) -> int:
        """Wait for room; answers the bytes that the next read may bring."""
        entry.room = asyncio.get_running_loop().create_future()
        self._waiting[entry.key] = entry
        self._place(entry)
        try:
            return await entry.room
        finally:
            entry.room = None
            self._leave(entry)

    def emitted(self, entry: ShardEntry, readers: int) -> None:
        """A shard emitted: it may have room now, and so may others."""
        if entry.key in self._waiting:
            self._look_at(entry, readers)
        self._lend(readers)

    def look_at_all(self, readers: int) -> None:
        """Whatever changed."""
        for entry in list(self._waiting.values()):
            self._place(entry)
        self._lend(readers)
        for entry in list(self._waiting.values()):
            self._look_at(entry, readers)

    def _look_at(self, entry: ShardEntry, readers: int) -> None:
        """Give the shard room, or put it where it belongs."""
        if entry.room is None or entry.room.done():
            return
        room = self._budget.room_for(entry, readers)
        if room:
            entry.room.set_result(room)
            self._leave(entry)
        else:
            self._place(entry)

    def _lend(self, readers: int) -> None:
        """What is free goes to the lowest head first; what it leaves, to the next."""
        while (lowest := self._for_bytes.lowest()) is not None:
            entry = self._waiting[lowest[1]]
            if entry.room is None or entry.room.done():
                self._leave(entry)
                continue
            self._look_at(entry, readers)
            if entry.key in self._waiting:
                return

    def _place(self, entry: ShardEntry) -> None:
        head = entry.head_watermark
        waits_for_bytes = not self._budget.is_over_its_own_bounds(entry)
        self._for_bytes.set(entry.key, (MARKER_FIRST if head is None else head) if waits_for_bytes else None)

    def _leave(self, entry: ShardEntry) -> None:
        if self._waiting.get(entry.key) is entry:
            del self._waiting[entry.key]
            self._for_bytes.set(entry.key, None)
