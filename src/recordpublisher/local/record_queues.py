"""Queues, which deliver the records of a stream one by one, each until it is acknowledged."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Collection, Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Any
from uuid import uuid4

import msgspec

from recordpublisher.publishers.service_limits import GET_RECORDS_BYTES

from .clock import Clock
from .errors import in_use, invalid_argument, not_found
from .shard import Shard
from .stream import Stream, TagSet

DEFAULT_SETTINGS = {
    "VisibilityTimeoutSeconds": 30,
    "DeadLetterConfiguration": {"TargetType": "BUILT_IN", "MaxReceiveCount": 6},
}

Key = tuple[str, int]
"""The key of a record: its shard, and its counter in that shard."""


@dataclass(slots=True, eq=False, kw_only=True)
class Queue:
    """A queue: its deliveries, and the callers that wait for records.

    `settings` have the form in which the queue's description shows them. The status (CREATING, ACTIVE and so on) depends on the endpoint's
    clock.
    """

    name: str
    arn: str
    stream: Stream
    created_ms: int
    settings: dict[str, Any]
    busy_status: str
    busy_until_ms: int
    tags: TagSet = field(default_factory=TagSet)
    policy: str | None = None

    deliveries: Deliveries = field(init=False)
    _waiting: dict[Callable[[], None], None] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.deliveries = Deliveries(self.stream)

    @property
    def id(self) -> str:
        """The generated id at the end of the queue's ARN."""
        return self.arn.rpartition("/")[2]

    def status(self, now_ms: int) -> str:
        """Return CREATING, UPDATING, DELETING or ACTIVE at that time."""
        return self.busy_status if now_ms < self.busy_until_ms or self.busy_status == "DELETING" else "ACTIVE"

    def is_gone(self, now_ms: int) -> bool:
        """Return whether the queue was deleted, and its deletion is complete."""
        return self.busy_status == "DELETING" and now_ms >= self.busy_until_ms

    def require_active(self, now_ms: int) -> None:
        """Raise ResourceInUseException if the queue is not ACTIVE, so that it cannot be changed now."""
        if self.status(now_ms) != "ACTIVE":
            raise in_use(f"{self.arn} not ACTIVE, instead in state {self.status(now_ms)}.")

    def set_busy(self, status: str, until_ms: int) -> None:
        """Give the queue this status until `until_ms`."""
        self.busy_status, self.busy_until_ms = status, until_ms

    @property
    def visibility_seconds(self) -> int:
        """How long a received record is hidden from other receivers, unless a call sets another time (seconds)."""
        seconds: int = self.settings["VisibilityTimeoutSeconds"]
        return seconds

    @property
    def max_receives(self) -> int | None:
        """Number of receipts after which a record becomes a dead letter. None means without limit."""
        dead_letters = self.settings["DeadLetterConfiguration"]
        return dead_letters["MaxReceiveCount"] if dead_letters["TargetType"] == "BUILT_IN" else None

    def handle_of(self, delivery: Delivery) -> ReceiptHandle:
        """Return the handle of the newest receipt of a record."""
        return ReceiptHandle(self.id, delivery.key, delivery.receipts)

    def find(self, handle: ReceiptHandle | None, now_ms: int, *, dead: bool) -> Delivery:
        """Return the delivery to which a handle belongs. `dead`: whether to look among the dead letters, or among the other records.

        The API model does not say which error belongs to which case.

        Raises: InvalidArgumentException if the handle belongs to another queue or to an earlier receipt; ResourceNotFoundException if the
        record was acknowledged, is past retention, or was moved to or from the dead letters.
        """
        if handle is None or handle.queue != self.id:
            raise invalid_argument("The ReceiptHandle does not belong to this queue.")
        delivery = self.deliveries.find(handle.key, now_ms, self.max_receives, dead=dead)
        if delivery is None:
            raise not_found(
                "The record is not in the queue: acknowledged, past retention, or moved to or from the dead letters."
            )
        if delivery.receipts != handle.receipt:
            raise invalid_argument("The ReceiptHandle belongs to an earlier receipt of the record.")
        return delivery

    def notify(self) -> None:
        """Make waiting callers check again."""
        for wake in tuple(self._waiting):
            wake()

    async def wait_for_change(self, until_ms: int, clock: Clock) -> None:
        """Wait until `until_ms`, or until records may have become visible."""
        changed = asyncio.Event()
        timeout_ms = self.deliveries.next_timeout_ms()
        until_ms = until_ms if timeout_ms is None else min(until_ms, timeout_ms)
        with ExitStack() as stack:
            self._waiting[changed.set] = None
            stack.callback(self._waiting.pop, changed.set, None)
            for shard in self.stream.shards.values():
                stack.callback(shard.log.listen(changed.set))
            try:
                async with asyncio.timeout(max(until_ms - clock.now_ms(), 1) / 1000):
                    await changed.wait()
            except TimeoutError:
                pass


