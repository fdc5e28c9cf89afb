"""Applies the results of a PutRecords call to queues, limits and waiting writes (K2), and keeps the order of the records of a key."""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.kinesis.ports import PutResult
from recordpublisher.publishers.retry import OUTAGES

from ..failed_records import FailedRecords
from ..outstanding_records import OutstandingRecords
from ..pending_record import PendingRecord
from ..settings import KinesisSinkSettings
from ..shard_queues.kpl_aggregator import KplAggregator, split_aggregate
from ..shard_queues.shard_map_refresher import MisroutedRecord
from ..shard_queues.shard_queue import ShardQueue
from ..shard_queues.shard_queues import ShardQueues
from ..statistics import SinkMetrics
from .request import PutRequest, ShardBatch
from .retry_or_give_up import PutOutcome, classify_results


class KeyOrder:
    """Owns the records that wait until an earlier record of their key is acknowledged."""

    def __init__(self, aggregator: KplAggregator | None) -> None:
        self._aggregator = aggregator
        self._held: dict[str, deque[PendingRecord]] = {}

    def admit_or_hold(self, record: PendingRecord) -> bool:
        """Return True if the record may be sent now. Otherwise hold it until `release_after` returns it."""
        held = self._held.get(record.partition_key)
        if held is None:
            self._held[record.partition_key] = deque()
            return True
        held.append(record)
        return False

    def release_after(self, done: Iterable[PendingRecord]) -> list[PendingRecord]:
        """Remove and return the next record, or aggregate, of each key in `done`.

        It may be sent now, because the user records in `done` are complete.
        """
        return [one for key in {one.partition_key for one in done} if (one := self._release_next(key)) is not None]

    def _release_next(self, key: str) -> PendingRecord | None:
        held = self._held[key]
        if not held:
            del self._held[key]
            return None
        if self._aggregator is None:
            return held.popleft()
        return self._aggregator.aggregate(
            self._aggregator.take_parts(held, self._aggregator.max_bytes, of_one_key=True)
        )


class CompletionHandler:
    """Passes results, as `classify_results` sorts them, to the objects that own the state. It has no state of its own."""

    def __init__(
        self,
        queues: ShardQueues,
        outstanding: OutstandingRecords,
        order: KeyOrder | None,
        failures: FailedRecords,
        settings: KinesisSinkSettings,
        clock: Clock,
        metrics: SinkMetrics,
        on_misrouted: Callable[[list[MisroutedRecord]], None],
        on_change: Callable[[], None],
    ) -> None:
        self._queues = queues
        self._outstanding = outstanding
        self._order = order
        self._failures = failures
        self._settings = settings
        self._clock = clock
        self._metrics = metrics
        self._on_misrouted = on_misrouted
        self._on_change = on_change

    def handle_results(self, request: PutRequest, results: Sequence[PutResult]) -> None:
        """Acknowledge each record of a call, send it again or give it up, as `classify_results` decides."""
        remaining = iter(results)
        for batch in request:
            own, now = list(islice(remaining, len(batch.records))), self._clock.monotonic()
            outcome = classify_results(batch, own, self._settings, now)
            self._log_outage(batch.queue, own, outcome)
            self._adapt_rate(batch, outcome)
            self._complete_batch(batch.queue, outcome)
        self._on_change()

    def _log_outage(self, queue: ShardQueue, results: Sequence[PutResult], outcome: PutOutcome) -> None:
        """Log that a shard takes no records, unless it only throttles: its rate adapts to that."""
        policy, waiting = self._settings.retries, outcome.to_retry
        if outcome.acknowledged or not waiting:
            OUTAGES.on_end(queue, is_success=bool(outcome.acknowledged))
        elif outcome.throttles < len(waiting) and policy.max_outage_ms is not None:
            lasted = max(record.failing_for for record in waiting)
            error = next(each.error_message or each.error_code or "no answer" for each in results)
            OUTAGES.on_failure(queue, "Kinesis", error, lasted, policy.max_outage_ms / 1000 - lasted, policy.decided_by)

    def acknowledge(self, user_records: Sequence[PendingRecord]) -> None:
        """Count user records as written: free their capacity, and release the next record of each key."""
        records, size = self._outstanding.complete(user_records)
        self._metrics.add("numRecordsOut", records)
        self._metrics.add("numBytesOut", size)
        self._release_next_of_keys(user_records)

    def send_again(self, records: Sequence[PendingRecord]) -> None:
        """Queue records again, using the current shard map."""
        self._queues.requeue(records, self._clock.monotonic())

    def _complete_batch(self, queue: ShardQueue, outcome: PutOutcome) -> None:
        self._metrics.add("kinesisRecords", len(outcome.acknowledged))
        self._metrics.add("retries", len(outcome.to_retry))
        self._metrics.add("throttles", outcome.throttles)
        self._put_back(queue, outcome.to_retry)
        for given_up in outcome.given_up:
            self._failures.give_up(given_up.record, given_up.error_code, given_up.error_message)
            self._count_failed(given_up.record.user_records)
        # A misrouted plain record is readable where it is. Readers of a misrouted aggregate drop the parts that belong to other shards, so
        # the aggregate is acknowledged only after the shards were listed again (ShardMapRefresher).
        misrouted_aggregates = [each for each in outcome.misrouted if each[0].parts]
        if outcome.misrouted:
            self._on_misrouted(outcome.misrouted)
        self.acknowledge(_user_records(outcome.acknowledged, misrouted_aggregates))

    def _adapt_rate(self, batch: ShardBatch, outcome: PutOutcome) -> None:
        queue = batch.queue
        now = self._clock.monotonic()
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

    def _put_back(self, queue: ShardQueue, failed: list[PendingRecord]) -> None:
        if not failed:
            return
        if queue in self._queues:
            queue.put_back(failed)
        else:  # The shard was closed after the call was made.
            self.send_again([part for record in failed for part in split_aggregate(record)])

    def _count_failed(self, user_records: Sequence[PendingRecord]) -> None:
        records, _ = self._outstanding.complete(user_records)
        self._metrics.add("numRecordsOutErrors", records)
        if self._failures.error is None:
            self._release_next_of_keys(user_records)

    def _release_next_of_keys(self, done: Sequence[PendingRecord]) -> None:
        if self._order is not None and done:
            self.send_again(self._order.release_after(done))


def _user_records(acknowledged: list[PendingRecord], misrouted: list[MisroutedRecord]) -> list[PendingRecord]:
    """Return the user records of the acknowledged Kinesis records, except the parts of misrouted aggregates."""
    if not any([record.parts for record in acknowledged]):  # noqa: C419 - a list is faster
        return acknowledged
    excluded = {id(record) for record, _ in misrouted}
    return [part for one in acknowledged if id(one) not in excluded for part in one.user_records]
