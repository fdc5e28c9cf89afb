"""CompletionHandler: an answer's consequences, for the queue, the lanes, the order of keys and those who wait (K2)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.kinesis.ports import PutResult
from recordpublisher.publishers.retry import RetryPolicy

from ..failures import FailureHandler
from ..outstanding_records import OutstandingRecords
from ..pending_record import PendingRecord
from ..shard_queues.kpl_aggregator import split_aggregate
from ..shard_queues.shard_queue import ShardQueue
from ..shard_queues.shard_queues import ShardQueues
from ..statistics import SinkMetrics
from .key_order import KeyOrder
from .request import Request, ShardBatch
from .results import PutOutcome, classify_results


class CompletionHandler:
    """Brings what an answer says to those who own the state; owns nothing itself."""

    def __init__(
        self,
        lanes: ShardQueues,
        queue: OutstandingRecords,
        order: KeyOrder | None,
        failures: FailureHandler,
        retries: RetryPolicy,
        clock: Clock,
        metrics: SinkMetrics,
        on_strays: Callable[[list[tuple[PendingRecord, str]]], None],
        on_change: Callable[[], None],
    ) -> None:
        self._lanes = lanes
        self._queue = queue
        self._order = order
        self._failures = failures
        self._retries = retries
        self._clock = clock
        self._metrics = metrics
        self._on_strays = on_strays
        self._on_change = on_change

    def settle(self, request: Request, results: Sequence[PutResult]) -> None:
        """Acknowledge, send again or give up, record by record."""
        following = iter(results)
        for share in request.batches:
            verdict = classify_results(share, list(islice(following, len(share.records))), self._retries.max_retries)
            self._slow_down_or_speed_up(share, verdict)
            self._settle_share(share.lane, verdict)
        self._on_change()

    def acknowledged(self, user_records: Sequence[PendingRecord]) -> None:
        """These are safe: room for others, and the turn of the next of their keys."""
        records, size = self._queue.settle(user_records)
        self._metrics.num_records_out += records
        self._metrics.num_bytes_out += size
        self._release_next(user_records)

    def send_again(self, records: Sequence[PendingRecord]) -> None:
        """These go to whatever lane is theirs by now."""
        self._lanes.spread(records, self._clock.monotonic())

    def _settle_share(self, lane: ShardQueue, verdict: PutOutcome) -> None:
        self._metrics.kinesis_records += len(verdict.acknowledged)
        self._metrics.retries += len(verdict.again)
        self._metrics.throttles += verdict.throttles
        self._take_back(lane, verdict.again)
        for given_up in verdict.given_up:
            self._failures.give_up(given_up.outgoing, given_up.error_code, given_up.error_message)
            self._dropped(given_up.outgoing.user_records)
        aggregated_strays = [stray for stray in verdict.strays if stray[0].parts]
        if verdict.strays:
            self._on_strays(aggregated_strays)
        self.acknowledged(_user_records(verdict.acknowledged, aggregated_strays))

    def _slow_down_or_speed_up(self, share: ShardBatch, verdict: PutOutcome) -> None:
        lane = share.lane
        now = self._clock.monotonic()
        lane.answered(len(share.records), share.rest, now)
        if verdict.acknowledged:
            lane.refusals = 0
        if not verdict.again and not verdict.given_up:
            lane.window.grow()
            return
        pause = self._retries.delay_seconds(lane.refusals)
        lane.turn = max(lane.turn, now + pause)
        lane.refusals += 1
        if verdict.throttles:
            lane.window.shrink()

    def _take_back(self, lane: ShardQueue, refused: list[PendingRecord]) -> None:
        if not refused:
            return
        if lane in self._lanes:
            lane.put_back(refused)
        else:  # its shard was closed meanwhile
            self.send_again([part for outgoing in refused for part in split_aggregate(outgoing)])

    def _dropped(self, user_records: Sequence[PendingRecord]) -> None:
        records, _ = self._queue.settle(user_records)
        self._metrics.num_records_out_errors += records
        if self._failures.error is None:
            self._release_next(user_records)

    def _release_next(self, done: Sequence[PendingRecord]) -> None:
        if self._order is not None and done:
            self.send_again(self._order.next_after(done))


def _user_records(acknowledged: list[PendingRecord], but: list[tuple[PendingRecord, str]]) -> list[PendingRecord]:
    """The user records of these, without those of the strays, which are looked into first."""
    if not any([outgoing.parts for outgoing in acknowledged]):  # noqa: C419 - a list is faster
        return acknowledged
    looked_into = {id(outgoing) for outgoing, _ in but}
    return [part for one in acknowledged if id(one) not in looked_into for part in one.user_records]