class QueueTable:
    """The queues of the account. No two queues have the same name."""

    def __init__(self, clock: Clock, arn_prefix: str) -> None:
        self._clock = clock
        self._arn_prefix = arn_prefix
        self._by_arn: dict[str, Queue] = {}

    def all(self, stream: Stream | None = None) -> list[Queue]:
        """Return the queues that exist now, of all streams or of one, in the order of their names."""
        now = self._clock.now_ms()
        self._by_arn = {arn: each for arn, each in self._by_arn.items() if not each.is_gone(now)}
        return sorted((e for e in self._by_arn.values() if stream in (None, e.stream)), key=lambda each: each.name)

    def create(self, name: str, stream: Stream, settings: dict[str, Any], tags: dict[str, str], delay_ms: int) -> Queue:
        """Add a queue. Its status is CREATING for `delay_ms`.

        Raises: ResourceInUseException if the name is taken; InvalidArgumentException if the tags are not valid.
        """
        if any(each.name == name for each in self.all()):
            raise in_use(f"The queue {name} already exists.")
        now = self._clock.now_ms()
        arn = f"{self._arn_prefix}:queue/{uuid4().hex}"
        queue = Queue(
            name=name,
            arn=arn,
            stream=stream,
            created_ms=now,
            settings=settings,
            busy_status="CREATING",
            busy_until_ms=now + delay_ms,
            tags=TagSet(tags),
        )
        return self.add(queue)

    def add(self, made: Queue) -> Queue:
        """Add a queue that was made elsewhere, such as one that was stored. Return the queue."""
        self._by_arn[made.arn] = made
        return made

    def find(self, arn: str, refused: Collection[str] = ()) -> Queue:
        """Return the queue with this ARN.

        Raises: ResourceNotFoundException if no queue has it, or if the queue is in one of the `refused` states.
        """
        self.all()
        found = self._by_arn.get(arn)
        if found is None:
            raise not_found(f"The queue {arn} does not exist.")
        status = found.status(self._clock.now_ms())
        if status in refused:
            raise not_found(f"The queue {arn} is {status}.")
        return found


