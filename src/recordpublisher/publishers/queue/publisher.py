"""QueueRecordPublisher: one receiver of a queue, with ReceiveQueueRecords."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from ..aggregation.deaggregation import Deaggregator
from ..base import BatchConsumer, RecordPublisher, RunResult
from ..clock import Clock
from ..errors import KinesisError, TransientError
from ..kinesis.ports import ReadResponse
from ..positions import StartingPosition
from ..records import RecordBatch, UserRecord
from ..retry import RetryPolicy, call_with_retries
from ..shard_metrics import ShardMetrics
from ..shards import HashRange, Shard
from .client import QueueClient, ReceivedRecord
from .receipts import Receipts, ReceiverTurns

WORTH_A_RETRY = {"ThrottlingException", "InternalFailureException"}
"""Error codes of single records; with others the record is gone, or was received again by somebody else."""
MOST_TRIES = 5


class QueueRecordPublisher(RecordPublisher):
    """Receives, and settles what was received. What all receivers of a process share is in `receipts` and `turns`."""

    def __init__(
        self,
        client: QueueClient,
        arn: str,
        shard: Shard,
        metrics: ShardMetrics,
        clock: Clock,
        receipts: Receipts,
        turns: ReceiverTurns,
        retries: RetryPolicy,
        *,
        wait_seconds: int,
        visibility_seconds: int,
    ) -> None:
        self._client, self._arn, self._shard, self._metrics, self._clock = client, arn, shard, metrics, clock
        self._receipts, self._turns, self._retries = receipts, turns, retries
        self._wait_seconds, self._visibility_seconds = wait_seconds, visibility_seconds
        self._deaggregator = Deaggregator(replace(shard, hash_range=HashRange()), metrics)

    async def run(self, consumer: BatchConsumer) -> RunResult:
        """Publish until cancelled. Raises: RetriesExhaustedError, ResourceNotFoundError, FatalKinesisError."""
        self._turns.begin(self._shard.key)
        try:
            while True:
                if await self._turns.wait(self._shard.key):
                    received = await call_with_retries(self._receive, self._retries, on_retry=self._metrics.count_retry)
                    await consumer(await self._batch(received))
                    self._turns.received(len(received))
                else:
                    await consumer(RecordBatch(self._shard, (), millis_behind_latest=0))
        finally:
            self._turns.end(self._shard.key)

    async def acknowledge(self, records: Sequence[UserRecord]) -> None:
        """See RecordPublisher."""
        for number in await self._settle("AcknowledgeQueueRecords", records):
            self._receipts.acknowledged(number)
        for record in records:
            self._receipts.give_up(record.sequence_number)

    async def prolong(self, records: Sequence[UserRecord]) -> None:
        """See RecordPublisher."""
        await self._settle("UpdateQueueRecordsVisibility", records, self._visibility_seconds)

    async def release(self, records: Sequence[UserRecord]) -> None:
        """See RecordPublisher."""
        try:
            await self._settle("UpdateQueueRecordsVisibility", records, 0)
        finally:
            for record in records:
                self._receipts.give_up(record.sequence_number)

    async def _receive(self) -> list[ReceivedRecord]:
        """One call, which is not cut off: what it would bring were hidden from everybody until its time is over."""
        call = self._client.receive(self._arn, self._wait_seconds, self._visibility_seconds)
        receiving = asyncio.ensure_future(call)
        try:
            return await asyncio.shield(receiving)
        except asyncio.CancelledError:
            with suppress(KinesisError):
                handles = [received.handle for received in await receiving]
                await self._client.settle("UpdateQueueRecordsVisibility", self._arn, handles, 0)
            raise

    async def _batch(self, received: Sequence[ReceivedRecord]) -> RecordBatch:
        """The records to pass on, with all parts of each. How far it is behind is the age of the oldest one."""
        records: list[UserRecord] = []
        dropped: list[str] = []
        duplicates = 0
        for each in received:
            is_duplicate, is_passed_on = self._receipts.take(each)
            duplicates += is_duplicate
            if is_passed_on:
                records.append(UserRecord(each.data, each.record_id, each.arrival, each.partition_key))
            elif self._receipts.handle_of(each.record_id) is None:
                dropped.append(each.handle)
        self._metrics.add("duplicates", duplicates)
        if dropped:
            with suppress(TransientError):  # it comes again, and is dropped again
                await self._client.settle("AcknowledgeQueueRecords", self._arn, dropped)
        now_ms = self._clock.now_ms()
        behind_ms = max([1, *(now_ms - round(record.arrival * 1000) for record in records)]) if received else 0
        response = ReadResponse(records, behind_ms, next_iterator="")
        parts = self._deaggregator.batches(response, None, StartingPosition.trim_horizon())
        expanded = [record async for part in parts for record in part.records]
        return RecordBatch(
            self._shard, expanded, behind_ms, raw_count=parts.raw_count, raw_bytes=sum(len(r.data) for r in expanded)
        )

    async def _settle(self, api: str, records: Sequence[UserRecord], visibility: int | None = None) -> list[str]:
        """Returns the numbers of those with which it succeeded. The others are counted. Raises: RetriesExhaustedError, KinesisError."""
        of_record = {record.sequence_number: self._receipts.handle_of(record.sequence_number) for record in records}
        numbers = {handle: number for number, handle in of_record.items() if handle is not None}
        succeeded: list[str] = []
        left = list(numbers)
        for attempt in range(MOST_TRIES):
            settle = partial(self._client.settle, api, self._arn, left, visibility)
            failed = await call_with_retries(settle, self._retries, on_retry=self._metrics.count_retry)
            succeeded += [numbers[handle] for handle in left if handle not in failed]
            left = [handle for handle in left if failed.get(handle) in WORTH_A_RETRY]
            if not left:
                break
            await asyncio.sleep(self._retries.delay_seconds(attempt))
        self._metrics.add("failed_acknowledgements", len(records) - len(succeeded))
        return succeeded
