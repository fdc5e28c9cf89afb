"""Which records of a stream a queue has not delivered, has in flight, delivers again, or has as dead letters."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush

import msgspec

from recordpublisher.publishers.service_limits import GET_RECORDS_BYTES

from ..streams.shard import Shard
from ..streams.stream import Stream

Key = tuple[str, int]
"""A record, by its shard and its counter in that shard."""


class Delivery(msgspec.Struct, array_like=True):
    """A record that was received and not acknowledged. It is stored in this form."""

    key: Key
    first_ms: int
    visible_ms: int
    """The record is in flight until this time."""
    receive_count: int = 0
    receipts: int = 0
    """Number of handles that were issued. Only the newest one is valid."""
    is_dead: bool = False


@dataclass(slots=True, eq=False)
class Deliveries:
    """Owns what a queue knows of each record. The records themselves stay in the logs of the shards, which find them by key.

    - `cursors`: the counter at which delivery continues, by shard. A missing shard is delivered from its first record.
    - `unacknowledged`: every record that was received and not acknowledged.
    """

    stream: Stream
    cursors: dict[str, int] = field(default_factory=dict)
    unacknowledged: dict[Key, Delivery] = field(default_factory=dict)
    _timeouts: list[tuple[int, Key]] = field(default_factory=list)
    """A heap of the times at which records become visible. An entry is outdated if its time differs from the time of its delivery."""
    _visible: tuple[dict[Key, None], dict[Key, None]] = field(default_factory=lambda: ({}, {}))
    """Records to deliver again, and dead letters, in the order in which they became visible."""
    _is_turn_of_new: bool = True
    _first_shard: int = 0

    def begin(self, cursors: dict[str, int], deliveries: Iterable[Delivery] = ()) -> None:
        """Begin at these counters, with stored deliveries."""
        self.cursors.update(cursors)
        for delivery in deliveries:
            self.unacknowledged[delivery.key] = delivery
            heappush(self._timeouts, (delivery.visible_ms, delivery.key))

    def receive(
        self, limit: int, visible_ms: int, now_ms: int, max_receives: int | None, *, dead: bool
    ) -> list[tuple[Delivery, bytes]]:
        """Put visible records, or dead letters, in flight until `visible_ms`, and return each with its fragment of the log.

        New records and records that became visible again take turns to come first, so that neither kind makes the other wait.
        """
        self._end_timeouts(now_ms, max_receives)
        self.stream.apply_retention()
        answer = _Answer(limit)
        turns = (False,) if dead else (self._is_turn_of_new, not self._is_turn_of_new)
        for is_turn_of_new in turns:
            if is_turn_of_new:
                self._take_new(answer, now_ms)
            else:
                self._take_again(answer, self._visible[dead])
        self._is_turn_of_new ^= bool(answer.records)
        for delivery, _ in answer.records:
            delivery.receive_count += 1
            delivery.receipts += 1
            self.hide(delivery, visible_ms)
        return answer.records

    def hide(self, delivery: Delivery, visible_ms: int) -> None:
        """Keep a record in flight until `visible_ms`."""
        for visible in self._visible:
            visible.pop(delivery.key, None)
        delivery.visible_ms = visible_ms
        heappush(self._timeouts, (visible_ms, delivery.key))

    def release(self, delivery: Delivery, now_ms: int, receive_count: int) -> None:
        """Make a record visible at once, even if it was a dead letter. It counts as received `receive_count` times."""
        delivery.is_dead, delivery.receive_count = False, receive_count
        self.hide(delivery, now_ms)

    def find(self, key: Key, now_ms: int, max_receives: int | None, *, dead: bool) -> Delivery | None:
        """Return the record with that key if it waits for an acknowledgement, as a dead letter or not."""
        self._end_timeouts(now_ms, max_receives)
        delivery = self.unacknowledged.get(key)
        is_there = delivery is not None and delivery.is_dead == dead and self._fragment(key) is not None
        return delivery if is_there else None

    def acknowledge(self, delivery: Delivery) -> None:
        """Stop delivering a record."""
        for visible in self._visible:
            visible.pop(delivery.key, None)
        del self.unacknowledged[delivery.key]

    def next_timeout_ms(self) -> int | None:
        """Return when the next record becomes visible, or None if no record is in flight."""
        while self._timeouts and self._is_old(*self._timeouts[0]):
            heappop(self._timeouts)
        return self._timeouts[0][0] if self._timeouts else None

    def _is_old(self, visible_ms: int, key: Key) -> bool:
        """Return whether a record was acknowledged, or has another timeout now."""
        delivery = self.unacknowledged.get(key)
        return delivery is None or delivery.visible_ms != visible_ms

    def _end_timeouts(self, now_ms: int, max_receives: int | None) -> None:
        """Make records visible again whose time in flight is over. A record that was received too often becomes a dead letter."""
        while self._timeouts and self._timeouts[0][0] <= now_ms:
            visible_ms, key = heappop(self._timeouts)
            if self._is_old(visible_ms, key):
                continue
            delivery = self.unacknowledged[key]
            delivery.is_dead |= max_receives is not None and delivery.receive_count >= max_receives
            self._visible[delivery.is_dead][key] = None

    def _take_again(self, answer: "_Answer", visible: dict[Key, None]) -> None:
        for key in tuple(visible):
            if answer.is_full:
                return
            delivery, fragment = self.unacknowledged[key], self._fragment(key)
            if fragment is None:  # past retention
                self.acknowledge(delivery)
            elif not answer.add(delivery, fragment):
                return

    def _take_new(self, answer: "_Answer", now_ms: int) -> None:
        shards = list(self.stream.shards.values())
        self._first_shard += 1
        for place in range(len(shards)):
            shard = shards[(self._first_shard + place) % len(shards)]
            while not answer.is_full:
                found = shard.log.read(self.cursors.get(shard.id, 0), 1, GET_RECORDS_BYTES)
                if not found.fragments:
                    break
                delivery = Delivery((shard.id, found.last_counter), now_ms, now_ms)
                if not answer.add(delivery, found.fragments[0]):
                    return
                self.cursors[shard.id] = found.next_counter
                self.unacknowledged[delivery.key] = delivery

    def _fragment(self, key: Key) -> bytes | None:
        """Return the record in the log of its shard, or None if it is past retention."""
        shard = self.stream.shards.get(key[0])
        found = None if shard is None else shard.log.read(key[1], 1, GET_RECORDS_BYTES)
        return found.fragments[0] if found and found.fragments and found.last_counter == key[1] else None


class _Answer:
    """Owns the records of one response: at most 10 MiB, or a single record."""

    def __init__(self, limit: int) -> None:
        self.records: list[tuple[Delivery, bytes]] = []
        self.is_full = False
        self._limit = limit
        self._bytes = 0

    def add(self, delivery: Delivery, fragment: bytes) -> bool:
        """Add a record, and return whether there was room."""
        self._bytes += len(fragment)
        self.is_full = bool(self.records) and self._bytes > GET_RECORDS_BYTES
        if self.is_full:
            return False
        self.records.append((delivery, fragment))
        self.is_full = len(self.records) == self._limit
        return True


def record_id(shard: Shard, counter: int) -> str:
    """Return the record's id, which is the same in every queue and at each delivery. It does not reveal the shard or the order."""
    number = shard.log.numbers.text(counter)
    return hashlib.md5(number.encode(), usedforsecurity=False).hexdigest()
