"""Outcomes: counts what is handled, plans retries, and decides about records that cannot be handled."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence

from recordpublisher.fetcher.metric_types import MetricType
from recordpublisher.publishers.errors import SinkError
from recordpublisher.publishers.log_fields import counted
from recordpublisher.publishers.properties.groups.bad_records import OnBadRecord
from recordpublisher.publishers.retry import RetryPolicy
from recordpublisher.publishers.skipped_records import SkippedRecordsLog
from recordpublisher.publishers.user_code import describe_error, log_user_error

from .ordering import ReadyRecords
from .settings import MapSettings
from .unhandled_record import UnhandledBatch, UnhandledRecord

log = logging.getLogger("recordpublisher.plugins.sinks.map")
_BASE_MS, _MAX_MS, _EXPONENT = 200, 10_000, 2.0
"""The pause before a retry: full jitter, at most 10 s."""


MAP_SINK_METRICS = {
    "outstanding": (MetricType.GAUGE, "records", "written and not handled yet"),
    "heldBytes": (MetricType.GAUGE, "bytes", "of the outstanding records"),
    "handled": (MetricType.COUNTER, "records", "handled"),
    "retries": (MetricType.COUNTER, "records", "handled again after a failure"),
    "timeouts": (MetricType.COUNTER, "calls", "of the handler that took too long"),
    "expired": (MetricType.COUNTER, "records", "not handled within their time"),
    "skipped": (MetricType.COUNTER, "records", "that could not be handled, and were skipped"),
    "deadLetters": (MetricType.COUNTER, "records", "that could not be handled, and went to the dead-letter sink"),
}


class Outcomes:
    """Owns the counters, the retries that wait, the records to reject, and the error that ends the job.

    `on_ready` is called when a record may be handled again; `on_changed` when memory was freed or the sink must be called. `leave` says
    of a record that failed whether it is left to the next reader instead.
    """

    def __init__(
        self,
        settings: MapSettings,
        ready: ReadyRecords,
        on_ready: Callable[[], None],
        on_changed: Callable[[bool], None],
        leave: Callable[[UnhandledRecord], bool],
    ) -> None:
        self._counts = dict.fromkeys(MAP_SINK_METRICS, 0)
        self.rejected: deque[tuple[UnhandledRecord, str]] = deque()
        self.error: BaseException | None = None
        self._settings = settings
        self._ready = ready
        self._on_ready = on_ready
        self._on_changed = on_changed
        self._leave = leave
        self._policy = RetryPolicy(settings.retries, _BASE_MS, _MAX_MS, _EXPONENT)
        self._skipped_log = SkippedRecordsLog(log)
        self._retried_log = SkippedRecordsLog(log)
        self._retry_timers: set[asyncio.TimerHandle] = set()
        self._tell_done: Callable[[str, str], None] | None = None

    def open(self, tell_done: Callable[[str, str], None] | None) -> None:
        """From now on `tell_done` is called for each record that is done with (`SinkContext.done`)."""
        self._tell_done = tell_done

    def metrics(self) -> dict[str, int]:
        """By the names of `MAP_SINK_METRICS`."""
        return dict(self._counts)

    @property
    def outstanding(self) -> int:
        """Records that are written and not handled."""
        return self._counts["outstanding"]

    @property
    def held_bytes(self) -> int:
        """Of their batches."""
        return self._counts["heldBytes"]

    def written(self, pending: UnhandledBatch) -> None:
        """The records of a batch are to be handled."""
        self._counts["outstanding"] += pending.remaining
        self._counts["heldBytes"] += pending.held_bytes

    def succeeded(self, item: UnhandledRecord) -> None:
        """The handler has handled a record."""
        self._counts["handled"] += 1
        self.handled(item)

    def handled(self, item: UnhandledRecord) -> None:
        """A record is done with. The next one of its key is released by `ReadyRecords.finish`."""
        pending = item.pending
        self._counts["outstanding"] -= 1
        pending.count_handled(item.index)
        if self._tell_done is not None and not item.is_dropped:
            self._tell_done(pending.batch.shard.key, item.record.sequence_number)
        if not pending.remaining:
            self._counts["heldBytes"] -= pending.held_bytes
            pending.shard.drop_handled()
            self._on_changed(False)

    def failed(self, items: Sequence[UnhandledRecord], error: Exception) -> None:
        """The first of these records of one key failed; the others come after it and must be handled after it."""
        item = items[0]
        item.attempts += 1
        self._counts["timeouts"] += issubclass(type(error), TimeoutError)  # `isinstance` would read its `__class__`
        if item.is_dropped:
            self._handle_again(items)
            return
        if item.attempts <= self._settings.retries:
            if self._leave(item):
                self._log_retry(item, error, "left to the next reader:")
                self._handle_again(items)
                return
            self._counts["retries"] += 1
            self._log_retry(item, error, "handled again:")
            self._retry_later(items, self._policy.delay_seconds(item.attempts - 1))
            return
        reason = describe_error(error)
        if self._settings.on_failure is OnBadRecord.FAIL:
            message = f"{item} cannot be handled: {reason}"
            log_user_error(log, error, message, item.pending.batch.shard.key, item.record.sequence_number)
            remedy = "on_failure=SKIP or DEAD_LETTER goes on without it (in a file flink.sink.map.on.failure)"
            self.fail(
                SinkError(f"{item} cannot be handled after {counted(item.attempts, 'attempt')}: {reason}; {remedy}"),
                error,
            )
            return
        self._give_up(item, f"{counted(item.attempts, 'attempt')}: {reason}", error)
        if len(items) > 1:
            self._handle_again(items[1:])
            return
        if item.key_queue is not None:
            self._ready.finish(item.key_queue)
        self._on_ready()

    @property
    def retries_planned(self) -> int:
        """How many failed records wait for another attempt."""
        return len(self._retry_timers)

    def expired(self, item: UnhandledRecord) -> None:
        """The record is older than `max_age`. The next one of its key is released by `ReadyRecords.finish`."""
        self._counts["expired"] += 1
        self._give_up(item, f"older than max_age ({self._settings.max_age:g} s)")

    def fail(self, error: BaseException, cause: BaseException | None = None) -> None:
        """End the job with this error, at the next call of the sink. Later errors are dropped."""
        if self.error is None:
            error.__cause__ = cause
            self.error = error
            self._on_changed(True)

    def close(self) -> None:
        """Forget the retries that wait."""
        for timer in self._retry_timers:
            timer.cancel()

    def _give_up(self, item: UnhandledRecord, reason: str, error: Exception | None = None) -> None:
        is_kept = self._settings.on_failure is OnBadRecord.DEAD_LETTER
        key, sequence_number = item.pending.batch.shard.key, item.record.sequence_number
        how = "rejected" if is_kept else "skipped"
        self._skipped_log.skipped(str(item), reason, error, key, sequence_number, how=how)
        if is_kept:
            self._counts["deadLetters"] += 1
            self.rejected.append((item, reason))  # it is handled when the job has taken it
            self._on_changed(True)
        else:
            self._counts["skipped"] += 1
            self.handled(item)

    def _handle_again(self, items: Sequence[UnhandledRecord]) -> None:
        """Those that are dropped are not: other processes, or the next start, handle them."""
        left = [item for item in items if not item.is_dropped]
        for item in items:
            if item.is_dropped:
                self.handled(item)
        if left:
            self._ready.take_again(left)
        elif items[0].key_queue is not None:
            self._ready.finish(items[0].key_queue)
        self._on_ready()

    def _log_retry(self, item: UnhandledRecord, error: Exception, how: str) -> None:
        key, reason = item.pending.batch.shard.key, f"attempt {item.attempts}: {describe_error(error)}"
        # without its traceback, which comes when no attempt is left
        self._retried_log.skipped(str(item), reason, None, key, item.record.sequence_number, how=how)

    def _retry_later(self, items: Sequence[UnhandledRecord], seconds: float) -> None:
        def retry() -> None:
            self._retry_timers.discard(timer)
            self._handle_again(items)

        timer = asyncio.get_running_loop().call_later(seconds, retry)
        self._retry_timers.add(timer)