class ReceiptHandle(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """The content of a receipt handle: the queue, the record, and the number of the receipt."""

    queue: str
    key: Key
    receipt: int


class Delivery(msgspec.Struct, array_like=True):
    """The state of a record that was received and not acknowledged, as it is stored."""

    key: Key
    first_ms: int
    visible_ms: int
    """The time until which the record is hidden (in flight), in epoch ms."""
    receive_count: int = 0
    receipts: int = 0
    """Number of handles that were returned. Only the newest one is valid."""
    is_dead: bool = False


@dataclass(slots=True, eq=False)
class Deliveries:
    """The state of each record in a queue. The records themselves stay in the logs of the shards, and are found by key.

    - `cursors`: the counter of the next record to deliver, by shard. A shard without an entry begins at its first record.
    - `unacknowledged`: every record that was received and not acknowledged.
    """

    stream: Stream
    cursors: dict[str, int] = field(default_factory=dict)
    unacknowledged: dict[Key, Delivery] = field(default_factory=dict)
    _timeouts: list[tuple[int, Key]] = field(default_factory=list)
    """A heap of the times at which records become visible. If a record has another time by now, the entry is outdated."""
    _visible: tuple[dict[Key, None], dict[Key, None]] = field(default_factory=lambda: ({}, {}))
    """Records to deliver again, and dead letters, in the order in which they became visible."""
    _is_turn_of_new: bool = True
    _first_shard: int = 0

    def begin(self, cursors: dict[str, int], deliveries: Iterable[Delivery] = ()) -> None:
        """Begin with these cursors, and with deliveries that were stored."""
        self.cursors.update(cursors)
        for delivery in deliveries:
            self.unacknowledged[delivery.key] = delivery
            heappush(self._timeouts, (delivery.visible_ms, delivery.key))

    def receive(
        self, limit: int, visible_ms: int, now_ms: int, max_receives: int | None, *, dead: bool
    ) -> list[tuple[Delivery, bytes]]:
        """Hide at most `limit` visible records until `visible_ms`, and return them, each with its JSON.

        If there are both new records and records that became visible again, they take turns to come first, so neither has to wait for the
        other.

        `max_receives`: after this many receipts, a record becomes a dead letter. `dead`: whether to receive dead letters, or only other
        records.
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
        """Hide a record until `visible_ms`."""
        for visible in self._visible:
            visible.pop(delivery.key, None)
        delivery.visible_ms = visible_ms
        heappush(self._timeouts, (visible_ms, delivery.key))

    def release(self, delivery: Delivery, now_ms: int, receive_count: int) -> None:
        """Make a record visible at once. A dead letter becomes an ordinary record again.

        - `receive_count`: the record's new count of receipts.
        """
        delivery.is_dead, delivery.receive_count = False, receive_count
        self.hide(delivery, now_ms)

    def find(self, key: Key, now_ms: int, max_receives: int | None, *, dead: bool) -> Delivery | None:
        """Return the delivery of the record with that key if the record was received and not acknowledged.

        `dead`: whether to look among the dead letters, or only among the other records.
        """
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
        """Return whether an entry of the heap is outdated: the record was acknowledged, or becomes visible at another time."""
        delivery = self.unacknowledged.get(key)
        return delivery is None or delivery.visible_ms != visible_ms

    def _end_timeouts(self, now_ms: int, max_receives: int | None) -> None:
        """Make records visible whose hidden time is over. If a record was received too often, it becomes a dead letter."""
        while self._timeouts and self._timeouts[0][0] <= now_ms:
            visible_ms, key = heappop(self._timeouts)
            if self._is_old(visible_ms, key):
                continue
            delivery = self.unacknowledged[key]
            delivery.is_dead |= max_receives is not None and delivery.receive_count >= max_receives
            self._visible[delivery.is_dead][key] = None

    def _take_again(self, answer: _Answer, visible: dict[Key, None]) -> None:
        for key in tuple(visible):
            if answer.is_full:
                return
            delivery, fragment = self.unacknowledged[key], self._fragment(key)
            if fragment is None:  # The record is past retention.
                self.acknowledge(delivery)
            elif not answer.add(delivery, fragment):
                return

    def _take_new(self, answer: _Answer, now_ms: int) -> None:
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
        """Return a record as JSON, from the log of its shard, or None if it is past retention."""
        shard = self.stream.shards.get(key[0])
        found = None if shard is None else shard.log.read(key[1], 1, GET_RECORDS_BYTES)
        return found.fragments[0] if found and found.fragments and found.last_counter == key[1] else None


class _Answer:
    """Collects the records of one response: up to 10 MiB, or a single larger record."""

    def __init__(self, limit: int) -> None:
        self.records: list[tuple[Delivery, bytes]] = []
        self.is_full = False
        self._limit = limit
        self._bytes = 0

    def add(self, delivery: Delivery, fragment: bytes) -> bool:
        """Add a record. `fragment`: its JSON. Return whether there was room for it."""
        self._bytes += len(fragment)
        self.is_full = bool(self.records) and self._bytes > GET_RECORDS_BYTES
        if self.is_full:
            return False
        self.records.append((delivery, fragment))
        self.is_full = len(self.records) == self._limit
        return True


def record_id(shard: Shard, counter: int) -> str:
    """Return the id of a record. It is the same in every queue and at each delivery, and does not reveal the shard or the order."""
    number = shard.log.numbers.text(counter)
    return hashlib.md5(number.encode(), usedforsecurity=False).hexdigest()
