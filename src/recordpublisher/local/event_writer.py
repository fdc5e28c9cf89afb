"""Writing a subscription's frames to its reader, as fast as they are taken and no faster."""

import asyncio
from typing import Protocol

from . import event_stream
from .faults.injector import PlannedStreamFault, StreamFault
from .faults.kinds import FaultKind
from .faults.random_faults import Drawn
from .streams.account import Account
from .streams.subscriptions import INITIAL_RESPONSE, Send, Subscription

EMPTY_EVENT = event_stream.event("SubscribeToShardEvent", b'{"Records":[],"MillisBehindLatest":0}')


class Wire(Protocol):
    """What carries the answer of one subscription to its reader."""

    async def start(self) -> None:
        """Begin to answer."""
        ...

    async def write(self, data: bytes) -> None:
        """Hand bytes over and wait until there is room again. Raises: ConnectionError when the reader went away."""
        ...

    async def end(self) -> None:
        """End the answer well."""
        ...

    def abort(self) -> None:
        """Break the connection."""
        ...


async def push(subscription: Subscription, wire: Wire, account: Account) -> None:
    """Answer a SubscribeToShard call until its subscription ends."""
    pusher = _Pusher(subscription, wire, account)
    try:
        await pusher.run()
    except ConnectionError:  # the reader went away, which is its right
        pass
    finally:
        account.subscriptions.close(subscription)
        pusher.unlisten()


class _Pusher:
    """Owns the wire of one subscription."""

    def __init__(self, subscription: Subscription, wire: Wire, account: Account) -> None:
        self._subscription = subscription
        self._wire = wire
        self._account = account
        self._clock = account.clock
        self._faults = account.faults
        self._patience_ms = account.delays.cut_stuck_reader
        self._news = asyncio.Event()
        subscription.wake = self._news.set
        self.unlisten = subscription.shard.log.listen(self._news.set)

    async def run(self) -> None:
        """Send the initial response, then what the subscription decides, one frame at a time."""
        await self._wire.start()
        await self._write(INITIAL_RESPONSE)
        names = self._subscription.consumer.name, self._subscription.shard.id
        while True:
            self._news.clear()
            planned = self._faults.for_subscription(*names)
            if planned is not None:
                return await self._suffer(planned)
            now = self._clock.now_ms()
            step = self._subscription.next_step(now)
            if step is None:
                return await self._wire.end()
            if not isinstance(step, Send):
                await self._wait((step.until_ms - now) / 1000)
                continue
            drawn = self._faults.for_frame(*names)
            if drawn is None:
                await self._write(step.frame)
            elif await self._strike(drawn, step.frame):
                return await self._wire.end()
            if step.last:
                return await self._wire.end()

    async def _write(self, frame: bytes) -> None:
        """Hand one frame to the socket and wait until it has room again: a slow reader holds one frame in memory."""
        left_ms = self._subscription.expires_ms + self._patience_ms - self._clock.now_ms()
        try:
            async with asyncio.timeout(left_ms / 1000):
                await self._wire.write(frame)
        except TimeoutError:
            self._wire.abort()
            raise ConnectionAbortedError from None

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            pass

    async def _suffer(self, planned: PlannedStreamFault) -> None:
        """Do to the reader what was planned, at once and whether or not there is something to send."""
        match planned.fault:
            case StreamFault.CUT:
                return await self._cut(EMPTY_EVENT)
            case StreamFault.TRUNCATE:
                await self._write(EMPTY_EVENT[: len(EMPTY_EVENT) // 2])
            case StreamFault.CORRUPT:
                await self._write(event_stream.corrupted(EMPTY_EVENT))
            case StreamFault.ERROR:
                await self._write(event_stream.exception(planned.code, "injected"))
            case StreamFault.SILENT:
                await asyncio.Event().wait()
            case StreamFault.END:
                pass
        await self._wire.end()

    async def _strike(self, drawn: Drawn, frame: bytes) -> bool:
        """Do what was drawn to this frame; answers whether the answer ends well here."""
        match drawn.kind:
            case FaultKind.CUT:
                await self._cut(frame)
            case FaultKind.TRUNCATE:
                await self._write(frame[: len(frame) // 2])
            case FaultKind.CORRUPT:
                await self._write(event_stream.corrupted(frame))
                return False
            case FaultKind.SILENCE:
                await asyncio.Event().wait()
            case FaultKind.EVENT_ERROR:
                await self._write(event_stream.exception("InternalFailureException", "injected"))
            case FaultKind.TAKE_OVER:
                self._account.subscriptions.take_over(self._subscription)
                await self._write(self._refusal())
            case FaultKind.VANISH:
                self._subscription.stream.consumers.vanish(self._subscription.consumer)
                self._account.subscriptions.wake_all()
                await self._write(self._refusal())
        return True

    def _refusal(self) -> bytes:
        step = self._subscription.next_step(self._clock.now_ms())
        return step.frame if isinstance(step, Send) else b""

    async def _cut(self, frame: bytes) -> None:
        await self._write(frame[: len(frame) // 2])
        self._wire.abort()
        raise ConnectionAbortedError
