"""OpenSubscription: one SubscribeToShard call, read event by event, with its three time-outs (F1, F5)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from ..clock import Clock, observed_timeout
from ..errors import TransientError
from ..kinesis.ports import ReadResponse, Subscription, SubscriptionPort
from ..positions import StartingPosition
from ..shards import Shard
from .config import FanOutConfig

API = "SubscribeToShard"


class OpenSubscription:
    """Owns one open call. Events are pulled, so no event of a closed subscription can reach the next one (F7)."""

    def __init__(self, subscription: Subscription, config: FanOutConfig, clock: Clock) -> None:
        self._subscription = subscription
        self._events = aiter(subscription)
        self._config = config
        self._clock = clock
        self._closing_unread: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        port: SubscriptionPort,
        arn: str,
        shard: Shard,
        position: StartingPosition,
        config: FanOutConfig,
        clock: Clock,
    ) -> OpenSubscription:
        """Subscribe. Raises: the port's errors; TransientError if the call takes longer than `flink.shard.subscribetoshard.timeout`."""
        try:
            async with observed_timeout(clock, config.subscribe_timeout):
                return cls(await port.subscribe_to_shard(arn, shard, position), config, clock)
        except TimeoutError as error:
            message = f"Timed out acquiring subscription - {shard.key} ({arn}) after {config.subscribe_timeout:g} s"
            raise TransientError(API, "SubscriptionTimeout", message) from error

    @property
    def is_closed_unread(self) -> bool:
        """Whether the connection was closed because it was not read for too long."""
        return self._closing_unread is not None

    async def next_event(self) -> ReadResponse | None:
        """Read one event from the socket. Return None if the stream ended cleanly, which does not mean the end of the shard (F2).

        Raises: the port's errors; TransientError if no event came within the inactivity time-out (half-open connection,
        F5).
        """
        try:
            async with observed_timeout(self._clock, self._config.inactivity_timeout):
                return await anext(self._events)
        except StopAsyncIteration:
            return None
        except TimeoutError as error:
            message = f"no event for {self._config.inactivity_timeout:g} s, the connection is half open"
            raise TransientError(API, "InactivityTimeout", message) from error

    @contextmanager
    def close_if_unread(self) -> Iterator[None]:
        """Close the connection if the block takes longer than the unread time-out (F5). Use it around work during which nothing is read."""
        timer = asyncio.get_running_loop().call_later(self._config.unread_timeout, self._close_unread)
        try:
            yield
        finally:
            timer.cancel()

    async def close(self) -> None:
        """Close the connection; safe to call twice."""
        if self._closing_unread is not None:
            await self._closing_unread
        await self._subscription.close()

    def _close_unread(self) -> None:
        self._closing_unread = asyncio.create_task(self._subscription.close())
