"""Writes the events of a subscription to its client, with back-pressure: one frame at a time."""

import asyncio
from collections.abc import Callable
from typing import Protocol

from . import event_stream
from .faults.kinds import FaultKind
from .streams.account import Account
from .streams.subscriptions import INITIAL_RESPONSE, Send, Subscription

EMPTY_EVENT = event_stream.event("SubscribeToShardEvent", b'{"Records":[],"MillisBehindLatest":0}')


class ResponseStream(Protocol):
    """The open response of one SubscribeToShard call, on any transport."""

    async def start(self) -> None:
        """Send the response's head."""

    async def write(self, data: bytes) -> None:
        """Write bytes and wait until the buffer has room again. Raises: ConnectionError if the client has gone."""

    async def end(self) -> None:
        """End the response cleanly."""

    def abort(self) -> None:
        """Break the connection."""


async def write_events(
    subscription: Subscription, stream: ResponseStream, account: Account, encode: Callable[[bytes], bytes] = bytes
) -> None:
    """Write events until the subscription ends or the client goes away. `encode` converts a frame to the client's format."""
    writer = EventWriter(subscription, stream, account, encode)
    try:
        await writer.run()
    except ConnectionError:  # the client has closed the connection
        pass
    finally:
        account.subscriptions.close(subscription)
        writer.unlisten()


class EventWriter:
    """Owns the response of one subscription."""

    def __init__(
        self, subscription: Subscription, stream: ResponseStream, account: Account, encode: Callable[[bytes], bytes]
    ) -> None:
        self._encode = encode
        self._subscription = subscription
        self._stream = stream
        self._account = account
        self._clock = account.clock
        self._faults = account.faults
        self._write_timeout_ms = account.delays.cut_stuck_reader
        self._changed = asyncio.Event()
        subscription.wake = self._changed.set
        self.unlisten = subscription.shard.log.listen(self._changed.set)

    async def run(self) -> None:
        """Write the initial response, then event after event."""
        await self._stream.start()
        await self._write(INITIAL_RESPONSE)
        names = self._subscription.consumer.name, self._subscription.shard.id
        while True:
            self._changed.clear()
            planned = self._faults.for_subscription(*names)
            if planned is not None:  # at once, even when there is nothing to send
                await self._apply(planned.fault.value, EMPTY_EVENT, planned.code)
                return await self._stream.end()
            now = self._clock.now_ms()
            step = self._subscription.next_step(now)
            if step is None:
                return await self._stream.end()
            if not isinstance(step, Send):
                await self._wait((step.until_ms - now) / 1000)
                continue
            drawn = self._faults.for_frame(*names)
            if drawn is None:
                await self._write(step.frame)
            else:
                await self._apply(drawn.kind, step.frame)
            if step.last or (drawn is not None and drawn.kind is not FaultKind.CORRUPT):
                return await self._stream.end()

    async def _write(self, frame: bytes) -> None:
        """Write one frame and wait until the socket has room again, so that a slow client keeps only one frame in memory."""
        timeout_ms = self._subscription.expires_ms + self._write_timeout_ms - self._clock.now_ms()
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._stream.write(self._encode(frame))
        except TimeoutError:
            self._stream.abort()
            raise ConnectionAbortedError from None

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            pass

    async def _apply(self, kind: FaultKind, frame: bytes, code: str = "InternalFailureException") -> None:
        """Apply a fault to this frame: write what the client receives instead of it. For END write nothing."""
        match kind:
            case FaultKind.CUT:
                await self._write(frame[: len(frame) // 2])
                self._stream.abort()
                raise ConnectionAbortedError
            case FaultKind.TRUNCATE:
                await self._write(frame[: len(frame) // 2])
            case FaultKind.CORRUPT:
                await self._write(event_stream.corrupted(frame))
            case FaultKind.SILENCE:
                await asyncio.Event().wait()
            case FaultKind.EVENT_ERROR:
                await self._write(event_stream.exception(code, "injected"))
            case FaultKind.TAKE_OVER:
                self._account.subscriptions.take_over(self._subscription)
                await self._write(self._error_frame())
            case FaultKind.VANISH:
                self._subscription.stream.consumers.deregister_once(self._subscription.consumer)
                self._account.subscriptions.wake_all()
                await self._write(self._error_frame())

    def _error_frame(self) -> bytes:
        step = self._subscription.next_step(self._clock.now_ms())
        return step.frame if isinstance(step, Send) else b""
