"""A shard: its hash range, its records in order, and the positions of its readers."""

from __future__ import annotations

import hashlib
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from math import inf

import msgspec

from recordpublisher.publishers.service_limits import ITERATOR_SECONDS

from .errors import ApiError, invalid_argument

HASH_KEYS = 1 << 128
HASH_KEY_DIGITS = 39


TICKS_PER_MS = 1_000_000
_COUNTER_DIGITS = 20

LIFETIME_MS = int(ITERATOR_SECONDS * 1000)
NUMBER_AND_TYPE = (
    "Must either specify (1) AT_SEQUENCE_NUMBER or AFTER_SEQUENCE_NUMBER and StartingSequenceNumber or "
    "(2) TRIM_HORIZON or LATEST and no StartingSequenceNumber."
)


@dataclass(slots=True, eq=False)
class Shard:
    """A shard: its records, its hash range and its relatives. It is open from `epoch` up to, but not including, `closed_epoch`.

    An epoch is a time in ms. It is increased where needed, so that a child's epoch is always later than its parents', even if a shard is
    split in the millisecond of its creation.
    """

    id: str
    index: int
    hash_range: HashRange
    epoch: int
    parents: tuple[Shard, ...] = ()
    children: list[Shard] = field(default_factory=list)
    closed_epoch: int | None = None
    ending_counter: int | None = None
    log: ShardLog = field(init=False)

    def __post_init__(self) -> None:
        self.log = ShardLog(SequenceNumbers.of_shard(self.epoch, self.index))

    @property
    def is_open(self) -> bool:
        """Whether the shard accepts records."""
        return self.closed_epoch is None

    def was_open_at(self, epoch: int) -> bool:
        """Return whether the shard accepted records in this epoch."""
        return self.epoch <= epoch and self.is_open_after(epoch)

    def is_open_after(self, epoch: float) -> bool:
        """Return whether the shard accepted records in this epoch or later."""
        return self.closed_epoch is None or self.closed_epoch > epoch

    def close(self, epoch: int) -> None:
        """Stop accepting records; stored records stay readable."""
        self.ending_counter = self.log.use_counter(epoch)
        self.closed_epoch = epoch

    def describe(self, as_of: float = inf) -> dict[str, object]:
        """Return the shard as ListShards shows it now. With `as_of` (epoch ms), return it as ListShards showed it at that time."""
        numbers = {"StartingSequenceNumber": self.log.numbers.text(0)}
        if self.ending_counter is not None and not self.is_open_after(as_of):
            numbers["EndingSequenceNumber"] = self.log.numbers.text(self.ending_counter)
        ancestry = zip(("ParentShardId", "AdjacentParentShardId"), self.parents, strict=False)
        return {
            "ShardId": self.id,
            "HashKeyRange": self._hash_key_range(),
            "SequenceNumberRange": numbers,
            **{name: parent.id for name, parent in ancestry},
        }

    def describe_children(self) -> list[dict[str, object]]:
        """Return the value of ChildShards in the last response for a closed shard."""
        return [
            {
                "ShardId": child.id,
                "ParentShards": [parent.id for parent in child.parents],
                "HashKeyRange": child._hash_key_range(),
            }
            for child in self.children
        ]

    def _hash_key_range(self) -> dict[str, str]:
        return {"StartingHashKey": str(self.hash_range.start), "EndingHashKey": str(self.hash_range.end)}


@dataclass(frozen=True, slots=True)
class HashRange:
    """The hash keys from `start` to `end`, both included."""

    start: int
    end: int

    def __contains__(self, hash_key: int) -> bool:
        return self.start <= hash_key <= self.end


def shard_id(index: int) -> str:
    """Return the id of a stream's `index`-th shard."""
    return f"shardId-{index:012d}"


def canonical_id(spelling: str) -> str:
    """Return the full form of a shard's id. Only the number in it counts, so shardId-7 means shardId-000000000007."""
    number = re.fullmatch(r"(?:[^-]*-)?([0-9]+)", spelling)
    return spelling if number is None else shard_id(int(number[1]))


def uniform_ranges(count: int) -> list[HashRange]:
    """Return `count` ranges of the same width that together have all hash keys. The last range also has the remainder."""
    width = HASH_KEYS // count
    starts = [i * width for i in range(count)]
    return [HashRange(start, end - 1) for start, end in zip(starts, [*starts[1:], HASH_KEYS], strict=True)]


