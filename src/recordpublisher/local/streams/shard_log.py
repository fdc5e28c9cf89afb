"""One shard's records in order, each stored as the JSON fragment that responses are joined from."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise


@dataclass(frozen=True, slots=True)
class LogSlice:
    """The result of one read: the fragments, their size in bytes (data and key), and where the next read starts."""

    fragments: list[bytes]
    size: int
    next_counter: int
    """The counter at which the next read starts (inclusive)."""
    unread_arrival_ms: int | None
    """The arrival time of the first unread record (epoch ms); None at the tip."""

    @property
    def last_counter(self) -> int:
        """The counter just before the next read: the last record of this slice, if it has any."""
        return self.next_counter - 1


class ShardLog:
    """Owns one shard's records and its counter. Calls listeners when there is something new to read."""

    def __init__(self, numbers: SequenceNumbers) -> None:
        self.numbers = numbers
        self._fragments: list[bytes] = []
        self._counters = array("q")
        self._arrivals = array("q")
        self._totals = array("q")  # bytes up to and including each record, so that one bisect finds where to cut
        self._trimmed_bytes = 0
        self._last_counter = 0
        self._last_arrival = 0
        self._listeners: dict[Callable[[], None], None] = {}

    def __len__(self) -> int:
        return len(self._fragments)

    def mark(self, now_ms: int) -> int:
        """Use up and return the next counter without a record: for the continuation of an empty event, or the end of a closed shard."""
        self._last_counter = max(self._last_counter + 1, now_ms * TICKS_PER_MS)
        return self._last_counter

    def append(self, data: str, key_json: str | None, size: int, now_ms: int) -> str:
        """Store one record (base64 text, key as a JSON string if it has one, size in bytes) and return its sequence number."""
        arrival = self._last_arrival = max(self._last_arrival, now_ms)
        counter = self._last_counter = max(self._last_counter + 1, arrival * TICKS_PER_MS)
        sequence_number = f"{self.numbers.prefix}{counter:020d}"
        key = "" if key_json is None else f',"PartitionKey":{key_json}'
        fragment = (
            f'{{"SequenceNumber":"{sequence_number}","ApproximateArrivalTimestamp":{arrival / 1000},'
            f'"Data":"{data}"{key}}}'
        )
        self._fragments.append(fragment.encode())
        self._counters.append(counter)
        self._arrivals.append(arrival)
        self._totals.append((self._totals[-1] if self._totals else self._trimmed_bytes) + size)
        return sequence_number

    def read(self, counter: int, max_records: int, max_bytes: int) -> LogSlice:
        """Read from `counter` on, at most `max_records` records and `max_bytes` bytes.

        At least one record is returned if there is one and `max_records` is not 0, however large the record is.
        """
        start = bisect_left(self._counters, counter)
        before = self._totals[start - 1] if start else self._trimmed_bytes
        by_bytes = bisect_right(self._totals, before + max_bytes, lo=start)
        end = min(max(by_bytes, start + 1), start + max_records, len(self._fragments))
        unread = self._arrivals[end] if end < len(self._fragments) else None
        if end == start:
            return LogSlice([], 0, counter, unread)
        return LogSlice(self._fragments[start:end], self._totals[end - 1] - before, self._counters[end - 1] + 1, unread)

    def counter_at(self, timestamp_ms: int) -> int:
        """Return the counter of the first record that arrived at or after the timestamp, or else the tip."""
        index = bisect_left(self._arrivals, timestamp_ms)
        return self._counters[index] if index < len(self._counters) else self.tip

    @property
    def tip(self) -> int:
        """The counter at which a reader sees only records that arrive from now on."""
        return self._last_counter + 1

    def trim(self, before_ms: int) -> None:
        """Remove the records that arrived before `before_ms`."""
        count = bisect_left(self._arrivals, before_ms)
        if count:
            self._trimmed_bytes = self._totals[count - 1]
            for column in (self._fragments, self._counters, self._arrivals, self._totals):
                del column[:count]

    def records_after(self, counter: int) -> list[tuple[int, int, int, bytes]]:
        """Return counter, arrival, size and fragment of the records past a counter."""
        first = bisect_right(self._counters, counter)
        totals = [self._totals[first - 1] if first else self._trimmed_bytes, *self._totals[first:]]
        sizes = (total - before for before, total in pairwise(totals))
        return list(zip(self._counters[first:], self._arrivals[first:], sizes, self._fragments[first:], strict=True))

    def restore(self, records: Iterable[tuple[int, int, int, bytes]], ending_counter: int | None) -> None:
        """Fill an empty log with stored records. The last counter of a closed shard is its end."""
        for counter, arrival, size, fragment in records:
            self._fragments.append(fragment)
            self._counters.append(counter)
            self._arrivals.append(arrival)
            self._totals.append((self._totals[-1] if self._totals else 0) + size)
        if self._counters:
            self._last_counter, self._last_arrival = self._counters[-1], self._arrivals[-1]
        self._last_counter = max(self._last_counter, ending_counter or 0)

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener` at every `notify`. Return a function that removes it."""
        self._listeners[listener] = None

        def unlisten() -> None:
            self._listeners.pop(listener, None)

        return unlisten

    def notify(self) -> None:
        """Call the listeners, because records arrived or the shard was closed."""
        for listener in tuple(self._listeners):
            listener()


TICKS_PER_MS = 1_000_000
_COUNTER_DIGITS = 20


@dataclass(frozen=True, slots=True)
class SequenceNumbers:
    """The sequence numbers of one shard: 36 digits that identify the shard, followed by its counter.

    The counter is the arrival time in ms times a million. So it fits into 64 bits, and it grows while nothing arrives, as the service's
    continuation numbers do.
    """

    prefix: str

    @classmethod
    def of_shard(cls, epoch: int, index: int) -> SequenceNumbers:
        """Return the numbers of shard `index` opened at `epoch` (ms, later than its parents')."""
        return cls(f"49{epoch:014d}{index:020d}")

    def text(self, counter: int) -> str:
        """Return the sequence number of a counter."""
        return f"{self.prefix}{counter:020d}"

    def counter(self, text: str) -> int | None:
        """Return the counter in `text`, or None if the number is not of this shard."""
        if not text.startswith(self.prefix) or len(text) != len(self.prefix) + _COUNTER_DIGITS:
            return None
        digits = text[len(self.prefix) :]
        return int(digits) if digits.isdecimal() else None
