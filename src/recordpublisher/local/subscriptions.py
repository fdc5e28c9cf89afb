"""Subscriptions to shards: what each of them sends next, and when a newer subscription replaces an older one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from recordpublisher.publishers.service_limits import SECONDS_BETWEEN_SUBSCRIPTIONS, SUBSCRIPTION_SECONDS

from . import event_stream
from .clock import Clock
from .errors import in_use
from .shard import Shard
from .stream import Consumer, Stream

LIFETIME_MS = int(SUBSCRIPTION_SECONDS * 1000)
HEARTBEAT_MS = 5_000
TAKE_OVER_AFTER_MS = int(SECONDS_BETWEEN_SUBSCRIPTIONS * 1000)
MAX_EVENT_RECORDS = 2_000
MAX_EVENT_BYTES = 1 << 20

INITIAL_RESPONSE = event_stream.event("initial-response", b"{}")


class Subscriptions:
    """The open subscriptions: at most one for each consumer and shard. A new one can replace one that was opened at least 5 s before."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_success_ms: dict[tuple[str, str], int] = {}
        self._open: dict[tuple[str, str], Subscription] = {}
        # Kept in the order in which they were opened, so that the same seed gives the same faults.
        self._all: dict[Subscription, None] = {}

    def open(self, stream: Stream, consumer: Consumer, shard: Shard, counter: int) -> Subscription:
        """Add a subscription, and end the previous one of this consumer and shard. `counter`: the counter of the first record to send.

        Raises: ResourceInUseException if the previous one was opened less than 5 s ago.
        """
        pair = (consumer.arn, shard.id)
        now = self._clock.now_ms()
        last = self._last_success_ms.get(pair)
        if last is not None and now - last < TAKE_OVER_AFTER_MS:
            raise in_use(f"Another active subscription exists for this consumer: {consumer.arn} on shard {shard.id}.")
        former = self._open.get(pair)
        if former is not None:
            former.replaced = True
            former.wake()
        self._last_success_ms[pair] = now
        self._open[pair] = subscription = Subscription(stream, consumer, shard, counter, now)
        self._all[subscription] = None
        return subscription

    def take_over(self, subscription: Subscription) -> None:
        """End a subscription, as if another client had called SubscribeToShard for the same consumer and shard."""
        self._last_success_ms[subscription.consumer.arn, subscription.shard.id] = self._clock.now_ms()
        subscription.replaced = True

    def close(self, subscription: Subscription) -> None:
        """Remove a subscription that has ended."""
        self._all.pop(subscription, None)
        pair = (subscription.consumer.arn, subscription.shard.id)
        if self._open.get(pair) is subscription:
            del self._open[pair]

    def wake_all(self) -> None:
        """Wake all subscriptions. They then look at the time, and at faults, deletions and deregistrations."""
        for subscription in tuple(self._all):
            subscription.wake()


@dataclass(frozen=True, slots=True)
class SendStep:
    """Send a frame now. `last`: whether the response ends after this frame."""

    frame: bytes
    last: bool = False


@dataclass(frozen=True, slots=True)
class WaitStep:
    """Wait until `until_ms`, unless something wakes the subscription before."""

    until_ms: int


@dataclass(slots=True, eq=False)
class Subscription:
    """The state of one SubscribeToShard call: its position in the shard."""

    stream: Stream
    consumer: Consumer
    shard: Shard
    counter: int
    opened_ms: int
    last_event_ms: int = field(init=False)
    replaced: bool = field(init=False, default=False)
    wake: Callable[[], None] = field(init=False, default=lambda: None)

    def __post_init__(self) -> None:
        self.last_event_ms = self.opened_ms

    @property
    def expires_ms(self) -> int:
        """When the response ends by itself, after five minutes (epoch ms)."""
        return self.opened_ms + LIFETIME_MS

    def next_step(self, now_ms: int) -> SendStep | WaitStep | None:
        """Return the next step: to send a frame, or to wait. Return None if the five minutes of the subscription are over."""
        error = self._error_frame()
        if error is not None:
            return SendStep(error, last=True)
        if now_ms >= self.expires_ms:
            return None
        self.shard.log.trim(self.stream.horizon_ms)
        return self._next_event(now_ms)

    def _error_frame(self) -> bytes | None:
        if self.replaced:
            return event_stream.exception("ResourceInUseException", "Another call subscribed to this shard.")
        if self.consumer.gone_from_ms is not None:
            return event_stream.exception("ResourceNotFoundException", f"Consumer {self.consumer.arn} not found.")
        if self.stream.is_gone:
            return event_stream.exception("ResourceNotFoundException", f"Stream {self.stream.name} not found.")
        return None

    def _next_event(self, now_ms: int) -> SendStep | WaitStep:
        log = self.shard.log
        found = log.read(self.counter, MAX_EVENT_RECORDS, MAX_EVENT_BYTES)
        at_end = not self.shard.is_open and found.unread_arrival_ms is None
        heartbeat_ms = self.last_event_ms + HEARTBEAT_MS
        if not found.fragments and not at_end and now_ms < heartbeat_ms:
            return WaitStep(min(heartbeat_ms, self.expires_ms))
        continuation = found.last_counter if found.fragments else log.use_counter(now_ms)
        self.counter, self.last_event_ms = continuation + 1, now_ms
        behind = millis_behind(found.unread_arrival_ms, now_ms)
        return SendStep(self._event(found.fragments, None if at_end else continuation, behind), last=at_end)

    def _event(self, fragments: list[bytes], continuation: int | None, millis_behind_latest: int) -> bytes:
        """Return one encoded event. The last event of a shard has the shard's children instead of a continuation."""
        if continuation is None:
            tail = b'null,"ChildShards":%b' % msgspec.json.encode(self.shard.describe_children())
        else:
            tail = b'"%b"' % self.shard.log.numbers.text(continuation).encode()
        payload = b'{"Records":[%b],"MillisBehindLatest":%d,"ContinuationSequenceNumber":%b}' % (
            b",".join(fragments),
            millis_behind_latest,
            tail,
        )
        return event_stream.event("SubscribeToShardEvent", payload)


def millis_behind(unread_arrival_ms: int | None, now_ms: int) -> int:
    """Return how far a read is behind the tip (ms). It is at least 1 if a record is unread, and 0 if none is."""
    return 0 if unread_arrival_ms is None else max(1, now_ms - unread_arrival_ms)
