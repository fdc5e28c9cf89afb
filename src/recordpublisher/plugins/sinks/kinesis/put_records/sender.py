"""Sender: starts calls when they are due, a bounded number at a time, and hands each answer on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import ImpossibleStateError, TransientError
from recordpublisher.publishers.kinesis.ports import PutEntry, PutResult, WritingPort

from ..shard_queues.shard_queues import ShardQueues
from ..statistics import SinkMetrics
from ..waiters import Notifier
from .request import NEVER, Request, RequestLimits, take_next_request
from .results import results_of_failed_call


class Sender:
    """Owns the calls that are going on, and the time at which it looks again for the next."""

    def __init__(
        self,
        port: WritingPort,
        stream: str,
        lanes: ShardQueues,
        limits: RequestLimits,
        connections: int,
        clock: Clock,
        metrics: SinkMetrics,
        on_answer: Callable[[Request, list[PutResult]], None],
    ) -> None:
        self._port = port
        self._stream = stream
        self._lanes = lanes
        self._limits = limits
        self._connections = connections
        self._clock = clock
        self._metrics = metrics
        self._on_answer = on_answer
        self._bell = Notifier()
        self._looks_at = NEVER
        self._calls: set[asyncio.Task[None]] = set()
        self._failed: asyncio.Future[None] | None = None

    @property
    def open_calls(self) -> int:
        """Calls that are going on."""
        return len(self._calls)

    def wake(self) -> None:
        """Look at once whether a call is due."""
        self._bell.ring()

    def expect(self, at: float) -> None:
        """Something will be due at this time."""
        if at < self._looks_at:
            self._bell.ring()

    async def run(self) -> None:
        """Send until cancelled. Raises: what a call raised that no retry can help, once."""
        self._failed = asyncio.get_running_loop().create_future()
        try:
            while not self._failed.done():
                await self._step()
            self._failed.result()
        finally:
            for call in self._calls:
                call.cancel()
            await asyncio.gather(*self._calls, return_exceptions=True)
            if not self._failed.cancel():
                self._failed.exception()  # looked at: asyncio need not warn of it

    async def _step(self) -> None:
        if len(self._calls) >= self._connections:
            await self._bell.next()
            return
        now = self._clock.monotonic()
        found = take_next_request(self._lanes, now, self._limits)
        if isinstance(found, Request):
            call = asyncio.create_task(self._send(found), name="put-records")
            self._calls.add(call)
            call.add_done_callback(self._ended)
            return
        self._looks_at = found
        await self._bell.next(None if found == NEVER else max(found - now, 0.0))
        self._looks_at = 0.0  # awake: nobody need ring

    def _ended(self, call: asyncio.Task[None]) -> None:
        self._calls.discard(call)
        error = None if call.cancelled() else call.exception()
        if error is not None and self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)
        self._bell.ring()

    async def _send(self, request: Request) -> None:
        entries = [
            PutEntry(outgoing.data, outgoing.partition_key, outgoing.explicit_hash_key)
            for share in request.batches
            for outgoing in share.records
        ]
        began = self._clock.monotonic()
        results = await self._results_of(entries)
        self._metrics.requests += 1
        self._metrics.current_send_time_ms = round((self._clock.monotonic() - began) * 1000)
        self._on_answer(request, results)

    async def _results_of(self, entries: list[PutEntry]) -> list[PutResult]:
        try:
            answer = await self._port.put_records(self._stream, entries)
        except TransientError as error:
            self._metrics.failed_requests += 1
            return results_of_failed_call(error, len(entries))
        if len(answer.results) != len(entries):
            raise ImpossibleStateError(f"PutRecords answered {len(answer.results)} results for {len(entries)} records")
        return answer.results
