"""Queue: delivers the records of a stream one by one, each until it is acknowledged."""

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

import msgspec

from ..api_errors import invalid_argument, not_found
from ..clock import Clock
from .attached import Attached
from .deliveries import Deliveries, Delivery, Key

DEFAULT_SETTINGS = {
    "VisibilityTimeoutSeconds": 30,
    "DeadLetterConfiguration": {"TargetType": "BUILT_IN", "MaxReceiveCount": 6},
}


class ReceiptHandle(msgspec.Struct, frozen=True, array_like=True, tag="r"):
    """What a handle says: a record, and which of its receipts it is of."""

    queue: str
    key: Key
    receipt: int


@dataclass(slots=True, eq=False, kw_only=True)
class Queue(Attached):
    """Owns the deliveries of a queue, and who waits for records."""

    deliveries: Deliveries = field(init=False)
    _waiting: dict[Callable[[], None], None] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        self.deliveries = Deliveries(self.stream)

    @property
    def visibility_seconds(self) -> int:
        """How long a record is in flight, unless a call says otherwise."""
        seconds: int = self.settings["VisibilityTimeoutSeconds"]
        return seconds

    @property
    def max_receives(self) -> int | None:
        """How often a record is received before it becomes a dead letter, None for ever."""
        dead_letters = self.settings["DeadLetterConfiguration"]
        return dead_letters["MaxReceiveCount"] if dead_letters["TargetType"] == "BUILT_IN" else None

    def handle_of(self, delivery: Delivery) -> ReceiptHandle:
        """The handle of the newest receipt."""
        return ReceiptHandle(self.id, delivery.key, delivery.receipts)

    def find(self, handle: ReceiptHandle | None, now_ms: int, *, dead: bool) -> Delivery:
        """Return what a handle is of.

        Raises: ApiError for a handle of another queue or of an earlier receipt (InvalidArgumentException), and for a record that is not
        there: acknowledged, past retention, or a dead letter now (ResourceNotFoundException). The model does not say which is which.
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
        """Let those who wait look again."""
        for wake in tuple(self._waiting):
            wake()

    async def wait_for_change(self, until_ms: int, clock: Clock) -> None:
        """Wait until then, or until records may have become visible."""
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
