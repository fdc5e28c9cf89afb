"""Writing a subscription's frames to its connection, as fast as the reader takes them and no faster."""

import asyncio

from aiohttp import web

from . import eventstream
from .account import Account
from .faults import PlannedStreamFault, StreamFault
from .subscriptions import INITIAL_RESPONSE, Send, Subscription


async def push(
    subscription: Subscription, request: web.Request, headers: dict[str, str], account: Account
) -> web.StreamResponse:
    """Answer a SubscribeToShard call until its subscription ends."""
    response = web.StreamResponse(headers={**headers, "Content-Type": "application/vnd.amazon.eventstream"})
    pusher = _Pusher(subscription, request, response, account)
    try:
        await pusher.run()
    except ConnectionError:  # the reader went away, which is its right
        pass
    finally:
        account.subscriptions.close(subscription)
        pusher.unlisten()
    return response


class _Pusher:
    """Owns the connection of one subscription."""

    def __init__(
        self, subscription: Subscription, request: web.Request, response: web.StreamResponse, account: Account
    ) -> None:
        self._subscription = subscription
        self._request = request
        self._response = response
        self._clock = account.clock
        self._faults = account.faults
        self._patience_ms = account.delays.cut_stuck_reader
        self._news = asyncio.Event()
        subscription.wake = self._news.set
        self.unlisten = subscription.shard.log.listen(self._news.set)

    async def run(self) -> None:
        """Send the initial response, then what the subscription decides, one frame at a time."""
        await self._response.prepare(self._request)
        await self._write(INITIAL_RESPONSE)
        while True:
            self._news.clear()
            fault = self._faults.for_subscription(self._subscription.consumer.name, self._subscription.shard.id)
            if fault is not None:
                return await self._suffer(fault)
            now = self._clock.now_ms()
            step = self._subscription.next_step(now)
            if step is None:
                return await self._response.write_eof()
            if isinstance(step, Send):
                await self._write(step.frame)
                if step.last:
                    return await self._response.write_eof()
            else:
                await self._wait((step.until_ms - now) / 1000)

    async def _write(self, frame: bytes) -> None:
        """Hand one frame to the socket and wait until it has room again: a slow reader holds one frame in memory."""
        left_ms = self._subscription.expires_ms + self._patience_ms - self._clock.now_ms()
        try:
            async with asyncio.timeout(left_ms / 1000):
                await self._response.write(frame)
        except TimeoutError:
            self._abort()
            raise ConnectionAbortedError from None

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._news.wait()
        except TimeoutError:
            pass

    async def _suffer(self, planned: PlannedStreamFault) -> None:
        """Do to the reader what was planned."""
        frame = eventstream.event("SubscribeToShardEvent", b'{"Records":[],"MillisBehindLatest":0}')
        match planned.fault:
            case StreamFault.CUT:
                await self._write(frame[: len(frame) // 2])
                return self._abort()
            case StreamFault.TRUNCATE:
                await self._write(frame[: len(frame) // 2])
            case StreamFault.CORRUPT:
                await self._write(eventstream.corrupted(frame))
            case StreamFault.ERROR:
                await self._write(eventstream.exception(planned.code, "injected"))
            case StreamFault.SILENT:
                await asyncio.Event().wait()
            case StreamFault.END:
                pass
        await self._response.write_eof()

    def _abort(self) -> None:
        if self._request.transport is not None:
            self._request.transport.abort()
