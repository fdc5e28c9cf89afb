"""Keeps the records that a job has received from a queue. Makes the calls that acknowledge, prolong and release them."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterable, Sequence
from contextlib import asynccontextmanager
from math import inf
from typing import Any

import msgspec

from recordpublisher.publishers.base import QueueSource
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import PluginError, RecordPublisherError, RetriesExhaustedError, TransientError
from recordpublisher.publishers.records import UserRecord
from recordpublisher.publishers.safe_text import counted, repr_of
from recordpublisher.publishers.user_code import (
    PluginCall,
    cause_in_user_code,
    describe_error,
    is_raised_in_user_code,
    raised_line,
)

from ..publishers.shard_metrics import ShardMetrics

log = logging.getLogger("recordpublisher.queue")
LINGER_SECONDS = 0.02
"""How long finished records are collected before one call acknowledges them (seconds)."""
MAX_REMEMBERED = 20_000
"""The most acknowledged records that are remembered, to recognise duplicates. They take about 4 MB."""
MOST_HANDLED = 10 * MAX_REMEMBERED
"""The most finished records that are remembered until they are acknowledged. One commit can finish this many."""
TOLERATED_ERRORS = (TransientError, RetriesExhaustedError)
"""Errors after which the job continues. The queue delivers the records of a failed call again."""
StartTask = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class InFlight:
    """Keeps received records until they are acknowledged or released. Remembers the sequence numbers of the last finished ones.

    A record of a queue may contain several sub-records (parts) with the same sequence number. A record is open until all of its parts are
    finished. The sink does not get a record again that is received again in one of these states:

    - It is open. It gets the new receipt.
    - It is finished, and its acknowledgement has failed. It is acknowledged with the new receipt.

    Raises: PluginError if the source's `visibility_seconds` is not a valid number.
    """

    def __init__(self, source: QueueSource, clock: Clock, *, drops_duplicates: bool) -> None:
        seconds = source.visibility_seconds
        if not isinstance(seconds, int | float) or not 0 < seconds < inf:
            raise PluginError(
                f"{type(source).__name__}.visibility_seconds is {seconds!r}: it must be a number of seconds above 0"
            )
        self._source = source
        self._clock = clock
        self._drops_duplicates = drops_duplicates
        self._visibility = seconds
        self._open: dict[str, Delivery] = {}
        self._done: dict[str, Delivery] = {}
        self._given_up: list[Delivery] = []
        self._handled: dict[str, None] = {}
        """Sequence numbers of finished records whose acknowledgement has not succeeded. If there are too many, the oldest are forgotten."""
        self._acknowledged: dict[str, None] = {}
        """Sequence numbers of acknowledged records. If there are too many, the oldest are forgotten."""
        self._wake = asyncio.Event()
        self._stopping = asyncio.Event()
        self.on_closed: Callable[[], None] = lambda: None
        """Called when a record is no longer open."""

    # --- what happens to a record ---

    def take(self, records: Sequence[UserRecord], metrics: ShardMetrics, lost_seconds: float = 0.0) -> list[UserRecord]:
        """Keep received records as open, without their data. Return the records that the sink must get.

        `lost_seconds`: the time (seconds) in which this process was suspended during the receive. It is deducted from the visibility
        timeout, because the suspension may have come after the response.

        Raises: PluginError if two different records have the same sequence number and sub-sequence number.
        """
        visible_at = self._clock.boottime() + self._visibility - lost_seconds
        passed_on: dict[tuple[str, int], UserRecord] = {}
        newest = {record.sequence_number: record for record in records}
        is_passed_on = {number: self._take(record, metrics, visible_at) for number, record in newest.items()}
        for record in records:
            if is_passed_on[record.sequence_number]:
                key = record.sequence_number, record.sub_sequence_number
                if passed_on.setdefault(key, record).data != record.data:
                    raise PluginError(
                        f"{type(self._source).__name__}.receive returned different records with the sequence_number {key[0]} and the "
                        f"sub_sequence_number {key[1]}. If they are parts of one record, number them: sub_sequence_number=0, 1 and so on"
                    )
                passed_on[key] = record  # Passed on only once, even if it was received twice.
        for number, parts in Counter(number for number, _ in passed_on).items():
            self._open[number].parts = parts
        return list(passed_on.values())

    def _take(self, record: UserRecord, metrics: ShardMetrics, visible_at: float) -> bool:
        number = record.sequence_number
        kept = msgspec.structs.replace(record, data=b"")
        is_handled, is_acknowledged = number in self._handled, number in self._acknowledged
        if (delivery := self._open.get(number)) is not None:
            delivery.record, delivery.visible_at = kept, visible_at
        metrics.add("duplicates", delivery is not None or is_handled or is_acknowledged)
        if delivery is not None:
            return False
        delivery = Delivery(kept, metrics, 1, visible_at)
        if is_handled or (is_acknowledged and self._drops_duplicates):
            self._done[number] = delivery
            self._wake.set()
            return False
        self._open[number] = delivery
        metrics.add("unacknowledged")
        return True

    def finish(self, numbers: Iterable[str]) -> None:
        """Count parts of records as finished: they are stored, or will never be stored.

        `numbers`: the sequence number of the record, once for each part.
        """
        for number in numbers:
            delivery = self._open.get(number)
            if delivery is None:
                continue
            delivery.parts -= 1
            if delivery.parts:
                continue
            self._close(number)
            if delivery.is_given_up:
                self._given_up.append(delivery)
            else:
                self._done[number] = delivery
                # Remembered before the call that acknowledges it, because the record may be received again during that call.
                self._remember(number, is_acknowledged=False)
            self._wake.set()

    def expect_reports(self, numbers: Iterable[str]) -> None:
        """Note that a sink gets these parts, and will report each one when it is finished, even after the end of the run."""
        for number in numbers:
            if (delivery := self._open.get(number)) is not None:
                delivery.with_sink += 1

    def cancel_reports(self, numbers: Iterable[str]) -> None:
        """Note that the write of the records with these numbers has failed, so the sink will not report them."""
        for number in numbers:
            if (delivery := self._open.get(number)) is not None:
                delivery.with_sink = max(0, delivery.with_sink - 1)

    def on_report(self, number: str) -> None:
        """Count one part of the record with this sequence number as finished, because the sink has reported it."""
        if (delivery := self._open.get(number)) is not None:
            delivery.with_sink = max(0, delivery.with_sink - 1)
            self.finish((number,))

    def expect_no_more_reports(self) -> int:
        """Expect no more reports. Called after the last flush of the sink, which has dropped the parts that are still open.

        Return the number of records of which the sink has not reported every part.
        """
        unreported = [delivery for delivery in self._open.values() if delivery.with_sink]
        for delivery in unreported:
            delivery.with_sink = 0
        return len(unreported)

    def give_up(self, numbers: Sequence[str]) -> None:
        """Note that this process will not handle these parts of records.

        When all other parts of such a record are finished, it is released, so that another process can receive it.
        """
        for number in numbers:
            if (delivery := self._open.get(number)) is not None:
                delivery.is_given_up = True
        self.finish(numbers)

    def are_held(self, numbers: Iterable[str]) -> bool:
        """Return whether all of these records are still hidden from other processes.

        After a suspension of this process, another one may have received them.
        """
        now = self._clock.boottime()
        found = map(self._open.get, numbers)
        return all(delivery is not None and now < delivery.visible_at for delivery in found)

    def oldest_arrivals(self) -> dict[int, float]:
        """Return when the oldest open record of each receiver arrived (epoch seconds), by the `id()` of the receiver's metrics."""
        oldest: dict[int, float] = {}
        for each in self._open.values():
            key = id(each.metrics)
            oldest[key] = min(each.record.arrival, oldest.get(key, inf))
        return oldest

    def _close(self, number: str) -> Delivery:
        delivery = self._open.pop(number)
        delivery.metrics.add("unacknowledged", -1)
        self.on_closed()
        return delivery

    def _remember(self, number: str, *, is_acknowledged: bool) -> None:
        self._handled.pop(number, None)
        self._acknowledged.pop(number, None)
        remembered, most = (self._acknowledged, MAX_REMEMBERED) if is_acknowledged else (self._handled, MOST_HANDLED)
        remembered[number] = None
        if len(remembered) > most:
            del remembered[next(iter(remembered))]

    # --- calls ---

    @asynccontextmanager
    async def settling(self, start_task: StartTask) -> AsyncIterator[None]:
        """Return a context manager. While its block runs, finished records are acknowledged and open ones prolonged.

        When the block ends, the last finished records are acknowledged, and open ones are released.

        Raises: an error of `acknowledge` or `prolong` that ends the job.
        """
        self._stopping.clear()
        tasks = [start_task(self._settle()), start_task(self._prolong())]
        try:
            yield
        finally:
            self._stopping.set()
            self._wake.set()
            try:
                await asyncio.gather(*tasks, return_exceptions=True)
            finally:  # Also if this task is cancelled. A record that stayed open would not be given to the sink in the next run.
                await self._release_left()
        for task in tasks:
            task.result()

    async def _release_left(self) -> None:
        """Release the records that are open or given up. They are then no longer open, except those that a sink reports later."""
        left = [*self._given_up, *self._open.values()]
        self._given_up.clear()
        for number, delivery in list(self._open.items()):
            if not delivery.with_sink:
                self._close(number)
                continue
            # The sink has parts of this record, and reports them later. Until then the record stays open, so that it is not given to
            # the sink again if it is received again.
            delivery.is_given_up |= delivery.with_sink < delivery.parts
            delivery.parts, delivery.visible_at = delivery.with_sink, inf
        try:
            await self._call("release", left)
        except RecordPublisherError as error:
            log.warning(
                "%s could not be released, and can be received again only after the visibility timeout: %s",
                counted(len(left), "record"),
                error,
            )

    async def _settle(self) -> None:
        """Acknowledge finished records, and release records that were given up. Return when the run has stopped and none is left."""
        while self._done or self._given_up or not self._stopping.is_set():
            await self._wake.wait()
            if not self._stopping.is_set():
                await asyncio.sleep(LINGER_SECONDS)
                self._wake.clear()
            done, self._done = self._done, {}
            given_up, self._given_up = self._given_up, []
            succeeded, _ = await asyncio.gather(
                self._call("acknowledge", list(done.values())), self._call("release", given_up)
            )
            for delivery in succeeded:
                self._remember(delivery.number, is_acknowledged=True)

    async def _prolong(self) -> None:
        """Prolong the open records that have less than half of their visibility time left. Return when the run has stopped."""
        while not self._stopping.is_set():
            try:
                async with asyncio.timeout(self._visibility / 8):
                    await self._stopping.wait()
            except TimeoutError:
                now = self._clock.boottime()
                short = [each for each in self._open.values() if each.visible_at - now < self._visibility / 2]
                for delivery in await self._call("prolong", short):
                    delivery.visible_at = max(delivery.visible_at, now + self._visibility)

    async def _call(self, name: str, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """Call the source's method `name` (acknowledge, prolong or release) for these records. Return those for which it succeeded.

        The others are counted as failed. Raises: a RecordPublisherError that is not one of `TOLERATED_ERRORS`.
        """
        if not deliveries:
            return []
        try:
            # After this time the call is useless, because the records are visible again. A `prolong` that hangs leaves time for another
            # one.
            async with asyncio.timeout(self._visibility / (4 if name == "prolong" else 1)):
                # Watched, so that a forgotten `await` ends the job. A call that hangs ends before it would be logged, by the time-out.
                with PluginCall(self._source, name, note="", slow_after=2 * self._visibility):
                    failed = await getattr(self._source, name)([each.record for each in deliveries])
                failed = self._checked_numbers(name, failed)
        except Exception as error:
            if isinstance(error, RecordPublisherError) and not isinstance(error, TOLERATED_ERRORS):
                raise
            reason = describe_error(error)
            raised = error if is_raised_in_user_code(error) else cause_in_user_code(error)
            call = f"`{type(self._source).__name__}.{name}`" + (f" at {raised_line(raised)}" if raised else "")
            text = "cannot %s %s, so the source delivers them again: %s failed: %s"
            log.warning(text, name, counted(len(deliveries), "record"), call, reason)
            failed = {each.number for each in deliveries}
        for delivery in deliveries:
            delivery.metrics.add("failed_acknowledgements", delivery.number in failed)
        return [each for each in deliveries if each.number not in failed]

    def _checked_numbers(self, name: str, failed: Any) -> Collection[str]:
        found = () if failed is None else failed
        is_text = isinstance(found, (str, bytes))
        if is_text or not isinstance(found, Collection) or not all(isinstance(each, str) for each in found):
            raise PluginError(
                f"`{type(self._source).__name__}.{name}` returned {repr_of(failed)}: return the sequence numbers of the records "
                "for which it failed, or None"
            )
        return found


class Delivery(msgspec.Struct, eq=False):
    """A received record with its newest receipt.

    - `parts`: how many of its sub-records are not finished.
    - `visible_at`: the time from which other processes may receive the record (seconds, `Clock.boottime`).
    """

    record: UserRecord
    metrics: ShardMetrics
    parts: int
    visible_at: float
    is_given_up: bool = False
    """Whether this process will not handle a part of the record. When no part is open any longer, the record is then released instead of
    acknowledged.
    """
    with_sink: int = 0
    """Number of parts that a sink has and will report when they are finished."""

    @property
    def number(self) -> str:
        """The sequence number of the record."""
        return self.record.sequence_number
