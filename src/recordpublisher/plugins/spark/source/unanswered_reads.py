"""UnansweredReads: Kinesis does not answer the reads of a query's tasks, as their claims show."""

from __future__ import annotations

from recordpublisher.publishers.clock import Clock

from ..outages import OutageWatch
from .batch_claims import BatchClaims
from .offset import BatchOffset
from .tasks import MAX_DOUBLINGS

NO_RESPONSE = "no response to any read, however long it was waited for"


class UnansweredReads:
    """Owns when the next batch may try again, and tells the watch of outages which shards fail.

    A shard fails if its whole read got no response and its last call failed. While others are read, batches follow each other as usual.
    """

    def __init__(self, outages: OutageWatch, clock: Clock) -> None:
        self._outages = outages
        self._clock = clock
        self._noted_plan = ""
        self.retry_at_ms = 0

    def note(self, offset: BatchOffset, claims: BatchClaims) -> None:
        """Note how the reads of an offset's batch ended; once for each batch. Raises: OutageError."""
        if offset.plan == self._noted_plan:
            return
        self._noted_plan, pauses = offset.plan, []
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
