"""QueueSource: the port of a source that acknowledges record by record, such as a queue. A plugin author implements four methods.

A queue has no order, no positions, no shards and no time. The job (`recordpublisher/queues`) owns what was received, the source makes the
calls.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence
from math import inf
from typing import ClassVar

from ..base import RecordSource
from ..records import UserRecord
from ..shard_metrics import ShardMetrics

Numbers = Collection[str] | None
"""Sequence numbers of records; None: none."""


class QueueSource(RecordSource):
    """Receives records, and settles what was received. A record that is not acknowledged comes again after `visibility_seconds`.

    A subclass of `UserRecord` carries what acknowledges a receipt; `sequence_number` is the record's id, the same at each receipt. All
    parts of a record (an aggregate) have the same number and come in one receive. Records of one number need different sub-sequence
    numbers (0, 1 and so on); of those that have the same one, the last is passed on, and the job ends if their data differ.

    Calls of `acknowledge`, `prolong` and `release` have the newest receipt of a record, once, without its data. They return the numbers
    with which they failed, which are counted; that a record is gone is no failure. Raises: TransientError, RetriesExhaustedError or a
    foreign error if the whole call failed, which is counted, too; any other RecordPublisherError ends the job.
    """

    visibility_seconds: float = 30.0
    most_receivers: int = 1
    """How many calls of `receive` may run at a time. A job begins with one, and takes more for a back-log."""
    full_receive: ClassVar[int] = 10
    """How many records a receive brings at most. One that brings so many is the sign of a back-log."""
    full_bytes: ClassVar[float] = inf
    """Likewise so many bytes of payload, for a source whose responses are bounded in bytes."""

    async def open(self) -> None:
        """Find the queue, before the first receive. Raises: ConfigurationError without one. Default: nothing."""

    @abstractmethod
    async def receive(self, metrics: ShardMetrics) -> Sequence[UserRecord]:
        """Wait a few seconds for records, and return them; none: the queue is empty. Retries are counted in `metrics`.

        When it is cancelled, a call that takes records must not be cut off: wait for it, release what it brings, then raise the
        cancellation.
        Raises: RecordPublisherError when no retry can help.
        """

    @abstractmethod
    async def acknowledge(self, records: Sequence[UserRecord]) -> Numbers:
        """These are safe, and done with."""

    @abstractmethod
    async def prolong(self, records: Sequence[UserRecord]) -> Numbers:
        """These are still worked on: keep them from others for `visibility_seconds` from now."""

    @abstractmethod
    async def release(self, records: Sequence[UserRecord]) -> Numbers:
        """These are given up: let others have them now. What fails is visible again after its time."""
