"""Handles the records of a `MapSink`: takes them in order, calls the handler, and decides what happens to each of them."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from math import inf
from typing import Any, TypeVar

from recordpublisher.fetcher.metric_types import MetricType
from recordpublisher.fetcher.sink import RecordsCall, SinkContext, State, Unfinished
from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import ConfigurationError, InvalidRecordError, SinkError
from recordpublisher.publishers.histogram import Histogram
from recordpublisher.publishers.properties.config_fields import of_property
from recordpublisher.publishers.properties.job_properties import MAP_ON_FAILURE, OnBadRecord
from recordpublisher.publishers.properties.sink_properties import (
    MAP_BATCH_SIZE,
    MAP_BATCH_WAIT,
    MAP_CONCURRENCY,
    MAP_MAX_AGE,
    MAP_MAX_BYTES,
    MAP_ORDERING,
    MAP_RETRIES,
    MAP_RETRY_FOR,
    MAP_TIMEOUT,
)
from recordpublisher.publishers.retry import LONGEST_ASKED_PAUSE, RetryPolicy, asked_pause, suspended_seconds
from recordpublisher.publishers.safe_text import counted, repr_of
from recordpublisher.publishers.skipped_records_log import SkippedRecordsLog
from recordpublisher.publishers.user_code import describe_error, end_or_leave, log_user_error

from .handled_positions import HandledPositions
from .handler import Handler, StreamHandlers, is_current_task_cancelled
from .key_order import Ordering, ReadyRecords, UnhandledBatch, UnhandledRecord

E = TypeVar("E", bound=Enum)

log = logging.getLogger("recordpublisher.plugins.sinks.map")
WARN_SECONDS = 60.0
"""A call that runs this long is named in the log, and again after each further minute."""
CLOSE_SECONDS = 10.0
"""How long handlers may clean up after they were cancelled."""
MEASURED_EVERY = 16
"""The delay of each sixteenth record of a batch is measured. To measure each would cost a tenth of a handler that does nothing."""
_PERMISSION_SECONDS = 0.1
"""Pause between two checks whether the job may write (seconds)."""
_TURN_SECONDS, _CHECK_EVERY = 0.005, 16
"""A task whose handlers never wait lets the event loop run after this time (seconds). It looks at the clock after this many records."""
_RETRY_BASE_MS, _RETRY_MAX_MS, _RETRY_EXPONENT = 200, 10_000, 2.0
"""The pause before a retry: from 200 ms to 10 s, with full jitter."""
_MILLISECOND = 0.001
_SPARE_SECONDS = 1.0
"""`_fail` decides later than `_are_called_again`, by less than this (seconds)."""


class RecordHandling:
    """Handles records, up to `concurrency` at a time.

    A record takes five steps:

    1. `add` queues the record. `ReadyRecords` decides when it is ready, so that no other record must be handled before.
    2. A task takes the record, alone or in a list (`_work`, `_may_take`).
    3. The task calls the handler (`_handle_record`, `_handle_list`, `_call`).
    4. The outcome is decided: handled, too old, handled again, left to the next reader, skipped, rejected, or the end of the job
       (`_succeed`, `_expire`, `_fail`).
    5. The record is finished (`_finish`): the position of its shard may move past it, and the next record of its key becomes ready.

    The sink waits with `wait_for_room`, `wait_until_handled` and `report`. These also report rejected records, and the error that ends the
    job.
    """

    def __init__(
        self, handler: Handler | StreamHandlers, settings: MapSettings, positions: HandledPositions, clock: Clock
    ) -> None:
        self._handler = handler
        self._settings = settings
        self._positions = positions
        self._clock = clock
        self._context = SinkContext()
        counted = (name for name, (kind, *_) in MAP_SINK_METRICS.items() if kind is not MetricType.HISTOGRAM)
        self._counts = dict.fromkeys(counted, 0)
        self._durations, self._delays = Histogram(), Histogram()
        self._ready = ReadyRecords(settings.ordering)
        self._changed = asyncio.Event()
        """Set when a waiting call of the sink must check its condition again."""
        # Step 2: the tasks, and when they may take records
        self._tasks: set[asyncio.Task[None]] = set()
        self._idle: list[asyncio.Future[None]] = []
        self._is_stopped = False
        self._wakes_next = False
        self._is_draining = False
        self._list_wait_is_over = False
        self._list_timer: asyncio.TimerHandle | None = None
        self._permission_timer: asyncio.TimerHandle | None = None
        # Step 3: the calls that run, by their first record, and when they began; the oldest is the first
        self._call_handler: RecordsCall = handler.call
        self._calls: dict[UnhandledRecord, float] = {}
        self._warning_timer: asyncio.TimerHandle | None = None
        # Step 4: what was decided
        self._retry_policy = RetryPolicy(settings.retries, _RETRY_BASE_MS, _RETRY_MAX_MS, _RETRY_EXPONENT)
        self._retry_timers: dict[asyncio.TimerHandle, Sequence[UnhandledRecord]] = {}
        """The timer of each retry, with the records of one key that wait for it."""
        self._rejected: deque[tuple[UnhandledRecord, str]] = deque()
        self._error: BaseException | None = None
        self._failed: list[Sequence[UnhandledRecord]] = []
        """Records that have failed the job, each with the records of its list that must be handled after it."""
        self._leaves_failed = False
        """Whether an error has ended the job. From then on, records that fail are left to the next start."""
        self._skipped_log = SkippedRecordsLog(log)
        self._retried_log = SkippedRecordsLog(log)
        self._divided_log = SkippedRecordsLog(log)

    def open(self, context: SinkContext) -> None:
        """Connect to a job: its permission to write, its tracing and its dead letters."""
        self._context = context
        self._call_handler = context.traced(self._handler.call)

    async def close(self) -> None:
        """Cancel the handlers that run, and forget all records. The sink does not wait for a handler that swallows its cancellation."""
        for timer in (*self._retry_timers, self._warning_timer):
            if timer is not None:
                timer.cancel()
        self._handler.close()
        await self._close_tasks()
        if self._permission_timer is not None:
            self._permission_timer.cancel()
        self._reset_list_wait()
        self._ready.clear()

    # --- Step 1: records come in ---

    def has_room(self) -> bool:
        """Return whether `write` would return or raise at once: fewer than `max_bytes` are held, or there is an error to raise."""
        return self._is_below_limit() or self._error is not None

    def add(self, batch: UnhandledBatch) -> None:
        """Queue the records of a batch."""
        self._counts["outstanding"] += batch.remaining
        self._counts["heldBytes"] += batch.held_bytes
        self._ready.add(batch)
        self._wake()

    def finish_dropped(self) -> None:
        """Finish the waiting records that were dropped, because the next reader of their shard handles them."""
        for item in self._ready.remove_dropped():
            self._leave(item)
        self._end_pauses(lambda item: item.is_dropped)
        self._wake()

    def learn_parents(self, state: State) -> None:
        """Learn the parents of each shard from the state of a checkpoint."""
        self._ready.learn_parents(state)

    # --- Step 2: tasks take records ---

    def _wake(self) -> None:
        """Wake or start one more task, if there is a record to handle. There is a task for each waiting handler, not for each record."""
        self._wakes_next = False
        if self._is_stopped or not self._may_take():
            return
        while self._idle:
            idle = self._idle.pop()
            if not idle.done():  # it is done if its task was cancelled
                idle.set_result(None)
                return
        if len(self._tasks) < self._settings.concurrency:
            task = asyncio.get_running_loop().create_task(self._work())
            self._tasks.add(task)
            task.add_done_callback(self._on_task_ended)

    async def _work(self) -> None:
        """Handle record after record, as long as the handlers finish without a wait."""
        handle_next = self._handle_record if self._settings.batch_size == 1 else self._handle_list
        loop = asyncio.get_running_loop()
        turn_began, handled = loop.time(), 0
        while not self._is_stopped:
            while not self._may_take():
                idle = loop.create_future()
                self._idle.append(idle)
                await idle
                turn_began = loop.time()
            if not self._wakes_next:
                # The callback runs when this handler waits, so that another task takes the next record. One callback is enough for
                # all handlers that finish before the event loop runs.
                self._wakes_next = True
                loop.call_soon(self._wake)
            await handle_next()
            if is_current_task_cancelled(loop):
                return  # A handler cancelled its own task. `_on_task_ended` starts another one.
            handled += 1
            if not handled % _CHECK_EVERY and loop.time() - turn_began > _TURN_SECONDS:
                await asyncio.sleep(0)
                turn_began = loop.time()

    def _may_take(self) -> bool:
        """Return whether a task may take records now. If it may do so later, a timer wakes a task."""
        settings = self._settings
        if not self._ready.queue:
            return False
        may_wait = settings.batch_wait and not self._is_draining and not self._list_wait_is_over
        # Without room no more records will come, so an incomplete list is taken at once.
        if may_wait and self._is_below_limit() and not self._ready.has(settings.batch_size):
            if self._list_timer is None:
                self._list_timer = asyncio.get_running_loop().call_later(settings.batch_wait, self._end_list_wait)
            return False
        if self._context.may_write():
            return True
        # Another process may own the shards by now (E4). The job does not say when it may write again, so it is asked again.
        if self._permission_timer is None:
            self._permission_timer = asyncio.get_running_loop().call_later(_PERMISSION_SECONDS, self._ask_again)
        return False

    def _ask_again(self) -> None:
        self._permission_timer = None
        self._wake()

    def _end_list_wait(self) -> None:
        self._list_timer = None
        self._list_wait_is_over = True
        self._wake()

    def _reset_list_wait(self) -> None:
        self._list_wait_is_over = False
        if self._list_timer is not None:
            self._list_timer.cancel()
            self._list_timer = None

    def _on_task_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self.fail(error)
        self._wake()

    async def _close_tasks(self) -> None:
        self._is_stopped = True
        for task in (tasks := list(self._tasks)):
            task.cancel()
        if not tasks:
            return
        if running := await end_or_leave(tasks, CLOSE_SECONDS):
            log.error(
                "%s did not end within %g s after a cancellation; the sink closes without them",
                counted(len(running), "handler"),
                CLOSE_SECONDS,
            )

    # --- Step 3: the handler is called ---

    async def _handle_record(self) -> None:
        item = self._ready.queue.popleft()
        item.batch.begin(item.index)
        if self._is_too_old(item):
            self._expire(item)
        else:
            try:
                await self._call(item, item.record)
            except Exception as error:
                self._fail([item], error)
                return
            self._succeed(item)
        self._ready.finish(item.key_queue)

    async def _handle_list(self) -> None:
        """Handle the next list of records. Each record has its own outcome."""
        taken = self._ready.take(self._settings.batch_size)
        self._reset_list_wait()
        for item in taken:
            item.batch.begin(item.index)
        has_max_age = self._settings.max_age is not None  # checked once for the list, not for each record
        old = {id(item) for item in taken if has_max_age and self._is_too_old(item)}
        errors: dict[int, Exception] = {}
        for items in self._handler.lists_of([item for item in taken if id(item) not in old]):
            await self._call_with_list(await self._wait_for_permission(items), errors)
        for group in _by_key(taken):
            self._decide_group(group, old, errors)

    async def _call_with_list(self, items: list[UnhandledRecord], errors: dict[int, Exception]) -> None:
        """Call the handler with a list. If it raises, call it with each half, until the record that fails is alone.

        `errors` receives the error of each failed record, by the `id` of its item.
        """
        if not items:
            return
        try:
            returned = await self._call(items[0], [item.record for item in items])
            for item in _failed_items(items, returned):
                errors[id(item)] = SinkError("the handler returned it as failed")
        except Exception as error:
            if len(items) == 1 or (asked_pause(error) and self._are_called_again(items)):
                # A service that asks to wait would refuse the halves too, and they come after the pause, as all of their keys do. But the
                # last attempt finds out which records fail, because no good record may be skipped with them.
                errors.update({id(item): error for item in items})
                return
            of_list = error
        else:
            return
        # Not in the `except` block: there the error of each half would have the error of the whole list as its context.
        middle = len(items) // 2
        await self._call_with_list(await self._wait_for_permission(items[:middle]), errors)
        # Records after a failed record of their key are left out, because they must be handled after the failed one.
        failed = {id(item.key_queue) for item in items[:middle] if id(item) in errors and item.key_queue is not None}
        others = [item for item in items[middle:] if id(item.key_queue) not in failed]
        await self._call_with_list(await self._wait_for_permission(others), errors)
        are_handled = errors.keys().isdisjoint(map(id, items))
        if are_handled and not any(item.batch.progress.is_revoked for item in items):
            # No record has an error of its own, so this one is logged here, or a handler that fails for each long list would only be slow.
            first, reason = items[0], f"{describe_error(of_list)}. Each half was handled, by a call of its own"
            what = f"{len(items)} records that begin with {first}"
            shard, number = first.batch.records.shard.key, first.record.sequence_number
            self._divided_log.skipped(what, reason, of_list, shard, number, how="the handler failed for a list of")

    def _are_called_again(self, items: Sequence[UnhandledRecord]) -> bool:
        """Return whether each record will be handled again if it fails now. Return False already a second before `retry_for` is over."""
        end = self._clock.monotonic() + _SPARE_SECONDS
        may_fail = (item for item in items if item.attempts >= self._settings.retries)
        return all(end - (item.failing_since if item.attempts else end) < self._settings.retry_for for item in may_fail)

    async def _wait_for_permission(self, items: Sequence[UnhandledRecord]) -> list[UnhandledRecord]:
        """Wait until the job may write. Return the items whose shards this process still reads."""
        while True:
            left = [item for item in items if not item.batch.progress.is_revoked]
            if not left or self._context.may_write():
                return left
            await asyncio.sleep(_PERMISSION_SECONDS)

    async def _call(self, first: UnhandledRecord, records: Any) -> Any:
        """Call the handler with a record, or with a list that begins with the record `first`."""
        self._calls[first] = self._clock.monotonic()
        if self._warning_timer is None:
            self._warn_in(WARN_SECONDS)
        has_ended = True
        try:
            return await self._call_handler(records)
        except TimeoutError:
            self._counts["timeouts"] += 1
            raise
        except asyncio.CancelledError:
            # A call in a thread continues after the sink was closed.
            has_ended = not (self._is_stopped and self._handler.runs_in_threads(first.record.stream))
            raise
        finally:
            if has_ended:
                self._durations.add((self._clock.monotonic() - self._calls.pop(first)) * 1000)

    def _is_too_old(self, item: UnhandledRecord) -> bool:
        max_age = self._settings.max_age
        return max_age is not None and self._clock.now_ms() - item.record.arrival_millis > max_age * 1000

    def _warn_in(self, seconds: float) -> None:
        self._warning_timer = asyncio.get_running_loop().call_later(seconds, self._warn_of_oldest)

    def _warn_of_oldest(self) -> None:
        self._warning_timer = None
        if not self._calls:
            return
        left = WARN_SECONDS - (self._clock.monotonic() - next(iter(self._calls.values())))
        if left >= _MILLISECOND:  # A smaller difference comes from the rounding of the clock.
            self._warn_in(left)
            return
        log.warning(
            "%s. The position of the shard stays before this record until the call ends (handler calls that run: %d)",
            self._oldest()[0],
            len(self._calls),
        )
        self._warn_in(WARN_SECONDS)

    def _oldest(self) -> tuple[str, object]:
        """Return a sentence about the call that has run longest, and a value that identifies this call; ("", None) if none runs."""
        for item, began in self._calls.items():
            name, seconds = self._handler.name_of(item.record.stream), self._clock.monotonic() - began
            return f"the handler {name} has run for {seconds:.0f} s with {item}", (item, began)
        return "", None

    # --- Step 4: the outcome is decided ---

    def _succeed(self, item: UnhandledRecord) -> None:
        self._counts["handled"] += 1
        if item.index % MEASURED_EVERY == 0:
            delay_ms = self._clock.now_ms() - item.record.arrival_millis
            self._delays.add_many(delay_ms, min(MEASURED_EVERY, len(item.batch.records) - item.index))
        self._finish(item)

    def _expire(self, item: UnhandledRecord) -> None:
        self._counts["expired"] += 1
        self._skip_or_reject(item, f"older than max_age ({self._settings.max_age:g} s)")

    def _decide_group(self, group: Sequence[UnhandledRecord], old: set[int], errors: dict[int, Exception]) -> None:
        """Decide the outcome of the records of one key in a list.

        - `old`, `errors`: the records that are too old, and the errors of those that failed, both by the `id` of the item.
        """
        for index, item in enumerate(group):
            if id(item) in old:
                self._expire(item)
            elif id(item) in errors:
                # All records of the key after the failed one are handled again, even those that were handled, to keep their order.
                self._fail(group[index:], errors[id(item)])
                return
            else:
                self._succeed(item)
        self._ready.finish(group[0].key_queue)

    def _fail(self, items: Sequence[UnhandledRecord], error: Exception) -> None:
        """Decide what happens to records of one key whose first record has failed. The other records must wait for the first."""
        item = items[0]
        item.attempts += 1
        now = self._clock.monotonic()
        if item.attempts == 1:
            item.failing_since = now
        failing_for = now - item.failing_since
        # Not `isinstance`, because that may read `__class__` of the user's error, which may raise another error.
        is_final = issubclass(type(error), InvalidRecordError)
        if item.is_dropped:
            # The failed record was dropped while the handler ran. Other records of its key may be of shards that are still read here.
            self._handle_again(items)
        elif not is_final and (item.attempts <= self._settings.retries or failing_for < self._settings.retry_for):
            if self._positions.drop_failed(item, now):
                # The shard's next reader waits for this record, so the remaining retries are left to that reader.
                self.finish_dropped()
                self._log_retry(item, error, "left to the next reader:")
                self._handle_again(items)
            else:
                self._counts["retries"] += 1
                self._log_retry(item, error, "handled again:")
                # The last retry is made when the time is over, and not after the longest pause.
                limits = [self._positions.seconds_until_dropped(item, now)]
                if item.attempts > self._settings.retries:
                    limits.append(self._settings.retry_for - failing_for)
                # A long pause would hold back a released shard, and the stop of the job.
                asked = 0.0 if item.batch.progress.released_at is not None and limits[0] <= 0 else asked_pause(error)
                asked = min(asked, LONGEST_ASKED_PAUSE)
                wanted = max(self._retry_policy.delay_seconds(item.attempts - 1), asked)
                pauses = wanted, *(each for each in limits if each > 0)
                # A shorter pause would only be a rounding error of the limit, and the next attempt would come before the limit again.
                self._handle_later(items, max(min(pauses), _MILLISECOND))
        elif self._settings.on_failure is OnBadRecord.FAIL:
            self._failed.append(items)
            if self._leaves_failed:
                self._log_retry(item, error, "left to the next start:")
                self.leave_failed()
            else:
                self._fail_job(item, error)
        else:
            self._skip_or_reject(item, f"{counted(item.attempts, 'attempt')}: {describe_error(error)}", error)
            if len(items) > 1:
                self._handle_again(items[1:])
            else:
                self._ready.finish(item.key_queue)
                self._wake()

    def _handle_again(self, items: Sequence[UnhandledRecord]) -> None:
        """Make records of one key ready again. Dropped records are finished instead, because their shard's next reader handles them."""
        kept = [item for item in items if not item.is_dropped]
        for item in items:
            if item.is_dropped:
                self._leave(item)
        if kept:
            self._ready.put_back(kept)
        else:
            self._ready.finish(items[0].key_queue)
        self._wake()

    def _handle_later(self, items: Sequence[UnhandledRecord], seconds: float) -> None:
        due = self._clock.monotonic() + seconds

        def handle_again() -> None:
            del self._retry_timers[timer]
            items[0].failing_since += suspended_seconds(self._clock.monotonic() - due)
            self._handle_again(items)

        timer = asyncio.get_running_loop().call_later(seconds, handle_again)
        self._retry_timers[timer] = items

    def retry_released(self, now: float) -> None:
        """Retry at once the waiting records whose shard was released at the time `now` (seconds of the monotonic clock).

        Their pause may be longer than the time for which a failed record of a released shard is handled here.
        """
        self._end_pauses(lambda item: item.batch.progress.released_at == now)

    def _end_pauses(self, is_over: Callable[[UnhandledRecord], bool]) -> None:
        for timer in [timer for timer, items in self._retry_timers.items() if is_over(items[0])]:
            timer.cancel()
            self._handle_again(self._retry_timers.pop(timer))

    def _skip_or_reject(self, item: UnhandledRecord, reason: str, error: Exception | None = None) -> None:
        is_rejected = self._settings.on_failure is OnBadRecord.DEAD_LETTER
        key, sequence_number = item.batch.records.shard.key, item.record.sequence_number
        how = "rejected" if is_rejected else "skipped"
        traced = None if error is None or describe_error(error) == item.told else error
        kind = type(
            error
        ).__name__  # also of an error that was logged before, so that its traceback is not logged again
        self._skipped_log.skipped(str(item), reason, traced, key, sequence_number, how=how, kind=kind)
        if is_rejected:
            # The position moves past the record only when the job has stored the dead letter (`_pass_on_results`).
            self._rejected.append((item, reason))
            self._on_changed(needs_sink_call=True)
        else:
            self._counts["skipped"] += 1
            self._context.count(key, "skipped_records")
            self._finish(item)

    def _fail_job(self, item: UnhandledRecord, error: Exception) -> None:
        reason = describe_error(error)
        message = f"{item} cannot be handled: {reason}"
        key, is_told = item.batch.records.shard.key, reason == item.told
        log_user_error(log, error, message, key, item.record.sequence_number, is_told=is_told)
        is_final = issubclass(type(error), InvalidRecordError)
        longer = "retry_for handles it again for longer (in a file flink.sink.map.retry.for); "
        remedy = ("" if is_final else longer) + (
            "on_failure=SKIP or DEAD_LETTER continues without it (in a file flink.sink.map.on.failure)"
        )
        attempts = counted(item.attempts, "attempt")
        self.fail(SinkError(f"{item} cannot be handled after {attempts}: {reason}; {remedy}"), error)

    def continue_after_error(self) -> None:
        """Let tasks finish the records that handlers have begun, although an error ends the job.

        A record that fails from now on is left to the next start.
        """
        self._error, self._is_stopped, self._leaves_failed = None, False, True
        self._wake()

    def leave_failed(self) -> None:
        """Leave the records that have failed the job, and all records after them, to the next start. Done only for released shards."""
        failed, self._failed = self._failed, []
        for items in failed:
            if self._positions.drop_failed(items[0], inf):
                self.finish_dropped()
                self._handle_again(items)
            else:
                self._failed.append(items)

    def _leave_rejected(self, items: Sequence[UnhandledRecord], error: Exception) -> bool:
        """Leave the oldest rejected records to the next start, because their dead letters could not be stored.

        Return False if they cannot be left: no error has ended the job yet, or their shards are not released.
        """
        if not (self._leaves_failed and all(self._positions.drop_failed(item, inf) for item in items)):
            return False
        words = "%s could not be stored as dead letters, so the next start handles them again: %s"
        log.warning(words, counted(len(items), "record"), describe_error(error))
        self.finish_dropped()
        for item in items:
            self._rejected.popleft()
            self._leave(item)
        return True

    def fail(self, error: BaseException, cause: BaseException | None = None) -> None:
        """End the job with this error at the next call of the sink. Later errors are ignored."""
        if self._error is None:
            error.__cause__ = cause
            self._error = error
            self._on_changed(needs_sink_call=True)

    def _log_retry(self, item: UnhandledRecord, error: Exception, how: str) -> None:
        # The traceback is logged at the first attempt. It is logged at the last attempt too if the first line was skipped (too many
        # lines), or if the last error is a different one.
        key, reason = item.batch.records.shard.key, describe_error(error)
        first, attempt = error if item.attempts == 1 else None, f"attempt {item.attempts}: {reason}"
        number, kind = item.record.sequence_number, type(error).__name__
        is_logged = self._retried_log.skipped(str(item), attempt, first, key, number, how=how, kind=kind)
        if is_logged and first is not None:
            item.told = reason

    # --- Step 5: the record is finished ---

    def _leave(self, item: UnhandledRecord) -> None:
        """Count a record as left to the next reader of its shard, and finish it here."""
        self._counts["left"] += 1
        item.batch.progress.leave(item.record)
        self._finish(item)

    def _finish(self, item: UnhandledRecord) -> None:
        """Count a record as handled or dropped. `ReadyRecords.finish` makes the next record of its key ready."""
        batch = item.batch
        self._counts["outstanding"] -= 1
        batch.finish(item.index)
        if self._context.done is not None and not item.is_dropped:
            self._context.done(batch.records.shard.key, item.record.sequence_number)
        if not batch.remaining:
            self._counts["heldBytes"] -= batch.held_bytes
            batch.progress.advance()
            self._on_changed(needs_sink_call=False)

    def _on_changed(self, needs_sink_call: bool) -> None:
        """Wake the call of the sink that waits, and notify the job.

        `needs_sink_call`: whether the job must call the sink, which rejects records and raises errors only in its calls.
        """
        self._changed.set()
        if self._error is not None:
            self._is_stopped = True
        if needs_sink_call:
            # The checkpoint calls `flush`, even if the job has nothing to write.
            self._context.request_checkpoint()
        if self.has_room():
            self._context.resume_writing()

    # --- The sink waits ---

    async def wait_for_room(self) -> None:
        """Wait until fewer than `max_bytes` are held. Raises: SinkError if a record has failed the job."""
        await self._wait_until(self._is_below_limit)

    async def wait_until_handled(self) -> None:
        """Wait until every record is finished. Raises: SinkError if a record has failed the job."""
        self._is_draining = True
        self._wake()
        try:
            await self._wait_until(lambda: not self._counts["outstanding"])
        finally:
            self._is_draining = False

    async def report(self, *, is_draining: bool) -> None:
        """Pass rejected records on to the job, without waiting for handlers. Raises: SinkError if a record has failed the job.

        `is_draining`: whether incomplete lists are handled from now on, without waiting for more records.
        """
        self._is_draining = is_draining
        self._wake()
        await self._pass_on_results()

    async def _wait_until(self, is_reached: Callable[[], bool]) -> None:
        while True:
            self._changed.clear()
            await self._pass_on_results()
            if is_reached():
                return
            await self._changed.wait()

    async def _pass_on_results(self) -> None:
        """Pass rejected records on to the job, and finish each when its dead letter is stored. Raise the error that ends the job."""
        while items := list(self._rejected):
            # Records of revoked shards get no dead letter here: the shard's next reader handles them, and rejects them if they fail
            # there.
            left = [item.batch.progress.is_revoked for item, _ in items]
            rejected = [
                (item.as_batch(), reason) for (item, reason), is_left in zip(items, left, strict=True) if not is_left
            ]
            try:
                await self._context.reject_all(rejected, is_logged=True)
            except Exception as error:
                if not self._leave_rejected([item for item, _ in items], error):
                    raise
                continue
            for (item, _), is_left in zip(items, left, strict=True):
                self._rejected.popleft()
                if is_left:
                    self._leave(item)
                else:
                    self._counts["deadLetters"] += 1
                    self._finish(item)
        if self._error is not None:
            raise self._error

    def _is_below_limit(self) -> bool:
        return self._counts["heldBytes"] < self._settings.max_bytes

    # --- What the job can see ---

    def metrics(self) -> dict[str, Any]:
        """Return the value of each metric in `MAP_SINK_METRICS`."""
        return {**self._counts, "handlerDurationMs": self._durations.value(), "handlingDelayMs": self._delays.value()}

    def unfinished(self) -> Unfinished:
        """Return how many records are not handled, and the call that has run longest."""
        sentence, call = self._oldest()
        count, retries = self._counts["outstanding"], len(self._retry_timers)
        waiting = f"waiting for a retry: {retries}" if retries else ""
        elsewhere = len(self._ready.queue) + len(self._calls) + retries + len(self._rejected) + len(self._failed)
        # With lists of records it is not known how many records the calls have.
        others = count - elsewhere if self._settings.batch_size == 1 else 0
        unit = "shard" if self._settings.ordering is Ordering.PER_SHARD else "key"
        behind = f"waiting for an earlier record of their {unit}: {others}" if others > 0 else ""
        reason = ", ".join(filter(None, (f"records not handled: {count}", waiting, behind, sentence)))
        return Unfinished(
            count, reason, call, len(self._calls), self._positions.unhandled(), self._counts["left"], retries
        )


