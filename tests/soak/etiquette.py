"""Etiquette: between a client and its transport, sees to it that the service's limits are kept (R1, R2, R4, F2, F5, F9)."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import ThrottledError
from recordpublisher.publishers.kinesis.codec.sdk_parser import RAW_EVENTS, READ
from recordpublisher.publishers.kinesis.ports import Transport

LONG_AGO = -1e9


class Manners:
    """What one shard's reader did last, in seconds of its clock."""

    def __init__(self) -> None:
        self.read_at = self.throttled_at = self.subscribe_called_at = self.subscribed_at = LONG_AGO


class Etiquette:
    """A transport that carries nothing itself; breaches are kept for the end, since a raised one would be retried."""

    def __init__(self, inner: Transport, clock: Clock, tolerance: float = 1e-3) -> None:
        self._inner = inner
        self._clock = clock
        self._tolerance = tolerance
        self._manners: defaultdict[str, Manners] = defaultdict(Manners)
        self._iterators: dict[str, tuple[str, float]] = {}
        self.breaches: list[str] = []

    async def call(self, api: str, **parameters: Any) -> dict[str, Any]:
        if api == "GetShardIterator":
            since = self._clock.monotonic()
            answer = await self._inner.call(api, **parameters)
            self._iterators[answer["ShardIterator"]] = (parameters["ShardId"], since)
            return answer
        if api == "GetRecords":
            return await self._get_records(parameters)
        return await self._inner.call(api, **parameters)

    async def subscribe(self, api: str, **parameters: Any) -> dict[str, Any]:
        manners = self._manners[f"{parameters['ConsumerARN']} {parameters['ShardId']}"]
        now = self._clock.monotonic()
        self._apart("F9 SubscribeToShard after a call", now - manners.subscribe_called_at, 1.0)
        self._apart("F2 SubscribeToShard after a success", now - manners.subscribed_at, 5.0)
        manners.subscribe_called_at = now
        answer = await self._inner.subscribe(api, **parameters)
        manners.subscribed_at = self._clock.monotonic()
        answer[RAW_EVENTS] = _Watched(answer[RAW_EVENTS], self)
        return answer

    async def close(self) -> None:
        await self._inner.close()

    async def _get_records(self, parameters: dict[str, Any]) -> dict[str, Any]:
        shard_id, since = self._iterators[parameters["ShardIterator"]]
        manners, now = self._manners[shard_id], self._clock.monotonic()
        self._apart("R1 GetRecords after GetRecords", now - manners.read_at, 0.2)
        self._apart("R4 GetRecords after a refusal", now - manners.throttled_at, 1.0)
        if now - since > 300 + self._tolerance:
            self.breaches.append(f"R2 an iterator {now - since:.1f} s old was used")
        manners.read_at = now
        try:
            answer = await self._inner.call("GetRecords", **parameters)
        except ThrottledError:
            manners.throttled_at = self._clock.monotonic()
            raise
        following = answer[READ].NextShardIterator
        if following:
            self._iterators[following] = (shard_id, self._clock.monotonic())
        return answer

    def unread(self, seconds: float) -> None:
        if seconds > 60 + 1 + self._tolerance:
            self.breaches.append(f"F5 a subscription was left unread for {seconds:.1f} s")

    def _apart(self, what: str, seconds: float, least: float) -> None:
        if seconds < least - self._tolerance:
            self.breaches.append(f"{what}: {seconds:.3f} s, at least {least} are asked for")


class _Watched:
    """An open response; knows how long nobody read from it."""

    def __init__(self, response: Any, etiquette: Etiquette) -> None:
        self.content = SimpleNamespace(readany=self._read)
        self._response = response
        self._etiquette = etiquette
        self._idle_since: float | None = None

    @property
    def connection(self) -> Any:
        return self._response.connection

    def close(self) -> None:
        self._heard()
        self._response.close()

    async def _read(self) -> bytes:
        self._heard()
        try:
            data: bytes = await self._response.content.readany()
        finally:
            self._idle_since = self._etiquette._clock.monotonic()
        return data

    def _heard(self) -> None:
        if self._idle_since is not None:
            self._etiquette.unread(self._etiquette._clock.monotonic() - self._idle_since)
        self._idle_since = None