def hash_of(partition_key: str) -> int:
    """Return the MD5 of the key as the service uses it: a big-endian 128-bit number."""
    return int.from_bytes(hashlib.md5(partition_key.encode(), usedforsecurity=False).digest(), "big")


def explicit_hash(text: str) -> int:
    """Return an explicit hash key as a number. Raises: InvalidArgumentException if it is not a valid hash key."""
    if text.isdecimal() and len(text) <= HASH_KEY_DIGITS and int(text) < HASH_KEYS:
        return int(text)
    raise invalid_argument(
        f"Invalid ExplicitHashKey. ExplicitHashKey must be in the range: [0, 2^128-1]. Specified value was {text}"
    )


@dataclass(frozen=True, slots=True)
class LogSlice:
    """The result of one read of a shard's log.

    - `fragments`: the records, each as JSON.
    - `size`: bytes of data and keys of these records.
    """

    fragments: list[bytes]
    size: int
    next_counter: int
    """The counter at which the next read starts (inclusive)."""
    unread_arrival_ms: int | None
    """The arrival time of the first unread record (epoch ms); None if there is none."""

    @property
    def last_counter(self) -> int:
        """The counter just before `next_counter`. If the read has found records, it is the counter of the last one."""
        return self.next_counter - 1


class ShardLog:
    """The records of one shard, and the listeners to call when records arrive. A record's counter is the end of its sequence number."""

    def __init__(self, numbers: SequenceNumbers) -> None:
        self.numbers = numbers
        self._fragments: list[bytes] = []
        self._counters = array("q")
        self._arrivals = array("q")
        # The total of bytes up to and including each record, so that one bisection finds where a read must end.
        self._totals = array("q")
        self._trimmed_bytes = 0
        self._last_counter = 0
        self._last_arrival = 0
        self._listeners: dict[Callable[[], None], None] = {}

    def __len__(self) -> int:
        return len(self._fragments)

    def use_counter(self, now_ms: int) -> int:
        """Take the next counter for something that is not a record, and return the counter. No record will have it.

        It is needed for an event without records, and for the end of a closed shard.
        """
        self._last_counter = max(self._last_counter + 1, now_ms * TICKS_PER_MS)
        return self._last_counter

    def append(self, data: str, key_json: str | None, size: int, now_ms: int) -> str:
        """Store one record, and return its sequence number.

        - `data`: the data as base64 text.
        - `key_json`: the partition key as a JSON string; None if the record has none.
        - `size`: bytes of data and key.
        """
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
        """Return the counter of the first record that arrived at or after the timestamp. Without such a record, return `tip`."""
        index = bisect_left(self._arrivals, timestamp_ms)
        return self._counters[index] if index < len(self._counters) else self.tip

    @property
    def tip(self) -> int:
        """The counter of the next record to come. A reader that starts here sees only new records."""
        return self._last_counter + 1

    @property
    def first_counter(self) -> int:
        """The counter of the oldest record. Without records, it is `tip`."""
        return self._counters[0] if self._counters else self.tip

    def trim(self, before_ms: int) -> None:
        """Remove the records that arrived before `before_ms`."""
        count = bisect_left(self._arrivals, before_ms)
        if count:
            self._trimmed_bytes = self._totals[count - 1]
            for column in (self._fragments, self._counters, self._arrivals, self._totals):
                del column[:count]

    def records_after(self, counter: int) -> list[tuple[int, int, int, bytes]]:
        """Return for each record after `counter` its counter, arrival (epoch ms), size (bytes), and its JSON as responses have it."""
        first = bisect_right(self._counters, counter)
        totals = [self._totals[first - 1] if first else self._trimmed_bytes, *self._totals[first:]]
        sizes = (total - before for before, total in pairwise(totals))
        return list(zip(self._counters[first:], self._arrivals[first:], sizes, self._fragments[first:], strict=True))

    def restore(self, records: Iterable[tuple[int, int, int, bytes]], ending_counter: int | None) -> None:
        """Fill an empty log with stored records. `ending_counter`: the counter of the end of a closed shard."""
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


