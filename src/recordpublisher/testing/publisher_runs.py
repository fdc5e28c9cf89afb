"""Runs the publisher of a case, and checks how it calls its consumer."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

from recordpublisher.consumer.event_time import check_arrivals
from recordpublisher.consumer.shard_consumer import check_types
from recordpublisher.publishers.base import (
    BatchConsumer,
    RecordPublisher,
    RecordPublisherFactory,
    RunResult,
    make_publisher,
)
from recordpublisher.publishers.errors import PluginError
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.publishers.safe_text import repr_of
from recordpublisher.publishers.user_code import end_or_leave, waiting_line

from ..publishers.shard_metrics import ShardMetrics
from ..publishers.shards import Shard
from .contract import GRACE_SECONDS

MAX_EMPTY_RUNS = 100
"""A publisher fails its test after this many empty results in a row within a second: runs that end INCOMPLETE without a batch, or batches
without a record.
"""
CANCEL_SECONDS = 5.0
"""How long a run may take to end after it was cancelled (seconds)."""
SWALLOWED = "`run` swallowed an error of the consumer: let errors of the consumer pass"
SWALLOWED_CANCELLATION = "`run` swallowed its cancellation and called the consumer again: let CancelledError pass"


@dataclass(frozen=True, slots=True)
class PublisherCase:
    """A shard that has ended, and, for a source that grows, an open shard.

    - `factory`: makes the publishers.
    - `shard`: a shard that has ended.
    - `payloads`: the payloads of the shard in order. They must need more than one batch.
    - `open_shard`: another shard, which is open and has no records yet. Without it nothing is tested of a shard that grows.
    - `put`: adds a record with a payload to `open_shard`. It may be a coroutine function, and returns when the record can be read. If a
      reader may see a part of a record, as in a file, let it write one half, wait for longer than the publisher waits between two reads,
      and write the other half.
    - `reports_tip`: whether the publisher says by `millis_behind_latest=0` that it has read everything.
    """

    factory: RecordPublisherFactory
    shard: Shard
    payloads: Sequence[bytes]
    open_shard: Shard | None = None
    put: Callable[[bytes], object] | None = None
    reports_tip: bool = True

    async def publisher(
        self, start: StartingPosition | None = None, metrics: ShardMetrics | None = None
    ) -> RecordPublisher:
        """Return a publisher of the shard, from its beginning or from `start`."""
        start, metrics = start or StartingPosition.trim_horizon(), metrics or ShardMetrics()
        return await make_publisher(self.factory, self.shard, start, metrics)


async def run_to_end(publisher: RecordPublisher, consumer: BatchConsumer) -> None:
    """Run a publisher to the end of its shard, in a task of its own.

    Raises: AssertionError as soon as the publisher calls its consumer in a wrong way. It cannot hide that by catching errors.
    """
    watched = WatchedConsumer(consumer)
    running = asyncio.create_task(run_until_complete(publisher, watched))
    await watch(running, watched)
    running.result()


async def watch(running: asyncio.Task[Any], watched: WatchedConsumer, seconds: float | None = None) -> None:
    """Wait until a run has ended. Raises: AssertionError if the publisher breaks a rule, or if the run takes longer than `seconds`."""
    try:
        await asyncio.wait([running, watched.fault], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if not watched.fault.done() and not running.done():
            watched.report(
                f"`run` has not ended {seconds:g} s after it was cancelled: it waits at {waiting_line(running)}"
            )
    finally:
        await abandon(running, watched)
    if watched.fault.done():
        raise AssertionError(watched.fault.result())


async def abandon(running: asyncio.Task[Any], watched: WatchedConsumer) -> None:
    """Cancel a run whose test is over. Its errors are ignored."""
    watched.is_closed = True
    running.cancel()
    await end_or_leave([running], GRACE_SECONDS)


async def cancel_run(running: asyncio.Task[Any], watched: WatchedConsumer) -> None:
    """Cancel a run, and wait for its end.

    Raises: AssertionError if the run does not end in time, or breaks a rule; the errors of the run.
    """
    watched.is_cancelled = running.cancel()
    await watch(running, watched, CANCEL_SECONDS)
    if not running.cancelled():
        running.result()


async def run_until_complete(publisher: RecordPublisher, consumer: WatchedConsumer) -> None:
    """Run a publisher again and again until it has read its shard. Raises: AssertionError if its last result is not COMPLETE."""
    result = await run_until_end(publisher, consumer)
    assert result is RunResult.COMPLETE, f"`run` returned {result.name} at the end of the shard: return COMPLETE there"


async def run_until_end(publisher: RecordPublisher, consumer: WatchedConsumer) -> RunResult:
    """Run a publisher again and again until its result is not INCOMPLETE. Return that result.

    Raises: AssertionError if the publisher returns something else, or returns INCOMPLETE again and again without waiting.
    """
    loop = asyncio.get_running_loop()
    result, empty_runs, empty_since = RunResult.INCOMPLETE, 0, loop.time()
    while result is RunResult.INCOMPLETE and not consumer.is_cancelled:
        calls = consumer.calls
        result = await publisher.run_observed(consumer)
        consumer.check_last_call()
        assert isinstance(result, RunResult), f"`run` returned {repr_of(result)}, and not a RunResult"
        if consumer.calls > calls:
            empty_runs, empty_since = 0, loop.time()
        else:
            empty_runs += 1
        assert empty_runs < MAX_EMPTY_RUNS or loop.time() - empty_since > 1.0, (
            f"`run` returned INCOMPLETE {MAX_EMPTY_RUNS} times in a row without a batch: wait in `run` for records"
        )
        await asyncio.sleep(0)
    return result


class WatchedConsumer:
    """Passes batches on to a consumer, and checks how the publisher calls it.

    - `fault`: the first rule that the publisher broke, in words. It is kept here, because a publisher may catch every error.
    - `is_cancelled`: whether the run was cancelled. Then no further call may come.
    - `is_closed`: whether the test is over. Further calls then raise CancelledError after a pause.
    """

    def __init__(self, consumer: BatchConsumer) -> None:
        self._consumer = consumer
        self._loop = asyncio.get_running_loop()
        self.fault: asyncio.Future[str] = self._loop.create_future()
        self.calls = 0
        self.is_cancelled = self.is_closed = False
        self._waiting: Coroutine[Any, Any, SequenceNumber | None] | None = None
        self._has_failed = False
        self._empty, self._empty_since = 0, self._loop.time()

    def __call__(self, batch: RecordBatch) -> Coroutine[Any, Any, SequenceNumber | None]:
        """Pass a batch on. Return a coroutine that raises if the publisher breaks a rule by this call."""
        self.calls += 1
        if self.is_cancelled or self.is_closed:
            self._waiting = self._refuse(asyncio.CancelledError(), SWALLOWED_CANCELLATION)
        elif self._has_failed:
            self._waiting = self._refuse(AssertionError(SWALLOWED), SWALLOWED)
        else:
            self.check_last_call()
            self._waiting = self._take(batch)
        return self._waiting

    async def _refuse(self, error: BaseException, fault: str) -> SequenceNumber | None:
        """Keep the description of a broken rule (`fault`), and raise the error after a pause.

        The pause lets the test end even if the publisher catches the error again and again.
        """
        if not self.is_closed:
            self.report(fault)
        await asyncio.sleep(GRACE_SECONDS)
        raise error

    def report(self, fault: str) -> str:
        """Keep the description of a broken rule (`fault`) if it is the first one. Return it. May be called in any thread."""

        def keep() -> None:
            if not self.fault.done():
                self.fault.set_result(fault)

        self._loop.call_soon_threadsafe(keep)
        return fault

    def check_last_call(self) -> None:
        """Check that the publisher has awaited the last call of the consumer, and has not caught its error.

        Raises: AssertionError if it has not.
        """
        if self._has_failed:
            raise AssertionError(self.report(SWALLOWED))
        state = inspect.CORO_CLOSED if self._waiting is None else inspect.getcoroutinestate(self._waiting)
        if state == inspect.CORO_CREATED and self._waiting is not None:
            self._waiting.close()  # Closed, because Python would also warn of a coroutine that never ran.
            raise AssertionError(self.report("`run` does not await the consumer: write `await consumer(batch)`"))
        if state != inspect.CORO_CLOSED:
            raise AssertionError(
                self.report(
                    "`run` continued before the consumer had returned: await each call before the next one, and before it returns"
                )
            )

    async def _take(self, batch: RecordBatch) -> SequenceNumber | None:
        if asyncio.get_running_loop() is not self._loop:
            raise AssertionError(
                self.report(
                    "the consumer was called in another event loop or thread: write `await consumer(batch)` in `run`"
                )
            )
        assert isinstance(batch, RecordBatch), self.report(
            f"the publisher gave {repr_of(batch)}: the consumer must be called with a RecordBatch"
        )
        try:
            # The keys are checked by `test_batches_come_in_shard_order...`.
            check_types("the publisher", batch, keyless=True)
            if len(batch):
                check_arrivals("the publisher", batch)
        except PluginError as error:
            raise AssertionError(self.report(str(error))) from error
        try:
            self._check_empty(batch)
            await asyncio.sleep(0)
            return await self._consumer(batch)
        except Exception:
            self._has_failed = True
            raise

    def _check_empty(self, batch: RecordBatch) -> None:
        if len(batch) or not self._empty:
            self._empty, self._empty_since = 0, self._loop.time()
        self._empty += not len(batch)
        assert self._empty < MAX_EMPTY_RUNS or self._loop.time() - self._empty_since > 1.0, (
            f"`run` gave {MAX_EMPTY_RUNS} batches in a row without a record, within a second: wait in `run` for records"
        )


def check_payloads(given: Sequence[bytes], expected: Sequence[bytes], when: str = "") -> None:
    """Check that each record came once, and in order. Raises: AssertionError that names the first wrong record."""
    same = next((place for place, pair in enumerate(zip(given, expected, strict=False)) if pair[0] != pair[1]), None)
    if same is not None:
        raise AssertionError(
            f"{when}record {same} (from 0) is {given[same]!r:.100}, expected {expected[same]!r:.100}: each record comes once, in order"
        )
    assert len(given) == len(expected), (
        f"{when}the publisher gave {len(given)} records, expected {len(expected)}: each record comes once"
    )


async def cancel_after(steps: int, publisher: RecordPublisher, consumer: BatchConsumer) -> None:
    """Cancel a run of a publisher after some steps of the event loop, and wait for its end.

    Raises: AssertionError if the run does not end in time, or breaks a rule; the errors of the run.
    """
    watched = WatchedConsumer(consumer)
    running = asyncio.ensure_future(publisher.run_observed(watched))
    for _ in range(steps):
        await asyncio.sleep(0)
    await cancel_run(running, watched)


class RecordingConsumer:
    """A consumer that accepts every batch completely. It keeps the batches and the payloads."""

    def __init__(self) -> None:
        self.batches: list[RecordBatch] = []
        self.payloads: list[bytes] = []
        self._taken: set[SequenceNumber] = set()

    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        """Accept the complete batch."""
        return self.take(batch, len(batch))

    def take(self, batch: RecordBatch, count: int) -> SequenceNumber | None:
        """Accept the first `count` records. Return the position after them.

        Raises: AssertionError if the batch has no position there, or if the records up to this position came before.
        """
        self.batches.append(batch)
        self.payloads += batch.data[:count]
        position = batch.position_after(count)
        if count:
            assert position is not None, (
                "a batch with records has no read_position: it is the position of its last record"
            )
            assert position not in self._taken, (
                f"the records up to {position} came twice: resume after the returned position"
            )
            self._taken.add(position)
        return position

    def positions(self) -> list[SequenceNumber]:
        """Return the position after each accepted record."""
        places = [batch.position_after(count) for batch in self.batches for count in range(1, len(batch) + 1)]
        return [place for place in places if place is not None]


class HalfConsumer(RecordingConsumer):
    """A consumer that accepts only the first half of each batch."""

    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        """Accept the first half of the batch."""
        return self.take(batch, (len(batch) + 1) // 2)


class RefusingConsumer(RecordingConsumer):
    """A consumer that accepts no record of the first batch with records: it returns None. It accepts all other batches."""

    def __init__(self) -> None:
        super().__init__()
        self._has_refused = False

    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        """Return None for the first batch with records, and accept the other batches."""
        if len(batch) and not self._has_refused:
            self._has_refused = True
            return None
        return self.take(batch, len(batch))


class SlowConsumer(RecordingConsumer):
    """A consumer that needs `seconds` for each batch."""

    def __init__(self, seconds: float = 0.01) -> None:
        super().__init__()
        self._seconds = seconds

    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        """Accept the batch after a wait."""
        await asyncio.sleep(self._seconds)
        return self.take(batch, len(batch))


class BrokenConsumer:
    """A consumer that raises an error for every batch."""

    class Error(Exception):
        """The error of a BrokenConsumer."""

    async def __call__(self, batch: RecordBatch) -> SequenceNumber | None:
        """Raise `BrokenConsumer.Error`."""
        raise self.Error
