"""QueueSource: the port of a source that acknowledges record by record, such as a queue. A plugin author implements four methods.

A queue has no order, no positions, no shards and no time. The job (`recordpublisher/queues`) owns the received records;
the source makes the calls.
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
"""Sequence numbers of records; None stands for no record."""


class QueueSource(RecordSource):
    """Receives records, and settles them. A record that is not acknowledged is received again after `visibility_seconds`.

    A source returns `UserRecord`s of a subclass that carries what acknowledges a receipt. `sequence_number` is the
    record's id, the same at each receipt. All parts of a record (an aggregate) have the same number and come in one
    receive. Records of one number need different sub-sequence numbers (0, 1 and so on). If two have the same one, the
    last is passed on, and the job ends if their data differ.

    Each call of `acknowledge`, `prolong` and `release` gets the newest receipt of a record, once, without its data. It
    returns the numbers of the records that failed, which the job counts. A record that is gone is not a failure.

    Raises: TransientError, RetriesExhaustedError or a foreign error if the whole call failed, which is also counted.
    Any other RecordPublisherError ends the job.
    """

    visibility_seconds: float = 30.0
    most_receivers: int = 1
    """How many calls of `receive` may run at a time. A job begins with one, and uses more for a back-log."""
    full_receive: ClassVar[int] = 10
    """How many records a receive brings at most. A receive that brings this many is the sign of a back-log."""
    full_bytes: ClassVar[float] = inf
    """How many payload bytes are the sign of a back-log, for a source whose responses are bounded in bytes."""

    async def open(self) -> None:
        """Find the queue, before the first receive. Raises: ConfigurationError if there is none. Default: do nothing."""

    @abstractmethod
    async def receive(self, metrics: ShardMetrics) -> Sequence[UserRecord]:
        """Wait a few seconds for records, and return them, or nothing if the queue is empty. Count retries in `metrics`.

        If this is cancelled, a call that takes records must not be cut off: wait for it, release the records that it
        brings, then raise the cancellation.

        Raises: RecordPublisherError if no retry can help.
        """

    @abstractmethod
    async def acknowledge(self, records: Sequence[UserRecord]) -> Numbers:
        """Acknowledge these records: they are safe and finished."""

    @abstractmethod
    async def prolong(self, records: Sequence[UserRecord]) -> Numbers:
        """Keep these records from others for `visibility_seconds` from now, because they are still being handled."""

    @abstractmethod
    async def release(self, records: Sequence[UserRecord]) -> Numbers:
        """Let others have these records now, because this process will not handle them. If it fails, they are visible after their time."""