def _by_key(items: Iterable[UnhandledRecord]) -> list[list[UnhandledRecord]]:
    """Return a list of records for each key, in order. A record without a key has a list of its own."""
    groups: dict[int, list[UnhandledRecord]] = {}
    for item in items:
        groups.setdefault(id(item if item.key_queue is None else item.key_queue), []).append(item)
    return list(groups.values())


def _failed_items(items: Sequence[UnhandledRecord], returned: Any) -> list[UnhandledRecord]:
    """Return the items whose records, or their values, the handler has returned as failed.

    Raises: SinkError if the handler has returned anything else.
    """
    if returned is None or (isinstance(returned, int) and not returned):  # a handler may also end with `return False`
        return []
    by_object: dict[int, list[UnhandledRecord]] = {}
    for item in items:
        by_object.setdefault(id(item.record), []).append(item)
        # Several records may have the same value object, such as 0. Then all of them count as failed.
        by_object.setdefault(id(item.record.value), []).append(item)
    try:
        failed = {id(each) for each in islice(returned, len(items) + 1)}  # The iterable may have no end.
        return [item for each in failed for item in by_object[each]]
    except (KeyError, TypeError):
        raise SinkError(
            f"the handler may return failed records of its list, or nothing; it returned {repr_of(returned, 200)}"
        ) from None


