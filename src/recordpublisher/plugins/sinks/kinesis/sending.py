"""Sends queued records with PutRecords calls, and applies the result of each record."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from itertools import chain, islice
from operator import is_not

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.errors import (
    FatalKinesisError,
    ImpossibleStateError,
    RecordPublisherError,
    RetriesExhaustedError,
    SinkError,
    TransientError,
)
from recordpublisher.publishers.kinesis.ports import PutEntry, PutResult, WritingPort
from recordpublisher.publishers.retry import OUTAGES, RetryPolicy, call_with_retries
from recordpublisher.publishers.safe_text import counted

from .outstanding_records import Notifier, OutstandingRecords, RecordLimit, fetch_stream_summary
from .pending_records import VALIDATION_EXCEPTION, FailedRecords, PendingRecord, size_of
from .put_results import (
    NEVER,
    NOT_SENT,
    GivenUp,
    PutOutcome,
    PutRequest,
    ShardBatch,
    Unsent,
    classify_results,
    count_outage,
    results_of_failed_call,
    results_of_refused_call,
    split_by_sent,
    take_next_request,
    user_records_without,
)
from .send_permission import SendPermission
from .shard_queues import (
    MIN_REFRESH_INTERVAL_SECONDS,
    NO_SHARDS,
    KeyOrder,
    KplAggregator,
    ShardMap,
    ShardQueues,
    TargetShardListing,
    TargetShardQueue,
    removed_while,
    split_aggregate,
)
from .shard_rate import ShardRateLimit
from .sink_settings import KinesisSinkCounters, KinesisSinkSettings

log = logging.getLogger("recordpublisher.producer")
OUTAGE_CALLS = 3
"""When a shard has taken no record of this many calls in a row, its outage counts for the waiting records too."""
GIVEN_UP_PER_CALL = 2000
"""Most waiting records that are given up after one failed call. That blocks the loop for about ten milliseconds."""
READY_AFTER_SECONDS = 10.0
"""If no record is left after a failed put, the sink is not ready for this long (seconds), and until the service responds again.

Without this pause a server would be ready again after each record given up, because other calls may succeed while puts fail.
"""
REMEMBERED_SECONDS = 600.0
"""How long an outage is remembered after the service has responded to a probe, a call that writes nothing (seconds).

