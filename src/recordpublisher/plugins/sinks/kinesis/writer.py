"""The core of the sink, independent of jobs: accepts records, and knows when they are acknowledged."""

import asyncio
import contextlib
import logging
from asyncio import get_running_loop
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import SinkError, StreamNotFoundError
from recordpublisher.publishers.kinesis.ports import WritingPort
from recordpublisher.publishers.properties.job_properties import DRAIN_TIMEOUT
from recordpublisher.publishers.properties.retry_properties import MAX_OUTAGE
from recordpublisher.publishers.retry import (
    UNLOGGED_SECONDS,
    RetryListener,
    duration_words,
    retry_listener,
    words_of_rest,
)
from recordpublisher.publishers.service_limits import LARGEST_RECORD_BYTES

from .outstanding_records import NO_LIMIT, FifoWaiters, Notifier, OutstandingRecords
from .pending_records import (
    CLOSED,
    FailedRecord,
    FailedRecords,
    PendingRecord,
    are_obviously_valid,
    is_obviously_valid,
    rejection_reason,
    size_of,
)
from .put_results import NEVER
from .send_permission import SendPermission
from .sending import RecordSending
from .sink_settings import KinesisSinkCounters, KinesisSinkSettings

log = logging.getLogger("recordpublisher.producer")
NOT_OPEN = "is not open: put inside 'async with sink:'"
NO_CAUSE_YET = "it is not open"
"""The reason why nothing is put, as long as no attempt to open the sink has failed."""
OnInvalid = Callable[[int, str], None]
RECORDS_PER_YIELD = 500
"""Number of records accepted before other tasks of the loop may run: about a millisecond."""


