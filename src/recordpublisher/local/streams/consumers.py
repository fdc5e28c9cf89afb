"""Registered stream consumers: from CREATING to ACTIVE, from DELETING to gone, by the clock."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..api_errors import ApiError, in_use, limit_exceeded, not_found
from ..clock import Clock
from .tags import TagSet

CONSUMER_LIMIT = 20
"""The most consumers and queues of a stream."""


@dataclass(slots=True, eq=False)
class Consumer:
    """One registration. Its ARN contains its creation time, so a later consumer with the same name has another ARN."""

    name: str
    arn: str
    created_ms: int
    active_from_ms: int
    gone_from_ms: int | None = None
    tags: TagSet = field(default_factory=TagSet)
    policy: str | None = None

    def status(self, now_ms: int) -> str:
        """Return CREATING, ACTIVE or DELETING at that time."""
        if self.gone_from_ms is not None:
            return "DELETING"
        return "ACTIVE" if now_ms >= self.active_from_ms else "CREATING"

    def is_gone(self, now_ms: int) -> bool:
        """Return whether the deregistration is complete."""
        return self.gone_from_ms is not None and now_ms >= self.gone_from_ms

    def describe(self, now_ms: int) -> dict[str, object]:
        """Return the consumer as ListStreamConsumers shows it."""
        return {
            "ConsumerName": self.name,
            "ConsumerARN": self.arn,
            "ConsumerStatus": self.status(now_ms),
            "ConsumerCreationTimestamp": self.created_ms / 1000,
        }


class ConsumerTable:
    """Owns the consumers of one stream."""

    def __init__(self, stream_arn: str, clock: Clock, delay_ms: int, limit: int = CONSUMER_LIMIT) -> None:
        self._stream_arn = stream_arn
        self._clock = clock
        self._delay_ms = delay_ms
        self._limit = limit
        self._consumers: dict[str, Consumer] = {}

    def all(self) -> list[Consumer]:
        """Return the consumers that exist now, in the order of their names."""
        now = self._clock.now_ms()
        self._consumers = {name: c for name, c in self._consumers.items() if not c.is_gone(now)}
        return [self._consumers[name] for name in sorted(self._consumers)]

    def require_room(self, queue_count: int) -> None:
        """Raise LimitExceededException if a stream has as many consumers and queues as it may have."""
        if len(self.all()) + queue_count >= self._limit:
            raise limit_exceeded(f"Stream {self._stream_arn} already has {self._limit} consumers.")

    def register(self, name: str, tags: Mapping[str, str] | None = None, queue_count: int = 0) -> Consumer:
        """Add a consumer.

        Raises: ResourceInUseException if the name is taken; the errors of `require_room` and `TagSet.add`.
        """
        self.all()
        if name in self._consumers:
            raise in_use(f"Consumer {name} under stream {self._stream_arn} already exists.")
        self.require_room(queue_count)
        now = self._clock.now_ms()
        arn = f"{self._stream_arn}/consumer/{name}:{now // 1000}"
        consumer = self._consumers[name] = Consumer(name, arn, now, now + self._delay_ms, tags=TagSet(tags))
        return consumer

    def restore(self, consumer: Consumer) -> None:
        """Add a consumer that was stored."""
        self._consumers[consumer.name] = consumer

    def add_deleting(self, name: str, ms: int) -> None:
        """Add a consumer that is DELETING for `ms` milliseconds, unless the name is taken."""
        self.all()
        if name and name not in self._consumers:
            now = self._clock.now_ms()
            arn = f"{self._stream_arn}/consumer/{name}:{now // 1000 - 3600}"
            self._consumers[name] = Consumer(name, arn, now, now, gone_from_ms=now + ms)

    def deregister(self, consumer: Consumer) -> None:
        """Begin to remove a consumer. Raises: ResourceInUseException if it is already being deleted."""
        if consumer.gone_from_ms is not None:
            raise in_use(f"Consumer {consumer.name} is being deleted already.")
        consumer.gone_from_ms = self._clock.now_ms() + self._delay_ms

    def deregister_once(self, consumer: Consumer) -> None:
        """Begin to remove a consumer, unless it is already being deleted."""
        if consumer.gone_from_ms is None:
            self.deregister(consumer)

    def find(self, *, name: str | None = None, arn: str | None = None) -> Consumer:
        """Return the consumer with that name or ARN. Raises: ResourceNotFoundException if there is none."""
        for consumer in self.all():
            if arn in (None, consumer.arn) and name in (None, consumer.name):
                return consumer
        if arn is not None:
            raise consumer_not_found(arn)
        raise not_found(f"Consumer {name} of stream {self._stream_arn} not found.")


def consumer_not_found(arn: str) -> ApiError:
    """Return the error for an ARN that no consumer has."""
    return not_found(f"Consumer {arn}, account {arn.split(':')[4]} not found.")
