"""PollingRecordPublisher: one shard, read with GetRecords."""

from __future__ import annotations

import asyncio
import math
from collections.abc import MutableMapping
from typing import Protocol

from ..aggregation.deaggregation import Deaggregator, DistributionPort
from ..base import BatchConsumer, RecordPublisher, RunResult
from ..clock import Clock
from ..errors import ExpiredIteratorError, ResourceNotFoundError, ThrottledError, TransientError
from ..kinesis.ports import ListingPort, PollingPort, ReadResponse
from ..positions import SequenceNumber, StartingPosition, next_position
from ..records import RecordBatch
from ..retry import call_with_retries, retry_counter
from ..shard_metrics import ShardMetrics
from ..shards import Shard
from .config import PollingConfig
from .rate_control import (
    MIN_CALL_INTERVAL_SECONDS,
    CarriedReaderState,
    RecordSize,
    key_bytes_of,
    next_read_at,
    read_limit,
    retry_pause_seconds,
)
from .shard_iterator import ShardIterator, why_not_found


class PollingService(PollingPort, ListingPort, DistributionPort, Protocol):
    """What polling asks of the service."""


class PollingRecordPublisher(RecordPublisher):
    """Owns the read position of one shard and the pace of its reads; leaves state, order and time to the consumer.

    `run` reads until the shard's end and then answers COMPLETE, also when called again; it never answers INCOMPLETE. It is
    stopped by cancelling its task, at any await; a later `run` goes on from the last position that the consumer answered.
    """

    def __init__(
        self,
        service: PollingService,
        shard: Shard,
        position: StartingPosition,
        config: PollingConfig,
        metrics: ShardMetrics,
        clock: Clock,
        deaggregator: Deaggregator | None = None,
        memory: MutableMapping[str, CarriedReaderState] | None = None,
    ) -> None:
        """`memory`: what publishers left behind, by `Shard.key`."""
        self._service = service
        self._shard = shard
        self._position = position
        self._config = config
        self._metrics = metrics
        self._clock = clock
        self._deaggregator = deaggregator or Deaggregator(shard, metrics)
        self._iterator = ShardIterator(service, shard, config.get_iterator, metrics, clock)
        self._size = RecordSize()
        self._room: int | None = None
        self._read_at = clock.monotonic()
        self._answered_at = self._next_read_at = self._read_at
        self._unanswered_at = -math.inf
        self._loop_seconds = config.interval_seconds
        self._is_complete = False
        self._memory = {} if memory is None else memory
        if (left := self._memory.pop(shard.key, None)) is not None:
            self._take_over(left)

    def set_read_budget(self, held_bytes: int) -> None:
        """From now on a read asks for no more records than fit into `held_bytes`, but for at least one (P6)."""
        self._room = held_bytes

    async def run(self, consumer: BatchConsumer) -> RunResult:
        """Publish batches, empty ones included, until the shard's end.

        Raises: RetriesExhaustedError, FatalKinesisError, StreamNotFoundError; DataLossError when the shard vanished before its end.
        """
        try:
            while not self._is_complete:
                await asyncio.sleep(max(0.0, self._next_read_at - self._clock.monotonic()))
                await self._publish(await self._read(), consumer)
        except Exception:
            self._iterator.drop()  # it may be what failed: who tries again is not to fail by it for good
            raise
        finally:
            self._leave()
        return RunResult.COMPLETE

    async def _publish(self, answer: ReadResponse, consumer: BatchConsumer) -> None:
        batch = await self._batch_of(answer)
        position, following = batch.read_position, answer.next_iterator
        taking = consumer(batch)
        del answer, batch  # what the consumer has let go of is not held here, nor until the next read (P6)
        self._advance(position, following, await taking)

    def _take_over(self, left: CarriedReaderState) -> None:
        """Go on where another publisher of the shard stopped; its iterator serves only when it stood where this one begins."""
        self._size, self._unanswered_at = left.size, left.unanswered_at
        self._next_read_at = max(left.next_read_at, left.unanswered_at + MIN_CALL_INTERVAL_SECONDS)
        if left.iterator is not None and left.position == self._position:
            self._iterator.follow(left.iterator, left.since)

    def _leave(self) -> None:
        if not self._is_complete:
            in_hand = self._iterator.in_hand
            self._memory[self._shard.key] = CarriedReaderState(
                self._position, *in_hand, self._size, self._next_read_at, self._unanswered_at
            )

    async def _read(self) -> ReadResponse:
        """The next answer. The iterator is used up with it: a cancellation before the consumer answered reads again."""
        self._loop_seconds, self._read_at = self._clock.monotonic() - self._read_at, self._clock.monotonic()
        answer = await call_with_retries(
            self._answer,
            self._config.get_records,
            on_retry=retry_counter(self._metrics),
            min_pause=self._pause_seconds,
        )
        self._answered_at = self._clock.monotonic()
        self._iterator.drop()
        return answer

    async def _answer(self) -> ReadResponse:
        """One answer, by new iterators as often as they expire (R2). Raises: TransientError when it is worth a retry."""
        while True:
            try:
                iterator = await self._iterator.at(self._position)
                self._read_at = self._clock.monotonic()
                return await self._answer_to(iterator)
            except ExpiredIteratorError:
                self._iterator.expire()
                await asyncio.sleep(MIN_CALL_INTERVAL_SECONDS)
            except ResourceNotFoundError as error:
                self._iterator.drop()
                raise await why_not_found(self._service, self._shard, error, self._config.list_shards) from error

    async def _answer_to(self, iterator: str) -> ReadResponse:
        earlier, self._unanswered_at = self._unanswered_at, self._read_at
        try:
            answer = await self._service.get_records(self._shard, iterator, self._limit())
        except (ThrottledError, ExpiredIteratorError):  # refused, so not charged
            self._unanswered_at = earlier
            raise
        self._unanswered_at = -math.inf
        return answer

    def _pause_seconds(self, error: TransientError) -> float:
        return retry_pause_seconds(error, self._clock.monotonic() - self._unanswered_at)

    def _limit(self) -> int:
        is_adaptive = self._config.adaptive and self._size.is_measured
        return read_limit(self._config.max_records, self._size, self._room, self._loop_seconds if is_adaptive else None)

    async def _batch_of(self, answer: ReadResponse) -> RecordBatch:
        """The answer as a batch of user records, counted; sets the pace and the expected record size."""
        raw = answer.records
        batch = RecordBatch(
            self._shard,
            await self._deaggregator.user_records(raw, self._position),
            answer.millis_behind_latest,
            SequenceNumber(raw[-1].sequence_number) if raw else None,
            answer.child_shards,
            raw_count=len(raw),
            raw_bytes=sum([len(record.data) for record in raw]),
        )
        read_bytes = batch.raw_bytes + key_bytes_of(raw)
        self._next_read_at = next_read_at(self._read_at, self._answered_at, self._config.interval_seconds, read_bytes)
        self._size = self._size.after(batch, read_bytes)
        self._count(batch)
        return batch

    def _count(self, batch: RecordBatch) -> None:
        metrics = self._metrics
        metrics.reads += 1
        metrics.number_of_aggregated_records += batch.raw_count
        metrics.number_of_deaggregated_records += len(batch)
        metrics.bytes_read += batch.raw_bytes
        metrics.bytes_per_read = batch.raw_bytes
        if batch.millis_behind_latest is not None:
            metrics.millis_behind_latest = batch.millis_behind_latest

    def _advance(self, read: SequenceNumber | None, following: str | None, answered: SequenceNumber | None) -> None:
        """Go on behind the answered position and nothing else (P1): the iterator `following` stands behind `read` and serves only there."""
        self._position = next_position(self._position, answered)
        if answered != read:
            return
        if following is None:
            self._is_complete = True
        else:
            self._iterator.follow(following, self._answered_at)
