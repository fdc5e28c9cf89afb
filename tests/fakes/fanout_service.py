"""A scripted service for fan-out on virtual time: subscriptions that do what a test says, consumers that come and go."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from recordpublisher.publishers.errors import (
    ResourceInUseError,
    ResourceNotFoundError,
    StreamNotFoundError,
    ThrottledError,
    TransientError,
)
from recordpublisher.publishers.kinesis.ports import ConsumerDescription, ReadResponse, RecordDistribution
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.records import UserRecord
from recordpublisher.publishers.shards import Shard
from recordpublisher.testing.virtual_time import VirtualClock

STREAM_ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
ARN = f"{STREAM_ARN}/consumer/app:1"
SHARD = Shard("orders", "shardId-000000000000")
SILENCE = object()
EFO: dict[str, object] = {"flink.stream.recordpublisher": "EFO", "flink.stream.efo.consumername": "app"}


@dataclass(frozen=True)
class Pause:
    """Nothing arrives for some seconds."""

    seconds: float


@dataclass(frozen=True)
class Call:
    """One SubscribeToShard call."""

    at: float
    arn: str
    position: StartingPosition


def record(sequence: int | str, data: bytes = b"data") -> UserRecord:
    return UserRecord(data, str(sequence), 1.0, "key")


def event(
    *sequences: int, continuation: int | None = -1, behind: int = 0, children: tuple[Shard, ...] = ()
) -> ReadResponse:
    """An event. Its continuation (None: the end of the shard) is by default its last record."""
    following = sequences[-1] if continuation == -1 else continuation
    return ReadResponse(
        [record(number) for number in sequences], behind, None, None if following is None else str(following), children
    )


def shard_end(*sequences: int, children: tuple[Shard, ...] = ()) -> ReadResponse:
    return event(*sequences, continuation=None, children=children)


def network(code: str = "ConnectionClosed") -> TransientError:
    return TransientError("SubscribeToShard", code, "scripted")


def throttled() -> ThrottledError:
    return ThrottledError("SubscribeToShard", "LimitExceededException", "scripted")


def in_use() -> ResourceInUseError:
    return ResourceInUseError("SubscribeToShard", "ResourceInUseException", "scripted")


def not_found() -> ResourceNotFoundError:
    return ResourceNotFoundError("SubscribeToShard", "ResourceNotFoundException", "scripted")


class ScriptedSubscription:
    """Yields its items in order: events, errors to raise, Pause, SILENCE, or a callable to run. Then it ends cleanly."""

    def __init__(self, items: tuple[Any, ...]) -> None:
        self._items = items
        self.read = 0
        self.closed = 0

    def __aiter__(self) -> AsyncIterator[ReadResponse]:
        return self._play()

    async def close(self) -> None:
        self.closed += 1

    async def _play(self) -> AsyncIterator[ReadResponse]:
        for item in self._items:
            if isinstance(item, Exception):
                raise item
            if isinstance(item, Pause):
                await asyncio.sleep(item.seconds)
            elif item is SILENCE:
                await asyncio.get_running_loop().create_future()
            elif callable(item):
                item()
            else:
                self.read += 1
                yield item


@dataclass
class Consumers:
    """The registered consumers: each is CREATING or DELETING for as long as the test says."""

    creating_seconds: float = 0.0
    deleting_seconds: float = 0.0
    maximum: int = 20
    calls: list[str] = field(default_factory=list)
    errors: dict[str, list[Exception]] = field(default_factory=dict)
    _known: dict[str, tuple[str, float, float | None]] = field(default_factory=dict)
    _numbers: Any = field(default_factory=lambda: count(1))

    def add(self, name: str, *, active_in: float = 0.0, gone_in: float | None = None) -> str:
        arn = f"{STREAM_ARN}/consumer/{name}:{next(self._numbers)}"
        now = VirtualClock().monotonic()
        self._known[name] = (arn, now + active_in, None if gone_in is None else now + gone_in)
        return arn

    def remove(self, name: str) -> None:
        del self._known[name]

    def delete(self, name: str) -> None:
        arn, active, _ = self._known[name]
        self._known[name] = (arn, active, VirtualClock().monotonic() + self.deleting_seconds)

    def find(self, name: str) -> ConsumerDescription | None:
        now = VirtualClock().monotonic()
        if name not in self._known:
            return None
        arn, active, gone = self._known[name]
        if gone is not None and now >= gone:
            del self._known[name]
            return None
        status = "DELETING" if gone is not None else "ACTIVE" if now >= active else "CREATING"
        return ConsumerDescription(name, arn, status)

    @property
    def names(self) -> list[str]:
        return [name for name in list(self._known) if self.find(name) is not None]

    def count(self, call: str) -> int:
        return self.calls.count(call)

    def called(self, call: str) -> None:
        self.calls.append(call)
        if self.errors.get(call):
            raise self.errors[call].pop(0)

    def register(self, name: str) -> ConsumerDescription:
        if self.find(name) is not None:
            raise ResourceInUseError("RegisterStreamConsumer", "ResourceInUseException", name)
        if len(self._known) >= self.maximum:
            raise ThrottledError("RegisterStreamConsumer", "LimitExceededException", "too many")
        self.add(name, active_in=self.creating_seconds)
        found = self.find(name)
        assert found is not None
        return found

    def deregister(self, arn: str) -> None:
        for name in self.names:
            if self._known[name][0] == arn:
                return self.delete(name)
        raise ResourceNotFoundError("DeregisterStreamConsumer", "ResourceNotFoundException", arn)


class ScriptedPorts:
    """FanOutService. `subscriptions` are opened in order: each a tuple of items, or an error or SILENCE instead of a subscription."""

    def __init__(self, *subscriptions: Any) -> None:
        self.script = list(subscriptions)
        self.calls: list[Call] = []
        self.opened: list[ScriptedSubscription] = []
        self.consumers = Consumers()
        self.streams = {"orders": STREAM_ARN}
        self.shards = [SHARD]
        self.do_distribute_by_key = True
        self.closed = 0

    @property
    def positions(self) -> list[StartingPosition]:
        return [call.position for call in self.calls]

    @property
    def times(self) -> list[float]:
        return [call.at for call in self.calls]

    @property
    def gaps(self) -> list[float]:
        """Seconds between two calls."""
        return [round(later - earlier, 6) for earlier, later in zip(self.times, self.times[1:], strict=False)]

    async def subscribe_to_shard(
        self, consumer_arn: str, shard: Shard, position: StartingPosition
    ) -> ScriptedSubscription:
        self.calls.append(Call(VirtualClock().monotonic(), consumer_arn, position))
        item = self.script.pop(0)
        if isinstance(item, Exception):
            raise item
        if item is SILENCE:
            await asyncio.get_running_loop().create_future()
        self.opened.append(ScriptedSubscription(item))
        return self.opened[-1]

    async def stream_arn(self, stream: str) -> str:
        self.consumers.called("stream")
        if stream not in self.streams:
            raise StreamNotFoundError(stream)
        return self.streams[stream]

    async def describe_consumer(self, stream_arn: str, name: str) -> ConsumerDescription | None:
        await asyncio.sleep(0)
        self.consumers.called("describe")
        return self.consumers.find(name)

    async def register_consumer(
        self, stream_arn: str, name: str, tags: Mapping[str, str] | None = None
    ) -> ConsumerDescription:
        await asyncio.sleep(0)
        self.consumers.called("register")
        return self.consumers.register(name)

    async def deregister_consumer(self, consumer_arn: str) -> None:
        self.consumers.called("deregister")
        self.consumers.deregister(consumer_arn)

    async def list_shards(self, stream: str) -> list[Shard]:
        self.consumers.called("list")
        if stream not in self.streams:
            raise StreamNotFoundError(stream)
        return self.shards

    async def record_distribution(self, stream: str) -> RecordDistribution:
        return RecordDistribution(self.do_distribute_by_key, VirtualClock().now_ms())

    async def server_time_ms(self, stream: str) -> int:
        return VirtualClock().now_ms()

    async def close(self) -> None:
        self.closed += 1
