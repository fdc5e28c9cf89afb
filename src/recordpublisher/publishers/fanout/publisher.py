"""FanOutRecordPublisher: one shard through SubscribeToShard, one subscription for each run."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace

from ..aggregation.deaggregation import Deaggregator
from ..base import BatchConsumer, RecordPublisher, RunResult
from ..clock import Clock
from ..errors import DataLossError, ImpossibleStateError, ResourceNotFoundError, StreamNotFoundError
from ..kinesis.ports import ReadAnswer
from ..positions import SequenceNumber, StartingPosition, next_position
from ..records import RecordBatch
from ..retry import retrying
from ..shard_metrics import ShardMetrics
from ..shards import Shard
from .config import FanOutConfig
from .consumer_registrar import FanOutPorts, Registrar
from .resubscribe_policy import LostResource, Recovery
from .subscription import OpenSubscription


class FanOutRecordPublisher(RecordPublisher):
    """Owns where to subscribe next. Nothing is prefetched: an event is read when the one before was taken (F1).

    `run` lives as long as one subscription, five minutes at most; whatever ends it is judged by `Recovery`, which also says when the
    next run may subscribe.
    """

    def __init__(
        self,
        shard: Shard,
        position: StartingPosition,
        metrics: ShardMetrics,
        config: FanOutConfig,
        ports: FanOutPorts,
        registrar: Registrar,
        clock: Clock,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._shard = shard
        self._position = position
        self._metrics = metrics
        self._config = config
        self._ports = ports
        self._registrar = registrar
        self._clock = clock
        self._recovery = Recovery(shard, config, metrics, clock, draw)
        self._lost_resource = LostResource(registrar, ports, config.retries.list_shards)
        self._deaggregator = Deaggregator(shard, metrics, self._keys_decide)
        self._subscriptions = 0
        self._is_running = False
        self._is_complete = False
        self._was_held_up = False

    async def run(self, consumer: BatchConsumer) -> RunResult:
        """Subscribe, publish every event, return COMPLETE at the shard's end and INCOMPLETE when the subscription ended before.

        Raises: RetriesExhaustedError, ConsumerError, StreamNotFoundError, DataLossError, FatalKinesisError, ImpossibleStateError,
        and whatever the consumer raises.
        """
        if self._is_running:
            raise ImpossibleStateError(f"two runs of the publisher of {self._shard.key} at once")
        self._is_running = True
        try:
            return await self._run(consumer)
        except (StreamNotFoundError, DataLossError):  # the job may go on without this stream or shard
            raise
        except Exception:
            self._registrar.leave_registered(self._shard.stream)
            raise
        finally:
            self._is_running = False

    async def _run(self, consumer: BatchConsumer) -> RunResult:
        if self._is_complete:
            return RunResult.COMPLETE
        await asyncio.sleep(self._recovery.pacing.seconds_to_wait)
        if self._registrar.is_stopping:
            return RunResult.CANCELLED
        arn = self._registrar.arn(self._shard.stream)
        subscription = await self._subscribe(arn)
        if subscription is None:
            return RunResult.INCOMPLETE
        try:
            return await self._publish(subscription, arn, consumer)
        finally:
            self._metrics.subscribed = 0
            await subscription.close()

    async def _subscribe(self, arn: str) -> OpenSubscription | None:
        """Open a subscription; None after a failure that another try may mend."""
        self._recovery.pacing.called()
        try:
            subscription = await OpenSubscription.open(
                self._ports, arn, self._shard, self._position, self._config, self._clock
            )
        except ResourceNotFoundError as error:
            await self._look_closer(error, arn)
            return None
        except Exception as error:
            self._recovery.refused(error, arn)
            return None
        self._recovery.established()
        self._metrics.subscribed = 1
        self._metrics.resubscribes += self._subscriptions > 0
        self._subscriptions += 1
        self._was_held_up = False
        return subscription

    async def _publish(self, subscription: OpenSubscription, arn: str, consumer: BatchConsumer) -> RunResult:
        while (event := await self._read(subscription, arn)) is not None:
            is_last, batch = _ends_the_shard(event), await self._batch_of(event)
            ends = _ends_of(batch)
            taking = consumer(batch)
            del event, batch  # what the consumer has let go of is not held here, nor until the next event (P6)
            answered = await self._taken(taking, subscription)
            self._position = _advanced(self._position, answered)
            if ends is not None and answered not in ends:
                return RunResult.INCOMPLETE
            if is_last:
                self._is_complete = True
                return RunResult.COMPLETE
            if subscription.is_given_back:
                return RunResult.INCOMPLETE
        return RunResult.INCOMPLETE

    async def _read(self, subscription: OpenSubscription, arn: str) -> ReadAnswer | None:
        """The next event; None when the subscription ended or broke and another may be opened."""
        try:
            event = await subscription.next_event()
        except Exception as error:
            self._metrics.subscribed = 0
            await subscription.close()
            if isinstance(error, ResourceNotFoundError):
                await self._look_closer(error, arn)
            else:
                self._recovery.broken(error, arn, was_held_up=self._was_held_up)
            return None
        if event is None:
            self._recovery.ended()
        else:
            self._recovery.progressed()
        return event

    async def _look_closer(self, error: ResourceNotFoundError, arn: str) -> None:
        if await self._lost_resource.heal(self._shard, arn):
            self._recovery.healed(arn)
        else:
            self._recovery.not_found_without_reason(error)

    async def _taken(
        self, taking: Awaitable[SequenceNumber | None], subscription: OpenSubscription
    ) -> SequenceNumber | None:
        """Wait for the consumer: this is the back-pressure, the socket is not read meanwhile."""
        started = self._clock.monotonic()
        with subscription.unread():
            answered = await taking
        self._was_held_up = self._clock.monotonic() - started >= self._config.inactivity_timeout
        return answered

    async def _batch_of(self, event: ReadAnswer) -> RecordBatch:
        raw = event.records
        batch = RecordBatch(
            self._shard,
            await self._deaggregator.user_records(raw, self._position),
            event.millis_behind_latest,
            _position_after(event),
            event.child_shards,
            len(raw),
            sum([len(record.data) for record in raw]),
        )
        self._count(batch)
        return batch

    async def _keys_decide(self) -> bool:
        stream = self._shard.stream_arn or self._shard.stream
        return await retrying(lambda: self._ports.keys_decide(stream), self._config.retries.describe_stream)

    def _count(self, batch: RecordBatch) -> None:
        metrics = self._metrics
        metrics.reads += 1
        metrics.bytes_read += batch.raw_bytes
        metrics.bytes_per_read = batch.raw_bytes
        metrics.number_of_aggregated_records += batch.raw_count
        metrics.number_of_deaggregated_records += len(batch)
        if batch.millis_behind_latest is not None:
            metrics.millis_behind_latest = batch.millis_behind_latest


def _ends_the_shard(event: ReadAnswer) -> bool:
    """No continuation, or children, which come at the end of a shard only (API reference); some servers give both (F2)."""
    return event.continuation is None or bool(event.child_shards)


def _position_after(event: ReadAnswer) -> SequenceNumber | None:
    """Behind the last record, or, for an empty event, behind its continuation, which only fan-out may use (F6)."""
    if event.records:
        return SequenceNumber(event.records[-1].sequence_number)
    return None if event.continuation is None else SequenceNumber(event.continuation, continuation=True)


def _advanced(position: StartingPosition, answered: SequenceNumber | None) -> StartingPosition:
    """Where to subscribe next. An empty event says nothing about sub-records still to come, so their filter stays (P2)."""
    following = next_position(position, answered)
    if answered is not None and answered.continuation:
        return replace(following, skip_through=position.skip_through)
    return following


def _ends_of(batch: RecordBatch) -> tuple[SequenceNumber | None, ...] | None:
    """The answers behind the batch; any other goes back into it, or before it, and the events that follow are not the next ones (P1).

    None for a batch without records, which nobody can go back into.
    """
    if not len(batch):
        return None
    last = batch.records[-1]
    return batch.read_position, SequenceNumber(last.sequence_number, last.sub_sequence_number)