MAP_SINK_METRICS = {
    "outstanding": (MetricType.GAUGE, "records", "records written to the sink and not handled yet"),
    "heldBytes": (MetricType.GAUGE, "bytes", "bytes held in memory by the outstanding records"),
    "handled": (MetricType.COUNTER, "records", "records handled"),
    "retries": (MetricType.COUNTER, "records", "records handled again after a failure"),
    "handlerDurationMs": (MetricType.HISTOGRAM, "ms", "durations of the handler's calls, failed ones included"),
    "handlingDelayMs": (
        MetricType.HISTOGRAM,
        "ms",
        "how long after their arrival in the stream records were handled; one of sixteen is measured, and stands for all of them",
    ),
    "timeouts": (MetricType.COUNTER, "calls", "calls of the handler that raised a TimeoutError, as after `timeout`"),
    "expired": (MetricType.COUNTER, "records", "records older than `max_age`, which were skipped or rejected"),
    "left": (
        MetricType.COUNTER,
        "records",
        "records dropped when their shard was released: the next reader handles them",
    ),
    "skipped": (MetricType.COUNTER, "records", "records that could not be handled, and were skipped"),
    "deadLetters": (
        MetricType.COUNTER,
        "records",
        "records that could not be handled, and went to the dead-letter sink",
    ),
}
"""Type, unit and meaning of each metric."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MapSettings:
    """The arguments of `MapSink`, which describes them. Times are in seconds, `max_bytes` is in bytes.

    Raises: ConfigurationError, which names the argument and the valid values, if a value is invalid.
    """

    concurrency: int = of_property(MAP_CONCURRENCY)
    ordering: Ordering = of_property(MAP_ORDERING, kind=Ordering)
    batch_size: int = of_property(MAP_BATCH_SIZE)
    batch_wait: float = of_property(MAP_BATCH_WAIT, 1000)
    retries: int = of_property(MAP_RETRIES)
    retry_for: float = of_property(MAP_RETRY_FOR, 1000)
    timeout: float | None = of_property(MAP_TIMEOUT, 1000)
    max_age: float | None = of_property(MAP_MAX_AGE, 1000)
    on_failure: OnBadRecord = of_property(MAP_ON_FAILURE, kind=OnBadRecord)
    max_bytes: int = of_property(MAP_MAX_BYTES)

    def __post_init__(self) -> None:
        for name, least in (("concurrency", 1), ("batch_size", 1), ("retries", 0), ("max_bytes", 1)):
            value = getattr(self, name)
            if not _is_number(value, int) or value < least:
                raise ConfigurationError(name, value, f"an integer, at least {least}")
        for name in ("timeout", "max_age"):
            value = getattr(self, name)
            if value is not None and (not _is_number(value, int | float) or value <= 0):
                raise ConfigurationError(name, value, "seconds above 0, or None")
        for name in ("batch_wait", "retry_for"):
            value = getattr(self, name)
            if not _is_number(value, int | float) or not 0 <= value < inf:
                raise ConfigurationError(name, value, "seconds, at least 0")


def enum_member(name: str, value: object, kind: type[E]) -> E:
    """Return the member of the enum `kind` that `value` is or names.

    Raises: ConfigurationError, which has the argument's `name` and the valid values, if there is no such member.
    """
    try:
        return value if isinstance(value, kind) else kind(value)
    except ValueError:
        raise ConfigurationError(name, value, ", ".join(each.value for each in kind)) from None


def _is_number(value: object, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)  # True is an int in Python
