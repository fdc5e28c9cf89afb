"""Detects outages, and a consumer that others use too, from failed reads of successive batches (F10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recordpublisher.publishers.clock import Clock
from recordpublisher.publishers.shards import Shard

from ..outages import OutageWatch
from .batch_claims import BatchClaims
from .claim import ShardRead
from .offset import BatchOffset
from .task_plans import MAX_DOUBLINGS

if TYPE_CHECKING:
    from recordpublisher.publishers.fanout.publisher import SubscriptionPreemptionDetector

NO_RESPONSE = "no response to any read, however long it was waited for"


class FailedReads:
    """Owns when the next batch may try again, and how often in a row another user of the `consumer` disturbed each shard.

    A shard fails if its whole read got no response and its last call failed. While other shards are read, batches follow each other as
    usual. A task cannot count disturbances, because it sees only one or two take-overs or refusals before its window ends.

    - `outages`: is notified which shards fail.
    """

    def __init__(self, outages: OutageWatch, clock: Clock, consumer: str) -> None:
        self._outages = outages
        self._clock = clock
        self._consumer = consumer
        self._noted_plan = ""
        self._detectors: dict[str, SubscriptionPreemptionDetector] = {}
        self._disturbed: frozenset[str] = frozenset()
        self.retry_at_ms = 0

    def note(self, offset: BatchOffset, claims: BatchClaims) -> frozenset[str]:
        """Note how the reads of an offset's batch ended. Only the first call for a batch counts.

        Return the shards that are disturbed at least for the second time in a row. Raises: OutageError if a shard failed for too long;
        ConsumerError if too many subscriptions in a row were taken over or refused.
        """
        if offset.plan == self._noted_plan:
            return frozenset()
        self._noted_plan = offset.plan
        self._note_outages(offset, claims)
        for key, read in claims.shards.items():
            if key in self._detectors or read.seen.refused or read.seen.taken_over:
                self._note_subscriptions(self._detector_of(offset.shards[key].shard), read)
        before = self._disturbed
        self._disturbed = frozenset(key for key, read in claims.shards.items() if _is_disturbed(read))
        return before & self._disturbed

    def _note_outages(self, offset: BatchOffset, claims: BatchClaims) -> None:
        pauses = []
        has_response = any(read.had_response for read in claims.shards.values())
        for key, read in claims.shards.items():
            is_silent = not has_response and offset.shards[key].empty_windows >= MAX_DOUBLINGS
            failure = read.seen.failure or (NO_RESPONSE if is_silent else None)
            if read.had_response:
                self._outages.on_success(key)
            elif failure is not None:
                pauses.append(self._outages.on_failure(f"{key}: {failure}", key))
        pause = max(pauses, default=0.0) if not has_response else 0.0
        self.retry_at_ms = self._clock.now_ms() + round(pause * 1000)

    def _detector_of(self, shard: Shard) -> SubscriptionPreemptionDetector:
        from recordpublisher.publishers.fanout.publisher import SubscriptionPreemptionDetector  # most queries poll

        return self._detectors.setdefault(shard.key, SubscriptionPreemptionDetector(shard))

    def _note_subscriptions(self, detector: SubscriptionPreemptionDetector, read: ShardRead) -> None:
        for _ in range(read.seen.refused):
            detector.on_in_use(self._consumer)
        for _ in range(read.seen.taken_over):
            detector.on_preempted(self._consumer)
        if read.had_response:
            detector.on_subscribed()
        if read.had_response and not read.seen.taken_over:
            detector.on_other_end()


def _is_disturbed(read: ShardRead) -> bool:
    return read.seen.taken_over > 0 or (read.seen.refused > 0 and not read.had_response)