If a put fails in this time, the outage counts from its first failure.
"""
PROBE_RETRY = RetryPolicy(0, base_ms=1_000, max_ms=10_000, exponent=1.5, max_outage_ms=2**62)
"""Retries of the call that asks whether the service responds. They are slow, because an account has 20 such calls a second."""


class RecordSending:
    """Brings accepted records to the stream. It has their queues, the open calls, and the tasks that send records and list shards.

    The steps of a record, in the order of this class:

    1. `enqueue` queues it for its shard. With PER_KEY, `KeyOrder` holds it while an earlier record of its key is not acknowledged.
    2. `_send_when_due` takes the records of the next call off the queues (`take_next_request`).
    3. `_send` waits for the permission to write, and calls PutRecords.
    4. `_handle_results` acknowledges the record, queues it again or gives it up (`classify_results`).
    5. `_keep_shard_map` lists the shards again if another shard has taken the record.

    The writer counts outstanding records and waits for room.
    """

    def __init__(
        self,
        port: WritingPort,
        stream: str,
        settings: KinesisSinkSettings,
        clock: Clock,
        outstanding: OutstandingRecords,
        failures: FailedRecords,
        metrics: KinesisSinkCounters,
        on_change: Callable[[], None],
    ) -> None:
        aggregates, retries = settings.aggregates, settings.retries
        aggregator = KplAggregator(settings.aggregate_count, settings.aggregate_bytes) if aggregates else None
        rate_limit = ShardRateLimit(
            settings.records_per_second, settings.bytes_per_second, settings.initial_fraction, retries.max_ms / 1000
        )
        self._port = port
        self._stream = stream
        self._settings = settings
        self._clock = clock
        self._outstanding = outstanding
        self._failures = failures
        self._metrics = metrics
        self._on_change = on_change
        self.permission = SendPermission(aggregator)
        self.limit = RecordLimit(port, stream, retries, clock)
        self._order = KeyOrder(aggregator) if settings.keeps_key_order else None
        self._queues = ShardQueues(NO_SHARDS, rate_limit, aggregator)
        self._listing = TargetShardListing(port, stream, aggregates, retries, clock, metrics)
        self._queued_since_wake = 0
        self._wakeup = Notifier()
        self._next_check_at = NEVER
        self._calls: dict[asyncio.Task[None], tuple[PutRequest, float]] = {}
        """The open calls with their records, and when each began (seconds of the clock)."""
        self._unanswered: list[PutRequest] = []
        """The records of calls that ended without results: they are not acknowledged, and in no queue."""
        self._call_error: asyncio.Future[None] | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._ending: asyncio.Task[None] | None = None
        """A task that gives up the remaining records, after an error has ended the sink outside of a job."""
        self._is_closed = False
        self._failing: dict[TargetShardQueue, float] = {}
        self._failing_since: float | None = None
        self._failed_at = -NEVER
        self._responded_at: float | None = None
        """When the service responded to `_probe` (seconds of the clock). None again when the next put has ended.
        """
        self._probing: asyncio.Task[None] | None = None
        self.taken_at = -NEVER
        """When a shard last took a record (seconds of the clock)."""
        self.last_failure = ""
        """The error of the last call that failed."""
        self.retried_seconds = 0.0
        """How long the oldest record of the last failed call has failed (seconds). The outage may have lasted longer
        (`failing_seconds`), if earlier records were given up.
        """

    async def open(self) -> None:
        """Read the stream's limits and shards, and start the tasks.

        Raises: StreamNotFoundError if there is no such stream, and errors that retries cannot fix.
        """
        self._is_closed, self._ending = False, None
        summary = await self.limit.read()
        self._apply_shard_map(await self._listing.list_first(summary.distributes_by_key))
        # An earlier use of the sink may have left these records, if its close was cancelled.
        self._put_back_unanswered()
        for aggregate, shard_id in self._listing.take_misrouted():
            self._complete_misrouted(aggregate, shard_id, self._queues.map)
        self._tasks = [
            self._start(self._send_when_due(), "kinesis-sink-sender"),
            self._start(self._keep_shard_map(), "kinesis-sink-shard-map"),
        ]

    async def close(self) -> None:
        """Cancel the tasks and the open calls. After an error wait until each record that is left was given up."""
        self._is_closed = True
        tasks = self._tasks if self._probing is None else [*self._tasks, self._probing]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._ending is not None:
            # This task reports the records that are given up. It continues if `close` is cancelled, so that each record is reported.
            await asyncio.wait([self._ending])

    @property
    def open_requests(self) -> int:
        """Number of PutRecords calls that have not ended."""
        return len(self._calls)

    @property
    def failing_seconds(self) -> float:
        """How long the shard that has failed for the longest time has taken no record (seconds); 0 if no shard fails.

        A shard that only throttles does not count as failing. Any thread may read this property.
        """
        since = self._failing_since
        if since is None or self._responded_at is not None:
            return 0.0
        return max(0.0, self._clock.monotonic() - since)

    @property
    def refused_since(self) -> float:
        """Since when calls fail or have no response, while no shard takes a record (seconds of the monotonic clock).

        Throttling does not count as a failure. The value is `NEVER` if no call has failed and none is open. It is also `NEVER` if the
        service has answered a probe after the failures, and no record was sent after that answer. Any thread may read this property.
        """
        open_since = [began for _, began in list(self._calls.values())]
        failing_since = None if self._responded_at is not None else self._failing_since
        since = min(open_since, default=NEVER) if failing_since is None else failing_since
        return max(since, self.taken_at)

    @property
    def refused_seconds(self) -> float:
        """Seconds since `refused_since`; 0 if that is `NEVER`."""
        return max(0.0, self._clock.monotonic() - self.refused_since)

    async def give_up_all(self, code: str, message: str) -> None:
        """Cancel the open calls, and give up every record that is not acknowledged. Records of these calls may have reached the stream."""
        text = "the Kinesis sink of %s ends, and gives up %s: %s"
        log.error(text, self._stream, counted(self._outstanding.records, "record"), message)
        for number, record in enumerate(await self._take_all()):
            self._failures.give_up(record, code, message)
            self._count_failed(record.user_records, releases=False)
            if number % GIVEN_UP_PER_CALL == GIVEN_UP_PER_CALL - 1:
                await asyncio.sleep(0)
        self._on_progress()

    async def forget_all(self) -> None:
        """Forget the records that an earlier job has left, because the next start of that job reads and puts them again.

        Records that a program has put stay, because no start would put them again.
        """
        left = [one for record in await self._take_all() for one in record.user_records]
        self._outstanding.complete([one for one in left if one.source is not None])
        for one in left:
            if one.source is None:
                self.enqueue(one)
        self._forget_failures()

    async def _take_all(self) -> list[PendingRecord]:
        calls = list(self._calls)
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        self._put_back_unanswered()
        taken = [record for queue in self._queues for record in queue.drain()]
        taken += [] if self._order is None else self._order.take_held()
        return [*taken, *(aggregate for aggregate, _ in self._listing.take_misrouted())]

    def _put_back_unanswered(self) -> None:
        """Queue the records of calls that ended without results again, before all other records."""
        requests, self._unanswered = self._unanswered, []
        for batch in chain.from_iterable(reversed(requests)):
            batch.queue.mark_completed(len(batch.records), batch.limit_seconds, self._clock.monotonic())
            self._put_back(batch.queue, batch.records)

    # --- 1. a record is queued for its shard -----------------------------------------------------------------------------------------

    def enqueue(self, record: PendingRecord) -> None:
        """Queue a record for its shard. With PER_KEY hold it while an earlier record of its key is not acknowledged."""
        if self._order is not None and not self._order.admit_or_hold(record):
            return
        queue = self._queues.queue_for(record)
        if queue.records:
            queue.add(record, 0.0)  # The time is used only for the first record of a queue, so the clock is not read.
        else:
            now = self._clock.monotonic()
            queue.add(record, now)
            self._wake_by(now + self._settings.linger_seconds)
        self._queued_since_wake += 1
        if self._queued_since_wake >= self._settings.request_count:
            self._wake_for_full_call()

    def enqueue_all(self, records: Sequence[PendingRecord]) -> None:
        """Queue many records, at a fraction of the cost of `enqueue`. With PER_KEY each record is queued by itself."""
        if self._order is not None:
            for record in records:
                self.enqueue(record)
            return
        now = self._clock.monotonic()
        for queue, of_queue in self._queues.by_queue(records):
            was_empty = not queue.records
            queue.add_all(of_queue, now)
            if was_empty:
                self._wake_by(now + self._settings.linger_seconds)
        self._queued_since_wake += len(records)
        if self._queued_since_wake >= self._settings.request_count:
            self._wake_for_full_call()

    def flush_now(self) -> None:
        """Send all queued records without waiting for full calls or full aggregates."""
        self._queues.mark_all_due()
        self._wakeup.notify_all()

    def _wake_for_full_call(self) -> None:
        # Only once for many records, because the sending task then checks every queue.
        self._queued_since_wake = 0
        self._wakeup.notify_all()

    def _wake_by(self, at: float) -> None:
        """Make sure that the sending task checks the queues at this time (seconds of the clock) or before."""
        if at < self._next_check_at:
            self._wakeup.notify_all()

    # --- 2. a call takes records off the queues --------------------------------------------------------------------------------------

    async def _send_when_due(self) -> None:
        """Start each PutRecords call when it is due, until cancelled. Raises: the first error that a retry cannot fix."""
        self._call_error = asyncio.get_running_loop().create_future()
        try:
            while not self._call_error.done():
                await self._start_call_or_wait()
            self._call_error.result()
        finally:
            for call in self._calls:
                call.cancel()
            await asyncio.gather(*self._calls, return_exceptions=True)
            if not self._call_error.cancel():
                self._call_error.exception()  # marks it as retrieved, so that asyncio does not warn

    async def _start_call_or_wait(self) -> None:
        if len(self._calls) >= self._settings.connections:
            await self._wakeup.wait()
            return
        now = self._clock.monotonic()
        found = take_next_request(self._queues, now, self._settings)
        if isinstance(found, list):
            call = asyncio.create_task(self._send(found), name="put-records")
            self._calls[call] = found, now
            call.add_done_callback(self._on_call_end)
            return
        self._next_check_at = found
        await self._wakeup.wait(None if found == NEVER else max(found - now, 0.0))
        self._next_check_at = 0.0  # This task is awake and checks next, so `_wake_by` need not wake it.

    # --- 3. the call -----------------------------------------------------------------------------------------------------------------

    async def _send(self, request: PutRequest) -> None:
        """Call PutRecords once the job may write, and apply the results. Records of revoked shards are not sent."""
        records = [record for batch in request for record in batch.records]
        kept = await self.permission.sendable(records)
        sent = [PutEntry(one.data, one.partition_key, one.explicit_hash_key) for one in kept if one is not None]
        results: list[PutResult] = []
        if sent:
            began = self._clock.monotonic()
            results = await self._put_records(sent)
            self._metrics.call_ended(self._clock.monotonic() - began)
        request, unsent = split_by_sent(request, kept) if any(map(is_not, kept, records)) else (request, [])
        if unsent:
            self._forget(unsent, {part.partition_key for one in kept if one is not None for part in one.user_records})
        self._handle_results(request, results)

    def _forget(self, unsent: Unsent, sent_keys: Collection[str]) -> None:
        """Count the unsent records of revoked shards as finished, but not as put.

        - `sent_keys`: the keys of the records that were sent. Their results release the next records of these keys.
        """
        for batch, count, parts in unsent:
            is_all = count == len(batch.records)
            batch.queue.mark_completed(count, batch.limit_seconds if is_all else 0.0, self._clock.monotonic())
            if is_all:
                OUTAGES.on_end(batch.queue, is_success=False)
            self._outstanding.complete(parts)
            self._release_next_of_keys([part for part in parts if part.partition_key not in sent_keys])

    async def _put_records(self, entries: list[PutEntry]) -> list[PutResult]:
        """Call PutRecords. Return one result for each entry, even if the call fails as a whole. Raises: errors that retries cannot fix."""
        try:
            response = await self._port.put_records(self._stream, entries)
        except TransientError as error:
            self._metrics.add("failedRequests")
            return results_of_failed_call(error, len(entries))
        except FatalKinesisError as error:
            if error.code != VALIDATION_EXCEPTION:
                raise
            self._metrics.add("failedRequests")
            # The stream's size limit may have been lowered after the records were checked. If so, only the records above it failed.
            try:
                await self.limit.read_after(self._clock.monotonic())
            except RetriesExhaustedError as exhausted:
                if not self._failures.continues:
                    raise
                return [PutResult(error_code=NOT_SENT, error_message=str(exhausted))] * len(entries)
            largest = self.limit.max_bytes
            if not any(size_of(entry.data, entry.partition_key) > largest for entry in entries):
                raise
            return results_of_refused_call(error, entries, largest)
        if len(response.results) != len(entries):
            raise ImpossibleStateError(
                f"PutRecords returned {len(response.results)} results for {len(entries)} records"
            )
        return response.results

    def _on_call_end(self, call: asyncio.Task[None]) -> None:
        request, _ = self._calls.pop(call)
        error = None if call.cancelled() else call.exception()
        if call.cancelled() or isinstance(error, Exception):
            self._unanswered.append(request)
        if error is not None and self._call_error is not None and not self._call_error.done():
            self._call_error.set_exception(error)
        self._wakeup.notify_all()

    # --- 4. the results --------------------------------------------------------------------------------------------------------------

    def _handle_results(self, request: PutRequest, results: Sequence[PutResult]) -> None:
        """Acknowledge, queue again or give up each record of a call, as `classify_results` decides."""
        remaining = iter(results)
        for batch in request:
            own, now = list(islice(remaining, len(batch.records))), self._clock.monotonic()
            outcome = classify_results(batch, own, self._settings, now)
            self._log_outage(batch.queue, own, outcome)
            expired, held = self._age_waiting(batch, outcome, now)
            self._adapt_rate(batch, outcome)
            self._complete_batch(batch.queue, outcome)
            self._give_up_waiting(expired, held, own[0])
        self._on_progress()

    def _log_outage(self, queue: TargetShardQueue, results: Sequence[PutResult], outcome: PutOutcome) -> None:
        """Log that a shard takes no records. A shard that only throttles is not logged, because its rate adapts to throttling."""
        policy, waiting, now = self._settings.retries, outcome.to_retry, self._clock.monotonic()
        given_up = [each.record for each in outcome.given_up if each.error_code != VALIDATION_EXCEPTION]
        failed = [*waiting, *given_up]
        if outcome.acknowledged:
            self.taken_at = now
            if self._responded_at is not None:
                self._forget_failures()
            elif self._failing.pop(queue, None) is not None:
                self._note_failing()
        elif outcome.throttles < len(failed):
            lasted = max(record.failing_for for record in failed)
            self.last_failure = next(each.error_message or each.error_code or "no answer" for each in results)
            self._failed_at = now
            if self._responded_at is not None and now - self._responded_at > REMEMBERED_SECONDS:
                self._failing.clear()
            self._responded_at = None
            if queue in self._queues:  # Otherwise the shard was closed, and other shards get its records.
                self._failing.setdefault(queue, now - lasted)
                self._note_failing()
            if waiting and policy.max_outage_ms is not None:
                self.retried_seconds, left = lasted, policy.max_outage_ms / 1000 - lasted
                OUTAGES.on_failure(queue, "Kinesis", self.last_failure, lasted, left, policy.decided_by)
        if outcome.acknowledged or not waiting:
            # Giving records up does not end the outage of a shard, because its other records fail too.
            OUTAGES.on_end(queue, is_success=bool(outcome.acknowledged))

    def _note_failing(self) -> None:
        """Store since when the first of the failing shards has failed. Any thread may read this time (`failing_seconds`)."""
        self._failing_since = min(self._failing.values(), default=None)

    async def _probe(self) -> None:
        """Call the service until it responds. Used after failed puts of which no record is left.

        A server that is not ready may get no requests, and then no put would show that the outage has ended. If a put fails after the
        response, the server is not ready at once.
        """
        while self._failing and self._responded_at is None and self._failures.error is None:
            await asyncio.sleep(READY_AFTER_SECONDS * random.uniform(1.0, 1.2))  # noqa: S311 - jitter
            if self._clock.monotonic() < self._failed_at + READY_AFTER_SECONDS:
                continue
            with suppress(RecordPublisherError):
                await call_with_retries(lambda: fetch_stream_summary(self._port, self._stream), PROBE_RETRY)
                if not self._outstanding.records:
                    self._responded_at = self._clock.monotonic()

    def _forget_failures(self) -> None:
        self._failing.clear()
        self._responded_at = None
        self._note_failing()

    def _age_waiting(
        self, batch: ShardBatch, outcome: PutOutcome, now: float
    ) -> tuple[list[PendingRecord], list[PendingRecord]]:
        """Count a shard's outage for the records that wait behind a failing call. Remove and return the records that have waited too long.

        The first list has records from the queue, the second has records that were held for the order of their key. Without this method a
        waiting record would begin its retries only after all records before it have used up theirs.
        """
        queue, policy = batch.queue, self._settings.retries
        if queue.consecutive_failures < OUTAGE_CALLS or policy.max_outage_ms is None or self._failures.ends_sink:
            return [], []
        keys = {} if self._order is None else self._order.held_of([*batch.records, *queue.records])
        if outcome.acknowledged:
            for record in chain(queue.records, *keys.values()):
                if not record.attempts:
                    record.failed_at, record.failing_for = None, 0.0
            return [], []
        for record in chain(queue.records, *keys.values()):
            count_outage(record, now)

        def is_used_up(record: PendingRecord) -> bool:
            return policy.is_used_up(0, record.failing_for)

        expired = queue.remove_while(is_used_up, GIVEN_UP_PER_CALL)
        held: list[PendingRecord] = []
        # A held record is given up only with the earlier records of its key, so that the records of a key are given up in order.
        if self._order is not None:
            given_up = [*(each.record for each in outcome.given_up), *expired]
            for of_key in self._order.held_of(given_up).values():
                held += removed_while(of_key, is_used_up, GIVEN_UP_PER_CALL - len(held))
        return expired, held

    def _give_up_waiting(
        self, expired: Sequence[PendingRecord], held: Sequence[PendingRecord], result: PutResult
    ) -> None:
        code, message = result.error_code or "MalformedResponse", result.error_message or ""
        for record in expired:
            self._give_up(GivenUp(record, code, message))
        # Giving up a held record does not release the next record of its key, because an earlier record of the key is still pending.
        for record in held:
            self._failures.give_up(record, code, message)
            self._count_failed(record.user_records, releases=False)

    def _adapt_rate(self, batch: ShardBatch, outcome: PutOutcome) -> None:
        queue, now = batch.queue, self._clock.monotonic()
        queue.mark_completed(len(batch.records), batch.limit_seconds, now)
        if outcome.acknowledged:
            queue.consecutive_failures = 0
        queue.adapt_rate(batch.limit_seconds, outcome.throttles / len(batch.records), now)
        failed = len(outcome.to_retry) + len(outcome.given_up)
        # A shard that takes some records and throttles others is slowed down by its rate alone.
        if failed > outcome.throttles or (failed and not outcome.acknowledged):
            backoff = self._settings.retries.delay_seconds(queue.consecutive_failures)
            queue.next_send_at = max(queue.next_send_at, now + backoff)
            queue.consecutive_failures += 1

    def _complete_batch(self, queue: TargetShardQueue, outcome: PutOutcome) -> None:
        counts = {"kinesisRecords": len(outcome.acknowledged), "resentRecords": len(outcome.to_retry)}
        for name, count in {**counts, "throttles": outcome.throttles}.items():
            self._metrics.add(name, count)
        self._put_back(queue, outcome.to_retry)
        for given_up in outcome.given_up:
            self._give_up(given_up)
        # A misrouted plain record is readable where it is. Readers of a misrouted aggregate drop the parts that belong to other shards, so
        # the aggregate is acknowledged only after the shards were listed again (step 5).
        misrouted_aggregates = [each for each in outcome.misrouted if each[0].parts]
        if outcome.misrouted:
            self._listing.request(outcome.misrouted)
        self._acknowledge(user_records_without(outcome.acknowledged, misrouted_aggregates))

    def _acknowledge(self, user_records: Sequence[PendingRecord]) -> None:
        """Count user records as written: free their capacity, and release the next record of each key."""
        records, size = self._outstanding.complete(user_records)
        self._metrics.add("numRecordsOut", records)
        self._metrics.add("numBytesOut", size)
        if self._failures.awaited:
            self._failures.awaited.acknowledge(user_records)
        self._release_next_of_keys(user_records)

    def _give_up(self, given_up: GivenUp) -> None:
        self._failures.give_up(given_up.record, given_up.error_code, given_up.error_message)
        self._count_failed(given_up.record.user_records)

    def _count_failed(self, user_records: Sequence[PendingRecord], *, releases: bool = True) -> None:
        self._outstanding.complete(user_records)
        self._metrics.add("numRecordsOutErrors", sum([not one.is_revoked for one in user_records]))
        # If the sink has ended, a later record of the key must not be put.
        if releases and self._failures.error is None:
            self._release_next_of_keys(user_records)

    def _put_back(self, queue: TargetShardQueue, failed: list[PendingRecord]) -> None:
        if not failed:
            return
        if queue in self._queues:
            queue.put_back(failed)
        else:  # The shard was closed after the call was made.
            self._send_again([part for record in failed for part in split_aggregate(record)])

    def _release_next_of_keys(self, done: Sequence[PendingRecord]) -> None:
        if self._order is not None and done:
            self._send_again(self._order.release_after(done))

    def _send_again(self, records: Sequence[PendingRecord]) -> None:
        self._queues.requeue(records, self._clock.monotonic())

    # --- 5. the shards are listed again ----------------------------------------------------------------------------------------------

    async def _keep_shard_map(self) -> None:
        """Apply each new listing until cancelled, and finish the misrouted aggregates that waited for it.

        Raises: RetriesExhaustedError if the listing fails while aggregates wait for it, and errors that retries cannot fix.
        """
        while True:
            try:
                shard_map, misrouted = await self._listing.next_map()
            except RetriesExhaustedError as error:
                if not self._failures.continues:
                    raise
                for aggregate, _ in self._listing.take_misrouted():
                    self._give_up(GivenUp(aggregate, type(error).__name__, str(error)))
            else:
                self._apply_shard_map(shard_map)
                for aggregate, shard_id in misrouted:
                    self._complete_misrouted(aggregate, shard_id, shard_map)
            self._on_progress()
            await asyncio.sleep(MIN_REFRESH_INTERVAL_SECONDS)

    def _apply_shard_map(self, shard_map: ShardMap) -> None:
        self._queues.update(shard_map, self._clock.monotonic())
        for closed in [queue for queue in self._failing if queue not in self._queues]:
            del self._failing[closed]
        self._note_failing()
        self._outstanding.update_limits(shard_map.open_count)

    def _complete_misrouted(self, aggregate: PendingRecord, shard_id: str, shard_map: ShardMap) -> None:
        """Acknowledge the parts of an aggregate that belong to the shard `shard_id`, and send the other parts again.

        Readers drop a part whose hash key lies outside the range of the shard that has the aggregate. With AUTO record distribution keys do
        not decide the shard, and all parts are acknowledged.
        """
        if not shard_map.keys_decide:
            self._acknowledge(aggregate.parts)
            return
        taken_by = shard_map.ranges.get(shard_id)
        # Parts with the same key stay together in one Kinesis record (`split_aggregate`). With PER_KEY they complete together, and no
        # later record may come between them.
        foreign: list[PendingRecord] = []
        accepted: list[PendingRecord] = []
        for record in split_aggregate(aggregate):
            is_accepted = taken_by is not None and record.hash_key in taken_by
            (accepted if is_accepted else foreign).append(record)
        self._metrics.add("misroutedRecords", sum(len(record.user_records) for record in foreign))
        self._send_again(foreign)
        self._acknowledge([part for record in accepted for part in record.user_records])

    # --- the tasks -------------------------------------------------------------------------------------------------------------------

    def _on_progress(self) -> None:
        """Wake the sender and the waiting writes, because records were completed or moved. After an error end the tasks."""
        if self._failing and not self._outstanding.records:
            if not self._failures.continues:
                self._forget_failures()
            elif self._responded_at is None and (self._probing is None or self._probing.done()):
                self._probing = self._start(self._probe(), "kinesis-sink-probe")
        if self._failures.error is not None:
            for task in self._tasks:
                task.cancel()
        self._wakeup.notify_all()
        self._on_change()

    def _start(self, work: Coroutine[None, None, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._on_task_end)
        return task

    def _on_task_end(self, task: asyncio.Task[None]) -> None:
        # A cancelled task counts as failed, because without an error a flush would wait for ever. The end of an event loop cancels tasks.
        error = _end_of_loop(task) if task.cancelled() else task.exception()
        if error is None or self._is_closed:
            return
        # After a cancellation no task is started, because the event loop may be ending.
        if self._failures.continues and self._failures.error is None and not task.cancelled():
            code = getattr(error, "code", "") or type(error).__name__
            self._ending = asyncio.create_task(self._give_up_rest(code, str(error)), name="kinesis-sink-ending")
        self._failures.fail(error)
        # Otherwise each record that is left is given up, and the call that waits for it gets that error.
        if self._ending is None:
            ended = "ended before the record was acknowledged; it may be in the stream"
            self._failures.awaited.fail_all(f"the Kinesis sink of {self._stream} {ended}: {self._failures.error}")
        self._on_progress()

    async def _give_up_rest(self, code: str, message: str) -> None:
        """Give up the remaining records when the tasks have ended, because outside of a job no restart puts them again."""
        await asyncio.wait(self._tasks)
        if self._outstanding.records:
            await self.give_up_all(code, message)


def _end_of_loop(task: asyncio.Task[None]) -> SinkError:
    loop = "as at the end of the event loop in which the sink was opened"
    return SinkError(f"the task {task.get_name()} was cancelled, {loop}. Open and use a sink in one event loop")
