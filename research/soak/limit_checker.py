"""LimitChecker: a transport that checks the client against the service's limits (R1, R2, R4, F2, F5, F9)."""

from __future__ import annotations

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import ThrottledError
from recordpublisher.publishers.kinesis.codec import RAW_EVENTS, READ
from recordpublisher.publishers.kinesis.ports import Transport

NEVER = -1e9


class ShardCallTimes:
    """When a shard was last read, throttled and subscribed to, in seconds of the clock."""

    def __init__(self) -> None:
        self.read_at = self.throttled_at = self.subscribe_called_at = self.subscribed_at = NEVER


class LimitChecker:
    """Wraps a transport. Violations are collected and checked at the end: a raised error would be retried."""

    def __init__(self, inner: Transport, clock: Clock, tolerance: float = 1e-3) -> None:
        self._inner = inner
        self._clock = clock
        self._tolerance = tolerance
        self._call_times: defaultdict[str, ShardCallTimes] = defaultdict(ShardCallTimes)
        self._iterators: dict[str, tuple[str, float]] = {}
        self.violations: list[str] = []

    async def call(self, api: str, **parameters: Any) -> dict[str, Any]:
        if api == "GetShardIterator":
            since = self._clock.monotonic()
            response = await self._inner.call(api, **parameters)
            self._iterators[response["ShardIterator"]] = (parameters["ShardId"], since)
            return response
        if api == "GetRecords":
            return await self._get_records(parameters)
        return await self._inner.call(api, **parameters)

    async def call_with_body(self, api: str, body: bytes, **parameters: Any) -> dict[str, Any]:
        return await self._inner.call_with_body(api, body, **parameters)

    async def subscribe(self, api: str, **parameters: Any) -> dict[str, Any]:
        times = self._call_times[f"{parameters['ConsumerARN']} {parameters['ShardId']}"]
        now = self._clock.monotonic()
        self._check_interval("F9 SubscribeToShard after a call", now - times.subscribe_called_at, 1.0)
        self._check_interval("F2 SubscribeToShard after a success", now - times.subscribed_at, 5.0)
        times.subscribe_called_at = now
        response = await self._inner.subscribe(api, **parameters)
        times.subscribed_at = self._clock.monotonic()
        response[RAW_EVENTS] = _ObservedResponse(response[RAW_EVENTS], self)
        return response

    async def close(self) -> None:
        await self._inner.close()

    async def _get_records(self, parameters: dict[str, Any]) -> dict[str, Any]:
        shard_id, since = self._iterators[parameters["ShardIterator"]]
        times, now = self._call_times[shard_id], self._clock.monotonic()
        self._check_interval("R1 GetRecords after GetRecords", now - times.read_at, 0.2)
        self._check_interval("R4 GetRecords after a refusal", now - times.throttled_at, 1.0)
        if now - since > 300 + self._tolerance:
            self.violations.append(f"R2 an iterator {now - since:.1f} s old was used")
        times.read_at = now
        try:
            response = await self._inner.call("GetRecords", **parameters)
        except ThrottledError:
            times.throttled_at = self._clock.monotonic()
            raise
        following = response[READ].NextShardIterator
        if following:
            self._iterators[following] = (shard_id, self._clock.monotonic())
        return response

    def unread(self, seconds: float) -> None:
        if seconds > 60 + 1 + self._tolerance:
            self.violations.append(f"F5 a subscription was left unread for {seconds:.1f} s")

    def _check_interval(self, what: str, seconds: float, least: float) -> None:
        if seconds < least - self._tolerance:
            self.violations.append(f"{what}: {seconds:.3f} s, at least {least} s are required")


class _ObservedResponse:
    """An open response; measures how long nobody reads from it."""

    def __init__(self, response: Any, limit_checker: LimitChecker) -> None:
        self.content = SimpleNamespace(readany=self._read)
        self._response = response
        self._limit_checker = limit_checker
        self._idle_since: float | None = None

    @property
    def connection(self) -> Any:
        return self._response.connection

    def close(self) -> None:
        self._end_idle_time()
        self._response.close()

    async def _read(self) -> bytes:
        self._end_idle_time()
        try:
            data: bytes = await self._response.content.readany()
        finally:
            self._idle_since = self._limit_checker._clock.monotonic()
        return data

    def _end_idle_time(self) -> None:
        if self._idle_since is not None:
            self._limit_checker.unread(self._limit_checker._clock.monotonic() - self._idle_since)
        self._idle_since = None
