"""FanOutRecordPublisher reads one shard with SubscribeToShard, one subscription for each run."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Protocol

from ..aggregation.deaggregation import Deaggregator, DistributionPort, RecordDistributionCheck, ResponseBatches
from ..base import BatchConsumer, RecordPublisher, RunResult
from ..clock import Clock
from ..errors import ImpossibleStateError, ResourceNotFoundError
from ..kinesis.ports import ListingPort, ReadResponse, RegistrationPort, SubscriptionPort
from ..positions import SequenceNumber, StartingPosition, next_position
from ..records import RecordBatch
from ..shard_metrics import ShardMetrics
from ..shards import Shard
from .config import FanOutConfig
from .open_subscription import OpenSubscription
from .registration.consumer_registrar import ConsumerRegistrar
from .resubscribe_policy import ResubscribePolicy, resolve_not_found


class FanOutService(SubscriptionPort, RegistrationPort, ListingPort, DistributionPort, Protocol):
    """The calls to the service that fan-out needs."""

    async def close(self) -> None:
        """Close connections and release the client."""


class FanOutRecordPublisher(RecordPublisher):
    """Owns the position of the next subscription. It prefetches nothing: it reads an event after the consumer took the one before (F1).

    One `run` is one subscription, which lasts five minutes at most. When it has ended, `ResubscribePolicy` decides
    whether another may be opened, and when. `OpenSubscription` closes a subscription that brings nothing, or whose
    events wait too long for the consumer.
    """

    def __init__(
        self,
        shard: Shard,
        position: StartingPosition,
        metrics: ShardMetrics,
        config: FanOutConfig,
        ports: FanOutService,
        registrar: ConsumerRegistrar,
        clock: Clock,
        distribution: RecordDistributionCheck,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._shard = shard
        self._position = position
        self._metrics = metrics
        self._config = config
        self._ports = ports
        self._registrar = registrar
        self._clock = clock
        self._resubscribe = ResubscribePolicy(shard, config, metrics, clock, draw)
        self._deaggregator = Deaggregator(shard, metrics, distribution.foreign_sub_records)
        self._subscriptions = 0
        self._is_running = False
        self._is_complete = False
        self._was_backpressured = False

    async def run(self, consumer: BatchConsumer) -> RunResult:
        """Subscribe and publish every event. Return COMPLETE at the shard's end, INCOMPLETE if the subscription ended before.

        Return CANCELLED if the registrar is stopping.

        Raises: RetriesExhaustedError if the retries are used up, ConsumerError if the consumer cannot be used,
        StreamNotFoundError if the stream is gone, DataLossError if the shard is gone, FatalKinesisError if no retry can
        help, ImpossibleStateError if two runs overlap, and the errors of the consumer.
        """
        if self._is_running:
            raise ImpossibleStateError(f"two runs of the publisher of {self._shard.key} at once")
        self._is_running = True
        try:
            return await self._run(consumer)
        finally:
            self._is_running = False

    async def _run(self, consumer: BatchConsumer) -> RunResult:
        if self._is_complete:
            return RunResult.COMPLETE
        await self._resubscribe.wait()
        if self._registrar.is_stopping:
            return RunResult.CANCELLED
        arn = self._registrar.arn(self._shard.stream)
        subscription = await self._subscribe(arn)
        if subscription is None:
            return RunResult.INCOMPLETE
        try:
            return await self._publish(subscription, arn, consumer)
        finally:
            self._metrics.saw_subscription(False)
            await subscription.close()

    async def _subscribe(self, arn: str) -> OpenSubscription | None:
        """Open a subscription. Return None if that failed and may succeed later."""
        self._resubscribe.pacing.on_call()
        try:
            subscription = await OpenSubscription.open(
                self._ports, arn, self._shard, self._position, self._config, self._clock
            )
        except ResourceNotFoundError as error:
            await self._resolve_not_found(error, arn)
            return None
        except Exception as error:
            self._resubscribe.on_subscribe_error(error, arn)
            return None
        self._resubscribe.on_subscribed()
        self._metrics.saw_subscription(True)
        self._metrics.add("resubscribes", int(self._subscriptions > 0))
        self._subscriptions += 1
        self._was_backpressured = False
        return subscription

    async def _publish(self, subscription: OpenSubscription, arn: str, consumer: BatchConsumer) -> RunResult:
        while (event := await self._read(subscription, arn)) is not None:
            is_last = _ends_the_shard(event)
            batches = self._deaggregator.batches(event, _position_after(event), self._position)
            del event
            if not await self._consume(batches, consumer, subscription):
                return RunResult.INCOMPLETE
            if is_last:
                self._is_complete = True
                return RunResult.COMPLETE
            if subscription.is_closed_unread:
                return RunResult.INCOMPLETE
        return RunResult.INCOMPLETE

    async def _consume(self, batches: ResponseBatches, consumer: BatchConsumer, subscription: OpenSubscription) -> bool:
        """Hand an event's batches to the consumer, and wait. This is the back-pressure: the socket is not read in the meantime.

        Return False if the consumer did not take all of the event. Then the subscription is of no use, because its next
        events do not follow the returned position (P1).
        """
        started = self._clock.monotonic()
        with subscription.close_if_unread():
            async for batch in batches:
                ends = _end_positions(batch)
                consuming = consumer(batch)
                del batch  # free the records as soon as the consumer does, before the next batch (P6)
                returned = await consuming
                self._position = _next_start(self._position, returned)
                if ends is not None and returned not in ends:
                    return False
        self._was_backpressured = self._clock.monotonic() - started >= self._config.inactivity_timeout
        return True

    async def _read(self, subscription: OpenSubscription, arn: str) -> ReadResponse | None:
        """Read the next event. Return None if the subscription ended or broke, and another may be opened."""
        try:
            event = await subscription.next_event()
        except Exception as error:
            self._metrics.saw_subscription(False)
            await subscription.close()
            if isinstance(error, ResourceNotFoundError):
                await self._resolve_not_found(error, arn)
            else:
                self._resubscribe.on_read_error(error, arn, was_backpressured=self._was_backpressured)
            return None
        if event is None:
            self._resubscribe.on_clean_end()
        else:
            self._resubscribe.on_event()
        return event

    async def _resolve_not_found(self, error: ResourceNotFoundError, arn: str) -> None:
        policy = self._config.retries.list_shards
        if await resolve_not_found(self._shard, arn, self._registrar, self._ports, policy):
            self._resubscribe.on_reregistered(arn)
        else:
            self._resubscribe.on_unexplained_not_found(error)


def _ends_the_shard(event: ReadResponse) -> bool:
    """Return whether the shard ends: the event has no continuation, or it has child shards (API reference). Some servers send both (F2)."""
    return event.continuation is None or bool(event.child_shards)


def _position_after(event: ReadResponse) -> SequenceNumber | None:
    """Return the position after the event: its last record, or its continuation if it is empty.

    Only fan-out may use a continuation (F6).
    """
    if event.records:
        return SequenceNumber(event.records[-1].sequence_number)
    return None if event.continuation is None else SequenceNumber(event.continuation, continuation=True)


def _next_start(position: StartingPosition, returned: SequenceNumber | None) -> StartingPosition:
    """Return where to subscribe next. After an empty event the filter of sub-records stays: they are still to come (P2)."""
    following = next_position(position, returned)
    if returned is not None and returned.continuation:
        return replace(following, skip_through=position.skip_through)
    return following


def _end_positions(batch: RecordBatch) -> tuple[SequenceNumber | None, ...] | None:
    """Return the positions that a consumer returns if it took the whole batch, or None for a batch without records."""
    if not len(batch):
        return None
    last = batch.records[-1]
    return batch.read_position, SequenceNumber(last.sequence_number, last.sub_sequence_number)
