"""A queue, which delivers the records of a stream one by one, each until it is acknowledged; and the queues of the account."""

import asyncio
from collections.abc import Callable, Collection
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import msgspec

from ..api_errors import in_use, invalid_argument, not_found
from ..clock import Clock
from ..streams.stream import Stream
from ..streams.tags import TagSet
from .deliveries import Deliveries, Delivery, Key

DEFAULT_SETTINGS = {
    "VisibilityTimeoutSeconds": 30,
    "DeadLetterConfiguration": {"TargetType": "BUILT_IN", "MaxReceiveCount": 6},
}


class ReceiptHandle(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """The content of a handle: a record, and the number of its receipt."""

    queue: str
    key: Key
    receipt: int


@dataclass(slots=True, eq=False, kw_only=True)
class Queue:
    """Owns the deliveries of a queue, and the callers that wait for records.

    `settings` are in the form in which the queue's description shows them. The status follows the clock.
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
        """The generated last part of the ARN."""
        return self.arn.rpartition("/")[2]

    def status(self, now_ms: int) -> str:
        """Return CREATING, UPDATING, DELETING or ACTIVE at that time."""
        return self.busy_status if now_ms < self.busy_until_ms or self.busy_status == "DELETING" else "ACTIVE"

    def is_gone(self, now_ms: int) -> bool:
        """Return whether a deletion is complete."""
        return self.busy_status == "DELETING" and now_ms >= self.busy_until_ms

    def require_active(self, now_ms: int) -> None:
        """Raise ResourceInUseException unless the queue can be changed now."""
        if self.status(now_ms) != "ACTIVE":
            raise in_use(f"{self.arn} not ACTIVE, instead in state {self.status(now_ms)}.")

    def set_busy(self, status: str, until_ms: int) -> None:
        """Show `status` until `until_ms`."""
        self.busy_status, self.busy_until_ms = status, until_ms

    @property
    def visibility_seconds(self) -> int:
        """How long a record is in flight, unless a call sets another time (seconds)."""
        seconds: int = self.settings["VisibilityTimeoutSeconds"]
        return seconds

    @property
    def max_receives(self) -> int | None:
        """How often a record is received before it becomes a dead letter. None means without limit."""
        dead_letters = self.settings["DeadLetterConfiguration"]
        return dead_letters["MaxReceiveCount"] if dead_letters["TargetType"] == "BUILT_IN" else None

    def handle_of(self, delivery: Delivery) -> ReceiptHandle:
        """Return the handle of the newest receipt."""
        return ReceiptHandle(self.id, delivery.key, delivery.receipts)

    def find(self, handle: ReceiptHandle | None, now_ms: int, *, dead: bool) -> Delivery:
        """Return the delivery of a handle.

        Raises: ApiError: InvalidArgumentException for a handle of another queue or of an earlier receipt; ResourceNotFoundException for a
        record that was acknowledged, is past retention, or was moved to or from the dead letters. The API model does not say which error
        belongs to which case.
        """
        if handle is None or handle.queue != self.id:
            raise invalid_argument("The ReceiptHandle is not one of this queue.")
        delivery = self.deliveries.find(handle.key, now_ms, self.max_receives, dead=dead)
        if delivery is None:
            raise not_found(
                "The record is not in the queue: acknowledged, past retention, or moved to or from the dead letters."
            )
        if delivery.receipts != handle.receipt:
            raise invalid_argument("The ReceiptHandle is of an earlier receipt of the record.")
        return delivery

    def notify(self) -> None:
        """Let waiting callers check again."""
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
    """Owns the queues of the account. Names are unique; the id in an ARN is generated."""

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
        """Add a queue, which is CREATING for `delay_ms`.

        Raises: ResourceInUseException if the name is taken; the errors of `TagSet.add`.
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
        """Add a queue that already exists."""
        self._by_arn[made.arn] = made
        return made

    def find(self, arn: str, refused: Collection[str] = ()) -> Queue:
        """Return the queue with this ARN.

        Raises: ResourceNotFoundException if there is none, or if it is in one of the `refused` states.
        """
        self.all()
        found = self._by_arn.get(arn)
        if found is None:
            raise not_found(f"The queue {arn} does not exist.")
        status = found.status(self._clock.now_ms())
        if status in refused:
            raise not_found(f"The queue {arn} is {status}.")
        return found
