"""PollingRecordPublisher reads one shard with GetRecords."""

from __future__ import annotations

import asyncio
import math
from collections.abc import MutableMapping
from typing import Protocol

import msgspec

from ..aggregation.deaggregation import Deaggregator
from ..aggregation.record_distribution import DistributionPort
from ..base import BatchConsumer, RecordPublisher, RunResult
from ..clock import Clock
from ..errors import ExpiredIteratorError, ResourceNotFoundError, ThrottledError, TransientError
from ..kinesis.ports import ListingPort, PollingPort, ReadResponse
from ..positions import SequenceNumber, StartingPosition, next_position
from ..records import columns_of
from ..retry import call_with_retries
from ..shard_metrics import ShardMetrics
from ..shards import Shard
from .config import PollingConfig
from .read_limit import RecordSize, records_to_request
from .read_rate import MIN_CALL_INTERVAL_SECONDS, interval_after, next_read_at, retry_pause_seconds
from .shard_iterator import ShardIterator, explain_not_found


class PollingService(PollingPort, ListingPort, DistributionPort, Protocol):
    """The calls to the service that polling needs."""


class PollingRecordPublisher(RecordPublisher):
    """Owns the read position of one shard and the rate of its reads. State, order and time belong to the consumer.

    `run` reads to the shard's end and returns COMPLETE, and returns it again if it is called again. It never returns
    INCOMPLETE. Cancel its task to stop it. A later `run` resumes from the last position that the consumer returned.

    `carried_states` has the states of earlier publishers in this process, by `Shard.key`. The publisher resumes from
    its shard's entry.
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
        carried_states: MutableMapping[str, CarriedReaderState] | None = None,
    ) -> None:
        self._service = service
        self._shard = shard
        self._position = position
        self._config = config
        self._metrics = metrics
        self._clock = clock
        self._deaggregator = deaggregator or Deaggregator(shard, metrics)
        self._iterator = ShardIterator(service, shard, config.get_iterator, metrics, clock)
        self._size = RecordSize()
        self._read_budget: int | None = None
        self._read_at = clock.monotonic()
        self._responded_at = self._next_read_at = self._read_at
        self._lost_read_at = -math.inf
        self._loop_seconds = config.interval_seconds
        self._is_complete = False
        self._carried_states = {} if carried_states is None else carried_states
        if (carried := self._carried_states.pop(shard.key, None)) is not None:
            self._resume(carried)

    def set_read_budget(self, held_bytes: int) -> None:
        """Request no more records than fit into `held_bytes` from now on, but at least one (P6)."""
        self._read_budget = held_bytes

    async def run(self, consumer: BatchConsumer) -> RunResult:
        """Publish batches, empty ones included, until the shard's end.

        Raises: RetriesExhaustedError if the retries are used up, FatalKinesisError if no retry can help,
        StreamNotFoundError if the stream is gone, DataLossError if the shard vanished before its end.
        """
        try:
            while not self._is_complete:
                await asyncio.sleep(max(0.0, self._next_read_at - self._clock.monotonic()))
                await self._publish(await self._read(), consumer)
        except Exception:
            self._iterator.discard()  # the iterator may be the cause: the next run takes a new one
            raise
        finally:
            self._carry_state()
        return RunResult.COMPLETE

    async def _publish(self, response: ReadResponse, consumer: BatchConsumer) -> None:
        """Hand the response's batches to the consumer. Resume only from the position that it returns (P1)."""
        batches = self._deaggregator.batches(response, _position_after(response), self._position)
        size, next_iterator = self._size, response.next_iterator
        read_bytes = batches.raw_bytes + columns_of(response.records).key_bytes
        interval = interval_after(response, self._config)
        self._next_read_at = next_read_at(self._read_at, self._responded_at, interval, read_bytes)
        del response
        async for batch in batches:
            self._size = size.after(batches.raw_count, read_bytes, batches.held_bytes)
            position = batch.read_position
            consuming = consumer(batch)
            del batch  # free the records as soon as the consumer does, before the next batch (P6)
            returned = await consuming
            self._position = next_position(self._position, returned)
            if returned != position:
                return  # the next records are read again, so the rest and the iterator are of no use
        if next_iterator is None:
            self._is_complete = True
        else:
            self._iterator.set(next_iterator, self._responded_at)

    def _resume(self, carried: CarriedReaderState) -> None:
        """Continue from the state of an earlier publisher of the shard. Its iterator is valid only for the same position."""
        self._size, self._lost_read_at = carried.size, carried.lost_read_at
        self._next_read_at = max(carried.next_read_at, carried.lost_read_at + MIN_CALL_INTERVAL_SECONDS)
        if carried.iterator is not None and carried.position == self._position:
            self._iterator.set(carried.iterator, carried.since)

    def _carry_state(self) -> None:
        if not self._is_complete:
            iterator_and_age = self._iterator.current
            self._carried_states[self._shard.key] = CarriedReaderState(
                self._position, *iterator_and_age, self._size, self._next_read_at, self._lost_read_at
            )

    async def _read(self) -> ReadResponse:
        """Read the next response, and discard its iterator: after a cancellation the same records are read again from the position."""
        self._loop_seconds, self._read_at = self._clock.monotonic() - self._read_at, self._clock.monotonic()
        response = await call_with_retries(
            self._read_once, self._config.get_records, on_retry=self._metrics.count_retry, min_pause=self._pause_seconds
        )
        self._responded_at = self._clock.monotonic()
        self._iterator.discard()
        return response

    async def _read_once(self) -> ReadResponse:
        """Read once, with a new iterator each time one expires (R2).

        Raises: TransientError if a retry may help; the error of `explain_not_found` if the service does not find the
        shard.
        """
        while True:
            try:
                iterator = await self._iterator.get(self._position)
                self._read_at = self._clock.monotonic()
                return await self._get_records(iterator)
            except ExpiredIteratorError:
                self._iterator.discard_expired()
                await asyncio.sleep(MIN_CALL_INTERVAL_SECONDS)
            except ResourceNotFoundError as error:
                self._iterator.discard()
                raise await explain_not_found(self._service, self._shard, error, self._config.list_shards) from error

    async def _get_records(self, iterator: str) -> ReadResponse:
        earlier, self._lost_read_at = self._lost_read_at, self._read_at
        try:
            response = await self._service.get_records(self._shard, iterator, self._limit())
        except (ThrottledError, ExpiredIteratorError):  # a refused read does not count against the quota
            self._lost_read_at = earlier
            raise
        self._lost_read_at = -math.inf
        return response

    def _pause_seconds(self, error: TransientError) -> float:
        return retry_pause_seconds(error, self._clock.monotonic() - self._lost_read_at)

    def _limit(self) -> int:
        is_adaptive = self._config.adaptive and self._size.is_measured
        return records_to_request(
            self._config.max_records, self._size, self._read_budget, self._loop_seconds if is_adaptive else None
        )


def _position_after(response: ReadResponse) -> SequenceNumber | None:
    return SequenceNumber(response.records[-1].sequence_number) if response.records else None


class CarriedReaderState(msgspec.Struct, frozen=True):
    """The state that a publisher leaves for the next one of its shard, so that iterators, quotas and sizes survive it.

    - `iterator`: valid at `position`, taken at `since`; None if there is none.
    - `next_read_at`: no read may start before (R1).
    - `lost_read_at`: the start of a read whose response was lost, else -inf.

    All times are monotonic seconds.
    """

    position: StartingPosition
    iterator: str | None
    since: float
    size: RecordSize
    next_read_at: float
    lost_read_at: float
