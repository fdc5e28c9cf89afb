"""What belongs to the next read of a shard: ReadReservation, its memory; ReadProgress, how far was read before it."""

from __future__ import annotations

import asyncio

from recordpublisher.publishers.positions import SequenceNumber
from recordpublisher.publishers.records import RecordBatch, to_millis


class ReadReservation:
    """The memory of a shard's next read (P6). Written by MemoryBudget and PendingReads only.

    `bytes`: reserved for it. `expected_bytes`: the size of the last read, None before the first.
    """

    def __init__(self) -> None:
        self.bytes = 0
        self.expected_bytes: int | None = None
        self._grant: asyncio.Future[int] | None = None

    def reserve(self, count: int) -> None:
        """Reserve these bytes in place of those before."""
        self.bytes = count

    def settle(self, arrived_bytes: int) -> None:
        """The read returned. After each empty one the next reserves less."""
        self.bytes = 0
        self.expected_bytes = arrived_bytes or (self.expected_bytes or 0) // 2

    def request(self) -> asyncio.Future[int]:
        """The read waits for memory. The future returns how many bytes it may read."""
        self._grant = asyncio.get_running_loop().create_future()
        return self._grant

    @property
    def is_requested(self) -> bool:
        """Whether the read waits, and was not granted memory yet."""
        return self._grant is not None and not self._grant.done()

    def grant(self, read_bytes: int) -> None:
        """Let the waiting read start."""
        if self._grant is not None and not self._grant.done():
            self._grant.set_result(read_bytes)

    def withdraw(self) -> None:
        """The read does not wait any more."""
        self._grant = None


class ReadProgress:
    """How far a shard was read, which may be further than it was emitted (S5). Written by RetentionGaps only.

    - `position`: the last record read; None: the shard's beginning.
    - `seen_ms`: its arrival, or the last read at the tip, whichever is later (epoch ms); None: nothing was read.
    - `lost_seconds`: what the suspension detector had counted when the next read was requested.
    - `logged_ms`: when a gap was last logged.
    """

    def __init__(self) -> None:
        self.position: SequenceNumber | None = None
        self.seen_ms: int | None = None
        self.lost_seconds = 0.0
        self.logged_ms: int | None = None

    def start(self, position: SequenceNumber | None, seen_ms: int | None, lost_seconds: float) -> None:
        """A reader starts here."""
        self.position, self.seen_ms, self.lost_seconds, self.logged_ms = position, seen_ms, lost_seconds, None

    def on_request(self, lost_seconds: float) -> None:
        """The next read may start."""
        self.lost_seconds = lost_seconds

    def on_read(self, batch: RecordBatch, read_ms: int) -> None:
        """A batch was read, at `read_ms` at the latest."""
        if batch.records:
            self.seen_ms = to_millis(batch.records[-1].arrival)
        if batch.read_position is not None and not batch.read_position.continuation:
            self.position = batch.read_position
        if batch.millis_behind_latest == 0:
            self.seen_ms = read_ms if self.seen_ms is None else max(self.seen_ms, read_ms)

    def on_gap(self, now_ms: int) -> None:
        """A gap was counted: what is before now is not looked at again."""
        self.seen_ms = now_ms

    def on_logged(self, now_ms: int) -> None:
        """A gap was logged."""
        self.logged_ms = now_ms