class KinesisWriter:
    """Accepts records for one stream. Records that are not acknowledged are bounded in number and bytes.

    `put` and `put_all` check a record, wait for room and count it. `RecordSending` (`sending.py`) brings the record to the stream.

    Everything runs on one event loop; any number of its tasks may call `put` and `flush`.
    """

    def __init__(
        self,
        port: WritingPort,
        stream: str,
        settings: KinesisSinkSettings,
        clock: Clock,
        on_failure: Callable[[FailedRecord], None] | None = None,
    ) -> None:
        self._port = port
        self._stream = stream
        self._clock = clock
        self._fails_on_error = settings.fails_on_error
        self._keeps_key_order = settings.keeps_key_order
        self.counters = self._metrics = KinesisSinkCounters()
        self._outstanding = OutstandingRecords(settings.queue_limit, settings.queue_bytes)
        self._failures = FailedRecords(
            stream,
            settings.fails_on_error,
            on_failure,
            self._metrics,
            settings.retries.decided_by,
            lambda: self._outstanding.records,
        )
        self._sending = RecordSending(
            port, stream, settings, clock, self._outstanding, self._failures, self._metrics, self._wake_waiters
        )
        self._waiters = FifoWaiters(clock, settings.wait_seconds, self._metrics)
        self._completion = Notifier()
        self._limit = self._sending.limit
        self._accepted_since_yield = 0
        self._closed_reason: str | None = NOT_OPEN
        self._is_opening = False
        self._opening_failure = ""
        """The last error of an opening that has failed, or that is retried."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_aborted = False
        self._max_outage_seconds = (settings.retries.max_outage_ms or 0) / 1000
        self._drain_seconds = settings.drain_seconds
        self.take_untold_error = self._failures.take_untold_error
        self._on_room: Callable[[], None] | None = None

    def keep_failed(self, keep: Callable[[PendingRecord, str], None] | None) -> None:
        """Set the function that gets each record that cannot be put, with the reason. None removes the function.

        The function is called only if there is neither `failOnError` nor a callback.
        """
        self._failures.keep_failed(keep)

    @property
    def error(self) -> BaseException | None:
        """The error that ended the writer, if any."""
        return self._failures.error

    @property
    def max_record_bytes(self) -> int:
        """The largest size of data and key together that the stream accepts, as it was read last (bytes)."""
        return self._limit.max_bytes

    @property
    def is_open(self) -> bool:
        """Whether the writer was opened and not closed, or is being opened."""
        return self._is_opening or self._closed_reason is None

    def has_lost_stream(self) -> bool:
        """Return whether the writer has ended because its stream no longer exists. Any thread may call this."""
        return isinstance(self.error, StreamNotFoundError)

    @property
    def refused_since(self) -> float | None:
        """The time since which no put has succeeded (`RecordSending.refused_since`). It does not change during an outage.

        It is None if no call fails and none is open, as between two puts to a stream that takes records slowly.
        """
        since = self._sending.refused_since
        return None if since == NEVER else since

    @property
    def permission(self) -> SendPermission:
        """The object that decides which records may be sent."""
        return self._sending.permission

    async def open(
        self,
        may_write: Callable[[], bool] | None = None,
        on_failed: Callable[[], None] | None = None,
        on_room: Callable[[], None] | None = None,
        *,
        continues: bool = False,
    ) -> None:
        """Read the stream's limits and shards.

        - `may_write`: records are sent only while it returns True.
        - `on_failed` is called once, when an error has ended the writer. The next call raises the error.
        - `on_room` is called when `has_room` may have become True.
        - `continues`: whether the writer continues after it has given up a record.

        Raises: StreamNotFoundError if there is no such stream, and errors that retries cannot fix; SinkError if it is open already.
        """
        if self.is_open:
            raise SinkError(
                f"the Kinesis sink of {self._stream} is open already: a program that puts records, and each DataFetcher, needs a sink of "
                "its own"
            )
        self._loop, self._is_aborted, self._is_opening = get_running_loop(), False, True
        self._failures.begin(on_failed, continues=continues)
        self._on_room = on_room
        self.permission.ask(may_write)
        listener = retry_listener.get()
        retry_listener.set(partial(self._on_opening_failure, listener))
        try:
            if not continues:
                await self._sending.forget_all()
            await self._sending.open()
        except Exception as error:
            self._opening_failure = f"{type(error).__name__}: {error}"
            raise
        finally:
            self._is_opening = False
            retry_listener.set(listener)
        self._closed_reason = None

    def why_not_put(self, min_seconds: float = 0.0) -> str | None:
        """Return in plain words why no record is put now, or None if records are put or none waits. Any thread may call this.

        - `min_seconds`: calls that have failed for a shorter time do not count, unless records are given up sooner.
        """
        if self.error is not None:
            return f"{type(self.error).__name__}: {self.error}"
        if self._closed_reason == NOT_OPEN:
            return f"it is not open: {self._opening_failure}" if self._opening_failure else NO_CAUSE_YET
        if self._closed_reason is not None:
            return f"it {self._closed_reason}"
        return self.why_refused(min(min_seconds, self._max_outage_seconds))

    def why_refused(self, min_seconds: float) -> str | None:
        """Return in plain words for how long and why no put succeeds, or None if that time is not longer than `min_seconds`."""
        failing = self._sending.refused_seconds
        if failing <= min_seconds:
            return None
        return f"puts have failed for {duration_words(failing)}: {self._sending.last_failure or 'no call has returned'}"

    async def put(
        self,
        data: bytes,
        partition_key: str,
        explicit_hash_key: str | None,
        context: object = None,
        *,
        until_acknowledged: bool = False,
    ) -> None:
        """Accept one record, or wait for capacity. If a `put` is cancelled while it waits for capacity, its record was not accepted.

        - `until_acknowledged`: whether to return only when the record is acknowledged.

        Raises: InvalidRecordError if the service would reject the record; SinkError if the sink is closed, if records have failed since
        the last call, or if this call waits for its record and the record was given up.
        """
        size = len(data) + len(partition_key) if partition_key.isascii() else size_of(data, partition_key)
        record = PendingRecord(data, partition_key, explicit_hash_key, size, context=context)
        # 1. Raise the error of an earlier PutRecords call. The attributes are read here, because a call for each record would cost more.
        if self._failures.must_raise or self._closed_reason is not None or get_running_loop() is not self._loop:
            self._raise_if_unusable()
        # 2. Wait for room. A record that may be invalid waits too, because the size limit of the stream is read again before the record
        # is refused.
        is_valid = is_obviously_valid(record, self._limit.max_bytes)
        if self._must_wait(record) or not is_valid:
            await self._wait_for_capacity(record, self._clock.monotonic())
        # 3. Count the record as outstanding, and queue it for its shard. Nothing awaits from here on, so a cancelled `put` accepts nothing.
        if is_valid or not self._reject_invalid(record, is_awaited=until_acknowledged):
            self._accept(record)
            # 4. Wait for the result. A cancelled `put` leaves its record in the queue.
            if until_acknowledged:
                await self._failures.awaited.wait(record)

    async def put_all(self, records: Sequence[PendingRecord], on_invalid: OnInvalid | None = None) -> None:
        """Accept records in order, waiting like `put`. Records accepted before an error or a cancellation stay accepted.

        With `failOnError`, `on_invalid` receives the index of an invalid record and the reason. If it is None, SinkError is raised instead.
        """
        self._raise_if_unusable()
        given_at = self._clock.monotonic()
        for start in range(0, len(records), RECORDS_PER_YIELD):
            part = records[start : start + RECORDS_PER_YIELD]
            # Nearly all parts are valid, and such a part is checked and queued as a whole.
            if are_obviously_valid(part, self._limit.max_bytes):
                await self._put_valid(part, given_at)
                continue
            for index, record in enumerate(part, start):
                await self._put_one(index, record, given_at, on_invalid)

    async def _put_valid(self, records: Sequence[PendingRecord], given_at: float) -> None:
        """Accept records, at each step as many as there is room for."""
        while records:
            if self._must_wait(records[0]):
                await self._wait_for_capacity(records[0], given_at)
            # At least one, because this call has waited for room for the first record.
            count = max(1, self._outstanding.fitting(records))
            accepted, records = records[:count], records[count:]
            self._accepted_since_yield += count
            self._outstanding.add_all(accepted)
            self._sending.enqueue_all(accepted)

    async def _put_one(self, index: int, record: PendingRecord, given_at: float, on_invalid: OnInvalid | None) -> None:
        is_valid = is_obviously_valid(record, self._limit.max_bytes)
        if self._must_wait(record) or not is_valid:
            await self._wait_for_capacity(record, given_at)
        if is_valid:
            self._accept(record)
        elif on_invalid is None or not self._fails_on_error:
            if not self._reject_invalid(record):
                self._accept(record)
        elif (reason := rejection_reason(record, self._limit.max_bytes)) is None:
            self._accept(record)
        else:
            self._metrics.add("numRecordsOutErrors")
            on_invalid(index, reason)

    async def flush(self) -> None:
        """Return when every record accepted before this call is acknowledged or given up.

        Raises: the error that ended the sink; SinkError if records were given up that this flush has waited for.
        """
        known = self._failures.known
        await self.wait_until_flushed(self.begin_flush())
        self._failures.raise_if_failed(known)

    def begin_flush(self) -> int:
        """Send the queued records at once. Return the number of the epoch that ends now, for `wait_until_flushed`.

        An *epoch* has the records that were accepted since the last epoch ended.

        Raises: the error that ended the sink.
        """
        self._raise_if_ended()
        self._refuse_other_loop()
        return self._end_epoch()

    def end_write(self) -> int:
        """Return the number of the epoch that ends now, for `is_flushed`. Unlike `begin_flush`, it sends no queued records."""
        return self._outstanding.end_epoch()

    def outstanding_of(self, epoch: int) -> int:
        """Return how many records of an ended epoch are neither acknowledged nor given up.

        - `epoch`: a result of `begin_flush` or `end_write`.
        """
        return self._outstanding.left_of(epoch)

    def is_flushed(self, epoch: int) -> bool:
        """Return whether every record up to the end of an epoch is acknowledged or given up."""
        return self._outstanding.is_complete(epoch)

    async def wait_until_flushed(self, epoch: int, at_most_seconds: float | None = None) -> None:
        """Return when all records of this and earlier epochs are acknowledged or given up, or after `at_most_seconds`.

        Raises: the error that ended the sink; SinkError if the sink was closed in the meantime without a complete flush.
        """
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(at_most_seconds):
                while not self.is_flushed(epoch):
                    await self._completion.wait()
                    self._failures.raise_if_ended()
                    if self._is_aborted:
                        self._raise_if_ended()
        self._failures.raise_if_ended()

    async def flush_or_give_up(self, *, is_of_job: bool = False) -> None:
        """Flush before the sink is closed. Outside of a job, give up all records if none was acknowledged for `flink.job.drain.timeout`.

        Records that are given up are reported. If the flush waited longer, a supervisor might kill the process before the report. A job
        gives up none, because its next start puts them again.
        """
        epoch, sending = self._end_epoch(), self._sending
        if not self._failures.continues:
            # A job whose puts fail has waited at its end already, and its next start puts the records again. A program has no next start.
            if not is_of_job or sending.refused_seconds < self._drain_seconds:
                await self.wait_until_flushed(epoch)
            return
        waited, taken_at = 0.0, sending.taken_at
        while not self.is_flushed(epoch) and waited < self._drain_seconds:
            pause = min(1.0, self._drain_seconds - waited)
            await self.wait_until_flushed(epoch, pause)
            # The waited slices are summed up, because the clock would also count time in which the process was suspended.
            waited, taken_at = 0.0 if sending.taken_at > taken_at else waited + pause, sending.taken_at
        if not self.is_flushed(epoch):
            reason = f"no record was acknowledged for {duration_words(waited)} ({DRAIN_TIMEOUT.key})"
            failure = f": {sending.last_failure}" if sending.refused_seconds and sending.last_failure else ""
            await sending.give_up_all(CLOSED, reason + failure)

    async def close(self, *, is_of_job: bool = False) -> None:
        """Flush, then release all resources. Later calls do nothing.

        Raises: the sink's error, unless a caller has received it already.
        """
        if self.is_open and self._loop is not None and self._loop.is_running():
            self._refuse_other_loop()
        was_open, self._closed_reason = self._closed_reason is None, self._closed_reason or "is closed"
        if not was_open:
            if self._closed_reason == NOT_OPEN:
                await self._port.close()
            return
        try:
            if self._failures.error is None:
                await self._flush_at_close(is_of_job)
        finally:
            await self.abort()
        if not self._failures.was_raised:
            self._failures.raise_if_failed()

    async def _flush_at_close(self, is_of_job: bool) -> None:
        """Flush. If that takes long, log once what it waits for, so that a server that is stopping is not silent."""
        line = asyncio.get_running_loop().call_later(UNLOGGED_SECONDS, self._log_close)
        try:
            await self.flush_or_give_up(is_of_job=is_of_job)
        finally:
            line.cancel()

    def _log_close(self) -> None:
        failing, most = self._sending.failing_seconds, self._max_outage_seconds
        why = ""
        if failing:
            left, drain = max(0.0, most - self._sending.retried_seconds), self._drain_seconds
            limit = f"the oldest records are retried for {words_of_rest(left)} more ({MAX_OUTAGE.key})"
            if self._failures.continues and drain < left:
                limit = f"the close gives them up after {duration_words(drain)} without success ({DRAIN_TIMEOUT.key})"
            why = f". Calls have failed for {duration_words(failing)}, and {limit}: {self._sending.last_failure}"
        text = (
            "the close of the Kinesis sink of %s waits until %s acknowledged; a kill of the process would lose them%s"
        )
        count = self._outstanding.records
        log.warning(text, self._stream, f"{count:,} records are" if count != 1 else "1 record is", why)

    async def abort(self) -> None:
        """Close without a flush. Records that are not acknowledged may or may not be in the stream."""
        self._closed_reason = "is closed"
        self._is_aborted = True
        await self._sending.close()
        await self._port.close()
        reason = (
            f"the Kinesis sink of {self._stream} was closed before the record was acknowledged; it may be in the stream"
        )
        self._failures.awaited.fail_all(reason)
        self._wake_waiters()

    def has_room(self) -> bool:
        """Return whether a small record would be accepted at once, or refused because the sink has ended."""
        return self._has_ended or (not self._waiters.waiting and self._outstanding.has_capacity(0))

    def metrics(self) -> dict[str, Any]:
        """Return the counters and gauges, with the names of docs/reference/kinesis-sink-metrics.md."""
        statistics = self._outstanding.statistics
        return self._metrics.as_dict(
            outstandingRecordsCount=statistics.outstanding_records,
            outstandingBytes=statistics.outstanding_bytes,
            queueLimit=None if self._outstanding.max_records == NO_LIMIT else self._outstanding.max_records,
            queueLimitBytes=self._outstanding.max_bytes,
            waitingWrites=len(self._waiters),
            openRequests=self._sending.open_requests,
            shards=statistics.shards,
            meanRecordBytes=round(statistics.mean_record_bytes, 1),
            failingMs=round(self._sending.failing_seconds * 1000),
        )

    # --- helpers ------------------------------------------------------------------------------------------------------------------

    def _on_opening_failure(self, listener: RetryListener | None, error: Exception, waited: float, left: float) -> None:
        if self._closed_reason == NOT_OPEN:
            self._opening_failure = str(error)
        if listener is not None:
            listener(error, waited, left)

    def _raise_if_ended(self) -> None:
        if self._closed_reason is not None:
            reason = self._closed_reason
            if reason == NOT_OPEN and self._is_opening:
                reason = "is not open yet" + (f": {self._opening_failure}" if self._opening_failure else "")
            raise SinkError(f"the Kinesis sink of {self._stream} {reason}")
        self._failures.raise_if_ended()

    def _raise_if_unusable(self) -> None:
        self._raise_if_ended()
        self._failures.raise_if_failed()
        self._refuse_other_loop()

    def _refuse_other_loop(self) -> None:
        """Raise SinkError if the running event loop is not the sink's. In another loop the call would wait for ever."""
        if get_running_loop() is not self._loop:
            raise SinkError(
                "a KinesisSink can only be used in the event loop in which it was opened. In other threads put with an rp.Producer, or "
                "with asyncio.run_coroutine_threadsafe(sink.put(...), loop)"
            )

    def _reject_invalid(self, record: PendingRecord, *, is_awaited: bool = False) -> bool:
        """Report an invalid record to the callback, and return whether it was invalid.

        Raises: InvalidRecordError with `failOnError`, or if the call would wait for the record (`is_awaited`).
        """
        reason = rejection_reason(record, self._limit.max_bytes)
        if reason is None:
            return False
        self._metrics.add("numRecordsOutErrors")
        self._failures.reject(record, reason, is_awaited=is_awaited)
        self._failures.raise_if_ended()
        return True

    def _must_wait(self, record: PendingRecord) -> bool:
        is_turn_over = self._accepted_since_yield >= RECORDS_PER_YIELD
        return is_turn_over or bool(self._waiters.waiting) or not self._outstanding.has_capacity(record.size)

    async def _wait_for_capacity(self, record: PendingRecord, given_at: float) -> None:
        """Wait for capacity, for the other tasks of the loop, and for a read of the size limit if the record seems too large.

        - `given_at`: time since which the record waits (seconds of the clock). Only a size limit that was read later can refuse the record.
        """
        may_be_too_large = self._limit.max_bytes < record.size <= LARGEST_RECORD_BYTES
        if may_be_too_large and not self._keeps_key_order:
            # Wait outside of the queue, so that a record that is refused delays no other record.
            await self._limit.read_after(given_at)
            self._raise_if_unusable()
            may_be_too_large = False
        if not may_be_too_large and not self._must_wait(record):
            return
        prepare: Callable[[], Awaitable[None]] | None = None
        if may_be_too_large:
            prepare = partial(self._limit.read_after, given_at)
        elif self._accepted_since_yield >= RECORDS_PER_YIELD:
            prepare = partial(asyncio.sleep, 0)
        self._accepted_since_yield = 0
        await self._waiters.wait_until(lambda: self._may_stop_waiting(record), self._describe_limits, prepare)
        self._raise_if_unusable()

    def _may_stop_waiting(self, record: PendingRecord) -> bool:
        # While the job may not write, nothing is sent, so no room becomes free. A write that waits would delay the stop of the job. So
        # the rest of its batch is accepted above the limit, and the job writes no other batch before there is room.
        return self._has_ended or self._outstanding.has_capacity(record.size) or not self.permission.is_given

    @property
    def _has_ended(self) -> bool:
        return self._failures.error is not None or self._closed_reason is not None

    def _accept(self, record: PendingRecord) -> None:
        self._accepted_since_yield += 1
        self._outstanding.add(record)
        self._sending.enqueue(record)

    def _end_epoch(self) -> int:
        epoch = self._outstanding.end_epoch()
        self._sending.flush_now()
        return epoch

    def _wake_waiters(self) -> None:
        self._completion.notify_all()
        self._waiters.notify_first()
        if self._on_room is not None and self.has_room():
            self._on_room()

    def _describe_limits(self) -> str:
        outstanding = self._outstanding
        most = "" if outstanding.max_records == NO_LIMIT else f"{outstanding.max_records:,} records and "
        return (
            f"{outstanding.records:,} records and {outstanding.bytes:,} bytes of {self._stream} are not acknowledged, "
            f"the limit is {most}{outstanding.max_bytes:,} bytes"
        )