@dataclass(frozen=True, slots=True)
class SequenceNumbers:
    """The sequence numbers of one shard: 36 digits that identify the shard, followed by the record's counter.

    The counter is the time in ms times a million, so it fits into 64 bits. It also grows while no record arrives, as the service's
    continuation numbers do.
    """

    prefix: str

    @classmethod
    def of_shard(cls, epoch: int, index: int) -> SequenceNumbers:
        """Return the sequence numbers of the shard with this epoch (`Shard.epoch`) and index."""
        return cls(f"49{epoch:014d}{index:020d}")

    def text(self, counter: int) -> str:
        """Return the sequence number of a counter."""
        return f"{self.prefix}{counter:020d}"

    def counter(self, text: str) -> int | None:
        """Return the counter at the end of a sequence number, or None if the sequence number is of another shard or malformed."""
        if not text.startswith(self.prefix) or len(text) != len(self.prefix) + _COUNTER_DIGITS:
            return None
        digits = text[len(self.prefix) :]
        return int(digits) if digits.isdecimal() else None


class ShardIterator(msgspec.Struct, frozen=True, array_like=True, tag="i"):
    """A position in a shard. The endpoint can make all iterators expire: it raises its generation, and refuses iterators of earlier
    generations.
    """

    stream: str
    stream_created_ms: int
    shard_id: str
    counter: int
    issued_ms: int
    generation: int

    def require_fresh(self, now_ms: int, current_generation: int) -> None:
        """Raise ExpiredIteratorException if the iterator is five minutes old, or belongs to an earlier generation."""
        if now_ms - self.issued_ms >= LIFETIME_MS or self.generation != current_generation:
            raise ApiError(
                "ExpiredIteratorException",
                f"Iterator expired. The iterator was created at time {_date(self.issued_ms)} while right now it is {_date(now_ms)} "
                f"which is further in the future than the tolerated delay of {LIFETIME_MS} milliseconds.",
            )


def _date(ms: int) -> str:
    """Return a time as the service writes it, in the format of Java's Date."""
    return f"{datetime.fromtimestamp(ms / 1000, UTC):%a %b %d %H:%M:%S UTC %Y}"


def start_counter(shard: Shard, kind: str, sequence_number: str | None, timestamp: float | None, now_ms: int) -> int:
    """Return the counter at which a read with the ShardIteratorType `kind` starts.

    Raises: InvalidArgumentException if `kind` needs a sequence number or a timestamp that is not given, if it does not allow one that is
    given, or if the value is not valid for this shard.
    """
    if kind in ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER"):
        return _counter_of(shard, kind, sequence_number) + (kind == "AFTER_SEQUENCE_NUMBER")
    if sequence_number is not None:
        raise invalid_argument(f"{NUMBER_AND_TYPE} Request specified {kind} and also a StartingSequenceNumber.")
    if kind == "AT_TIMESTAMP":
        return shard.log.counter_at(_past_ms(timestamp, now_ms))
    return 0 if kind == "TRIM_HORIZON" else shard.log.tip


def _counter_of(shard: Shard, kind: str, sequence_number: str | None) -> int:
    if sequence_number is None:
        raise invalid_argument(f"{NUMBER_AND_TYPE} Request specified {kind} and no StartingSequenceNumber.")
    counter = shard.log.numbers.counter(sequence_number)
    if counter is None:
        raise invalid_argument(
            f"StartingSequenceNumber {sequence_number} used on shard {shard.id} is invalid because it did not come "
            "from this shard."
        )
    return counter


def to_ms(seconds: float) -> int:
    """Return a request's timestamp in ms. Raises: InvalidArgumentException if it is too large."""
    try:
        return round(seconds * 1000)
    except OverflowError as error:
        raise invalid_argument(f"The timestamp {seconds} is out of range.") from error


def _past_ms(timestamp: float | None, now_ms: int) -> int:
    if timestamp is None:
        raise invalid_argument(
            "Must specify timestampInMillis parameter for iterator of type AT_TIMESTAMP. "
            "Current request has no timestamp parameter."
        )
    timestamp_ms = to_ms(timestamp)
    if timestamp_ms > now_ms:
        raise invalid_argument(
            "The timestampInMillis parameter cannot be greater than the currentTimestampInMillis. "
            f"timestampInMillis: {timestamp_ms}, currentTimestampInMillis: {now_ms}"
        )
    return timestamp_ms
