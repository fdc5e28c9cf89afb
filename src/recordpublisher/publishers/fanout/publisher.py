"""Reads one shard by enhanced fan-out (EFO): the publisher, its factory, its subscriptions, and when it subscribes again."""

from __future__ import annotations  # KinesisClient imports the AWS SDK at its first use.

import asyncio
import logging
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import ClassVar, Protocol

from .. import kinesis
from ..aggregation.deaggregation import (
    Deaggregator,
    RecordDistributionCheck,
    RecordDistributionChecks,
    RecordDistributionPort,
    ResponseBatches,
)
from ..base import BatchConsumer, RecordPublisher, RecordPublisherFactory, RunResult
from ..clock import Clock, SystemClock, observed_timeout
from ..errors import (
    ConsumerError,
    DataLossError,
    ExpiredIteratorError,
    ImpossibleStateError,
    ResourceInUseError,
    ResourceNotFoundError,
    RetriesExhaustedError,
    TransientError,
)
from ..kinesis import run_sync
from ..kinesis.ports import (
    ListingPort,
    ReadResponse,
    RegistrationPort,
    Subscription,
    SubscriptionPort,
    is_shard_listed,
)
from ..positions import SequenceNumber, StartingPosition, next_position
from ..properties.fan_out_properties import CONSUMER_ARN
from ..properties.properties import Properties
from ..properties.reading_properties import ENDPOINT
from ..records import RecordBatch
from ..retry import Failures, RetryPolicy, call_with_retries
from ..service_limits import SECONDS_BETWEEN_SUBSCRIBE_CALLS, SECONDS_BETWEEN_SUBSCRIPTIONS
from ..shard_metrics import ShardMetrics
from ..shards import Shard, arn_of, stream_name
from .config import FanOutConfig, RegistrationType
from .registration import ConsumerRefCounts, ConsumerRegistrar

log = logging.getLogger(__name__)


class FanOutRecordPublisher(RecordPublisher):
    """Reads one shard through subscriptions, one after another. Keeps the position from which the next subscription starts.

    The next event is read only when the callback has taken the last one.

    One `run` is one subscription, and lasts five minutes at most. When it has ended, `ResubscribePolicy` decides whether another may be
    opened, and when. `OpenSubscription` closes a subscription that brings nothing, or whose events wait too long for the callback.
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
        """Subscribe, and pass the records of every event to `consumer`.

        Return COMPLETE at the shard's end, INCOMPLETE if the subscription ended before that, or CANCELLED if the job is stopping.

        Raises:

        - RetriesExhaustedError if the retries are used up.
        - ConsumerError if the registered consumer cannot be used.
        - StreamNotFoundError if the stream is gone.
        - DataLossError if the shard is gone.
        - FatalKinesisError if no retry can help.
        - ImpossibleStateError if two runs overlap.
        - The errors of the callback `consumer`.
        """
        if self._is_running:
            raise ImpossibleStateError(
                f"the publisher of {self._shard.key} was started twice at once: call `run` again only after it has "
                "returned"
            )
        self._is_running = True
        try:
            return await self._run(consumer)
        finally:
            self._is_running = False

    async def _run(self, consumer: BatchConsumer) -> RunResult:
        if self._is_complete:
            return RunResult.COMPLETE
        # 1. Wait until the service and earlier failures allow a subscription (F3).
        await self._resubscribe.wait()
        if self._registrar.is_stopping:
            return RunResult.CANCELLED
        # 2. Subscribe from the position. The ARN is looked up each time, because the registered consumer may have been registered again.
        arn = self._registrar.arn(self._shard.stream)
        subscription = await self._subscribe(arn)
        if subscription is None:
            return RunResult.INCOMPLETE
        # 3. Read, expand and publish event by event: steps 3 to 5 are in `_publish`.
        try:
            return await self._publish(subscription, arn, consumer)
        finally:
            self._metrics.saw_subscription(False)
            await subscription.close()

    async def _subscribe(self, arn: str) -> OpenSubscription | None:
        """Open a subscription. Return None if that failed and may succeed later."""
        self._resubscribe.on_call()
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
        """Pass the records of each event to `consumer`, until the subscription ends or can no longer be used."""
        # 3. Read an event.
        while (event := await self._read(subscription, arn)) is not None:
            # 4. Expand its aggregates.
            is_last = _ends_the_shard(event)
            batches = self._deaggregator.batches(event, _position_after(event), self._position)
            del event  # If a name referred to the event, its records would stay in memory until the next event.
            # 5. Pass its batches to `consumer`, and end with the shard.
            is_taken = await self._consume(batches, consumer, subscription)
            if is_taken and is_last:
                self._is_complete = True
                return RunResult.COMPLETE
            if not is_taken or subscription.is_closed_unread:
                # This end is ours, so a take-over before it and one after it are not in a row (F10).
                self._resubscribe.on_clean_end()
                break
        return RunResult.INCOMPLETE

    async def _consume(self, batches: ResponseBatches, consumer: BatchConsumer, subscription: OpenSubscription) -> bool:
        """Pass the batches of an event to `consumer`, and wait for it. Return False if `consumer` did not take the whole event.

        The wait is the back-pressure, because the socket is not read in that time.
        """
        started = self._clock.monotonic()
        with subscription.close_if_unread():
            async for batch in batches:
                ends = _end_positions(batch)
                consuming = consumer(batch)
                # This reference must go, so that the callback can free the records before the next batch is made (P6).
                del batch
                returned = await consuming
                self._position = _next_start(self._position, returned)
                if ends is not None and returned not in ends:
                    # The subscription is closed, because its next events do not follow the returned position (P1).
                    return False
        self._was_backpressured = self._clock.monotonic() - started >= self._config.inactivity_timeout
        return True

    async def _read(self, subscription: OpenSubscription, arn: str) -> ReadResponse | None:
        """Read the next event. Return None if the subscription ended or broke, so that another one may be opened."""
        try:
            event = await subscription.next_event()
        except Exception as error:
            # The subscription is closed first, because finding out what is gone may take long.
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
    # Some servers send a continuation together with child shards (F2).
    return event.continuation is None or bool(event.child_shards)


def _position_after(event: ReadResponse) -> SequenceNumber | None:
    """Return the position after the event: its last record, or its continuation if the event has no records."""
    # The number of a record is preferred, because polling could not continue after a continuation (F6).
    if event.records:
        return SequenceNumber(event.records[-1].sequence_number)
    return None if event.continuation is None else SequenceNumber(event.continuation, continuation=True)


def _next_start(position: StartingPosition, returned: SequenceNumber | None) -> StartingPosition:
    """Return the start of the next subscription, from the start before it and the position that the callback returned."""
    following = next_position(position, returned)
    if returned is not None and returned.continuation:
        # The event had no records, so the sub-records that must be skipped are still to come (P2).
        return replace(following, skip_through=position.skip_through)
    return following


def _end_positions(batch: RecordBatch) -> tuple[SequenceNumber | None, ...] | None:
    """Return the positions that mean, if the callback returns one of them, that it took the whole batch.

    Return None for a batch without records.
    """
    if not len(batch):
        return None
    last = batch.records[-1]
    return batch.read_position, SequenceNumber(last.sequence_number, last.sub_sequence_number)


class FanOutService(SubscriptionPort, RegistrationPort, ListingPort, RecordDistributionPort, Protocol):
    """The calls to the service that enhanced fan-out needs."""

    async def close(self) -> None:
        """Close connections and release the client."""


# --- the factory --------------------------------------------------------------------------------------------------------------------


class FanOutRecordPublisherFactory(RecordPublisherFactory):
    """Makes the publishers of one worker that read by enhanced fan-out. Owns one client for all shards, and the `ConsumerRegistrar`.

    - `streams`: names or ARNs. They are checked at once. With EAGER, their consumers are also registered at once. The streams may be given
      to `prepare` instead. Without streams, EAGER registers a consumer with the first shard, as LAZY does.
    - `ports`, `clock`, `ref_counts`, `draw`: replaced in tests.

    Raises: ConfigurationError if a property is invalid; with EAGER and `streams` the errors of `register_eagerly`.
    """

    resumes_by_continuation: ClassVar[bool] = True
    keyless = True

    def __init__(
        self,
        properties: Mapping[str, object],
        streams: Iterable[str] = (),
        *,
        ports: FanOutService | None = None,
        clock: Clock | None = None,
        ref_counts: ConsumerRefCounts | None = None,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._properties = Properties(properties)
        self._config = FanOutConfig.of(self._properties)
        self._streams: tuple[str, ...] = ()
        self._ports = ports
        self._clock = clock or SystemClock()
        self._distribution_checks = RecordDistributionChecks(self._config.retries.describe_stream, self._clock)
        self._ref_counts = ref_counts
        self._draw = draw
        self._own_client: kinesis.KinesisClient | None = None
        self._registrar: ConsumerRegistrar | None = None
        self._is_closed = False
        self.prepare(tuple(streams))

    @classmethod
    def check(cls, properties: Properties, streams: Sequence[str]) -> None:
        """Check that the properties have a consumer name, or the ARN of a registered consumer for each stream.

        Raises: ConfigurationError if a name or ARN is missing.
        """
        FanOutConfig.of(properties).check_streams(streams)

    def prepare(self, streams: Sequence[str]) -> None:
        """Set the job's streams. With EAGER, also register their consumers.

        Raises: ConfigurationError if a consumer's ARN is missing; with EAGER the errors of `register_eagerly`.
        """
        self._config.check_streams(streams)
        if streams:
            self._streams = tuple(streams)
            self._properties = register_eagerly(self._properties, self._streams, ports=self._ports)
            self._config = FanOutConfig.of(self._properties)

    async def create(
        self, shard: Shard, starting_position: StartingPosition, metrics: ShardMetrics
    ) -> FanOutRecordPublisher:
        """Make a publisher of `shard`. If needed, first register the stream's consumer, and wait until it is ACTIVE.

        Raises:

        - StreamNotFoundError if the stream does not exist.
        - ConsumerError if the consumer cannot be registered.
        - KinesisError if a call fails.
        - ConfigurationError if the registration is NONE, and no property sets the stream's consumer.
        """
        if self._is_closed:
            raise ImpossibleStateError(
                "internal error: the factory of enhanced fan-out is closed and cannot make a publisher. Please "
                "report it"
            )
        ports = self._ports or self._client([shard.stream_arn or shard.stream])
        registrar = self._shared_registrar(ports)
        await registrar.ensure(shard.stream, shard.stream_arn)
        distribution = self._distribution_checks.check_of(ports, shard.stream_arn or shard.stream)
        return FanOutRecordPublisher(
            shard, starting_position, metrics, self._config, ports, registrar, self._clock, distribution, self._draw
        )

    async def release(self, stream: str) -> None:
        """Deregister the stream's consumer, unless another worker of this process uses it."""
        if self._registrar is not None:
            await self._registrar.release(stream)

    def keep_shared(self) -> None:
        """Let `close` leave the consumers registered, because other processes, or the next start of the job, use them."""
        if self._registrar is not None:
            self._registrar.keep_registered()

    async def close(self) -> None:
        """Deregister the consumers that no other worker uses and that need not stay. Then close the client."""
        self._is_closed = True
        try:
            if self._registrar is not None:
                await self._registrar.close()
        finally:
            used = self._ports or self._own_client
            if used is not None:
                await used.close()

    def shared_client(self, streams: Sequence[str]) -> kinesis.KinesisClient | None:
        """Return the client of this factory, which also lists the job's `streams` (names or ARNs). `close` closes it.

        Return None if ports were given.
        """
        return None if self._ports is not None else self._client(streams)

    def _client(self, streams: Sequence[str]) -> kinesis.KinesisClient:
        if self._own_client is None:
            self._own_client = kinesis.KinesisClient(self._properties, self._streams or streams)
        return self._own_client

    def _shared_registrar(self, ports: FanOutService) -> ConsumerRegistrar:
        if self._registrar is None:
            endpoint = self._properties.value(ENDPOINT) or ""
            self._registrar = ConsumerRegistrar(
                ports, self._config, self._clock, endpoint, self._ref_counts, self._draw
            )
        return self._registrar


def register_eagerly(
    properties: Properties, streams: Iterable[str], *, ports: FanOutService | None = None, clock: Clock | None = None
) -> Properties:
    """Register the consumer of each stream (names or ARNs) now. Return the properties with the consumers' ARNs added.

    A job that starts with these properties, in this process or another, registers nothing. Flink's connector does the same. If the
    registration is not EAGER, the properties are returned unchanged.

    - `ports`: makes the calls, and stays open. If it is None, a client is made and closed here.

    Raises: ConfigurationError if a property is invalid; StreamNotFoundError if a stream does not exist; ConsumerError if a consumer cannot
    be registered; KinesisError if a call fails.
    """
    config = FanOutConfig.of(properties)
    if config.registration is not RegistrationType.EAGER:
        return properties
    return properties.merged(
        run_sync(_register_consumers(properties, config, tuple(streams), ports, clock or SystemClock()))
    )


async def _register_consumers(
    properties: Properties, config: FanOutConfig, streams: tuple[str, ...], given: FanOutService | None, clock: Clock
) -> dict[str, str]:
    ports = given or kinesis.KinesisClient(properties, streams)
    try:
        # This registrar has reference counts of its own, because the consumers are not used here after this call.
        registrar = ConsumerRegistrar(ports, config, clock, ref_counts=ConsumerRefCounts())
        for stream in streams:
            await registrar.ensure(stream_name(stream), arn_of(stream))
    finally:
        if given is None:
            await ports.close()
    names = map(stream_name, streams)
    return {CONSUMER_ARN.key + name: registrar.arn(name) for name in names}


# --- one subscription ---------------------------------------------------------------------------------------------------------------

API = "SubscribeToShard"


class OpenSubscription:
    """One open call of SubscribeToShard. Events are requested from this object, so an event cannot come from an earlier subscription."""

    def __init__(self, subscription: Subscription, config: FanOutConfig, clock: Clock) -> None:
        self._subscription = subscription
        self._events = aiter(subscription)
        self._config = config
        self._clock = clock
        self._closing_unread: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        port: SubscriptionPort,
        arn: str,
        shard: Shard,
        position: StartingPosition,
        config: FanOutConfig,
        clock: Clock,
    ) -> OpenSubscription:
        """Open a subscription, and return it.

        Raises: TransientError if the call takes longer than `flink.shard.subscribetoshard.timeout`; the port's errors.
        """
        try:
            async with observed_timeout(clock, config.subscribe_timeout):
                return cls(await port.subscribe_to_shard(arn, shard, position), config, clock)
        except TimeoutError as error:
            message = f"Timed out acquiring subscription - {shard.key} ({arn}) after {config.subscribe_timeout:g} s"
            raise TransientError(API, "SubscriptionTimeout", message) from error

    @property
    def is_closed_unread(self) -> bool:
        """Whether the connection was closed because no event was read for too long."""
        return self._closing_unread is not None

    async def next_event(self) -> ReadResponse | None:
        """Read one event from the socket. Return None if the subscription ended without an error. The shard may continue after that.

        Raises: TransientError if no event came within the inactivity time-out, because the connection is then probably lost; the port's
        errors.
        """
        try:
            async with observed_timeout(self._clock, self._config.inactivity_timeout):
                return await anext(self._events)
        except StopAsyncIteration:
            return None
        except TimeoutError as error:
            message = f"no event for {self._config.inactivity_timeout:g} s, so the connection is probably lost"
            raise TransientError(API, "InactivityTimeout", message) from error

    @contextmanager
    def close_if_unread(self) -> Iterator[None]:
        """Close the connection if the `with` block takes longer than the unread time-out. During the block nothing is read."""
        timer = asyncio.get_running_loop().call_later(self._config.unread_timeout, self._close_unread)
        try:
            yield
        finally:
            timer.cancel()

    async def close(self) -> None:
        """Close the connection. A second call does nothing."""
        if self._closing_unread is not None:
            await self._closing_unread
        await self._subscription.close()

    def _close_unread(self) -> None:
        self._closing_unread = asyncio.create_task(self._subscription.close())


# --- when to subscribe again --------------------------------------------------------------------------------------------------------

MAX_REREGISTRATIONS = 5
MAX_PREEMPTIONS = 5
# Refusals are at least 5 s apart, so 12 of them take about a minute. A limit of time would also count a suspension of the process.
MAX_REFUSALS = 12


class ResubscribePolicy:
    """Decides when the next subscription of one shard may be opened. Counts failures in a row.

    Call an `on_...` method when that event has happened. `wait` returns when SubscribeToShard may be called.
    """

    def __init__(
        self,
        shard: Shard,
        config: FanOutConfig,
        metrics: ShardMetrics,
        clock: Clock,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._clock = clock
        self._not_before = clock.monotonic()
        self._shard = shard
        self._failures = Failures(config.retries.subscribe, draw=draw)
        self._recoverable = config.recoverable
        self._metrics = metrics
        self._draw = draw
        self._preemption = SubscriptionPreemptionDetector(shard)
        self._reregistrations = 0

    async def wait(self) -> None:
        """Wait until a subscription may be opened."""
        await self._failures.sleep(self.seconds_to_wait)

    @property
    def seconds_to_wait(self) -> float:
        """Seconds until SubscribeToShard may be called. It is 0 if it may be called now."""
        return max(0.0, self._not_before - self._clock.monotonic())

    def on_call(self) -> None:
        """Called when SubscribeToShard is about to be called."""
        self._wait_at_least(SECONDS_BETWEEN_SUBSCRIBE_CALLS)

    def on_subscribed(self) -> None:
        """Called when a subscription was opened just now."""
        self._wait_at_least(SECONDS_BETWEEN_SUBSCRIPTIONS)
        self._preemption.on_subscribed()

    def on_event(self) -> None:
        """Reset the count of failures, because an event arrived. It may have no records."""
        self._failures.on_success()
        self._reregistrations = 0

    def on_clean_end(self) -> None:
        """Called when a subscription ended without an error. The next one waits only as long as the service's rate limits demand."""
        self._preemption.on_other_end()

    def on_subscribe_error(self, error: Exception, arn: str) -> None:
        """Decide when to call again after a subscription could not be opened. Raises: `error` if a retry cannot help."""
        if isinstance(error, ResourceInUseError) and error not in self._recoverable:
            self._metrics.add("subscriptions_refused")
            self._preemption.on_in_use(arn)
            self._wait_until_free(error)
        else:
            self._plan_retry(error)

    def on_read_error(self, error: Exception, arn: str, *, was_backpressured: bool) -> None:
        """Decide when to call again after an open subscription broke with `error`.

        - `was_backpressured`: whether the job took longer to accept the last event than the inactivity time-out.

        Raises: `error` if a retry cannot help.
        """
        # Another caller has opened a subscription with this registered consumer, which has ended this one.
        if isinstance(error, ResourceInUseError):
            self._metrics.add("subscriptions_taken_over")
            self._preemption.on_preempted(arn)
            self._wait_until_free(error)
            return
        self._preemption.on_other_end()
        if was_backpressured and isinstance(error, TransientError):
            # Not counted as a failure: the connection may have broken because back-pressure has kept us from reading it for long (F5).
            self._back_off(error)
        else:
            self._plan_retry(error)

    def on_reregistered(self, arn: str) -> None:
        """Called when the registered consumer was gone, and was registered again.

        Raises: ConsumerError if this has happened more than MAX_REREGISTRATIONS times in a row.
        """
        self._preemption.on_other_end()
        self._reregistrations += 1
        if self._reregistrations > MAX_REREGISTRATIONS:
            raise ConsumerError(
                f"the registered consumer of {self._shard.key} was deregistered {self._reregistrations} times in "
                f"a row without an event in between, the last time as {arn}. Find the program that deregisters it"
            )

    def on_unexplained_not_found(self, error: Exception) -> None:
        """Count a failure after a ResourceNotFoundException although stream, shard and consumer exist.

        The service is eventually consistent.
        """
        self._preemption.on_other_end()
        self._count(error)

    def _plan_retry(self, error: Exception) -> None:
        """Decide when to call again after an error that no other caller has caused. Raises: `error` if a retry cannot help."""
        if error in self._recoverable:
            self._back_off(error)
        elif isinstance(error, TransientError):
            self._count(error)
        elif isinstance(error, ExpiredIteratorError):
            raise ImpossibleStateError(
                f"a subscription to {self._shard.key} failed with {error}, which only a read by polling can return. Please report this as "
                "a bug of recordpublisher"
            ) from error
        else:
            raise error

    def _count(self, error: Exception) -> None:
        """Count a failure, and set the time of the next call. Raises: RetriesExhaustedError if no more retries are allowed."""
        try:
            delay = self._failures.pause_after(error)
        except RetriesExhaustedError as over:
            words = f"Maximum retries exceeded for SubscribeToShard of {self._shard.key}, without an event in between: {over}"
            raise RetriesExhaustedError(words) from error
        # The log of outages tells of failures that last, in a line a minute for all shards.
        self._wait(error, delay, logging.DEBUG)

    def _back_off(self, error: Exception) -> None:
        self._wait(error, self._failures.backoff(), logging.INFO)

    def _wait(self, error: Exception, delay: float, level: int) -> None:
        self._metrics.count_retry(error)
        self._wait_at_least(delay)
        log.log(
            level, "a subscription to %s failed; the next one is opened in %.1f s: %s", self._shard.key, delay, error
        )

    def _wait_until_free(self, error: Exception) -> None:
        """Do not call again for at least 5 s. The service refuses calls for 5 s after another caller has opened a subscription."""
        # The random part keeps two callers from colliding again.
        self._wait_at_least(SECONDS_BETWEEN_SUBSCRIPTIONS + self._draw())
        log.info(
            "the subscription to %s is in use by another caller; the next attempt is in %g s: %s",
            self._shard.key,
            SECONDS_BETWEEN_SUBSCRIPTIONS,
            error,
        )

    def _wait_at_least(self, seconds: float) -> None:
        """Do not call again for at least `seconds` from now. A later time that was set before stays."""
        self._not_before = max(self._not_before, self._clock.monotonic() + seconds)


class SubscriptionPreemptionDetector:
    """Detects that another job uses the consumer: counts how often in a row another caller disturbs the subscriptions to one shard.

    It counts subscriptions that were taken over, and calls that the service refused. After a restart a subscription is taken over once or
    twice, which is normal. If a second job uses the same consumer name, every subscription is taken over.
    """

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._preemptions = 0
        self._refusals = 0

    def on_subscribed(self) -> None:
        """Reset the count of refusals, because a subscription was opened."""
        self._refusals = 0

    def on_other_end(self) -> None:
        """Reset the count of subscriptions that were taken over, because a subscription ended for another reason."""
        self._preemptions = 0

    def on_preempted(self, arn: str) -> None:
        """Count that another caller took over the subscription. Raises: ConsumerError after MAX_PREEMPTIONS in a row."""
        self._preemptions += 1
        error = ConsumerError(
            f"the subscription to {self._shard.key} was taken over {self._preemptions} times in a row: another job uses the "
            f"consumer {arn}; give each job its own flink.stream.efo.consumername"
        )
        _warn_or_raise(error, self._preemptions, MAX_PREEMPTIONS)

    def on_in_use(self, arn: str) -> None:
        """Count that the service refused a subscription because the registered consumer is in use.

        Raises: ConsumerError after MAX_REFUSALS in a row.
        """
        self._refusals += 1
        error = ConsumerError(
            f"subscriptions to {self._shard.key} were refused {self._refusals} times in a row: either another job uses the consumer {arn} "
            "(give each job its own flink.stream.efo.consumername), or the consumer is not ACTIVE"
        )
        _warn_or_raise(error, self._refusals, MAX_REFUSALS)


def _warn_or_raise(error: ConsumerError, count: int, most: int) -> None:
    """Raise `error` if `count` has reached `most`. Log it as a warning when `count` has just passed half of `most`."""
    if count >= most:
        raise error
    # After a restart one or two are normal, so they are not logged.
    if count == most // 2 + 1:
        log.warning("%s. The job ends if this happens %d times in a row", error, most)


async def resolve_not_found(
    shard: Shard, arn: str, registrar: ConsumerRegistrar, listing: ListingPort, policy: RetryPolicy
) -> bool:
    """Find out what is gone after a ResourceNotFoundException: the stream, the shard or the registered consumer.

    Return True if the consumer was gone and is registered again. Return False if stream, shard and consumer all exist.

    Raises: StreamNotFoundError if the stream is gone; DataLossError if the shard is gone; ConsumerError if the consumer is gone and the
    registration is NONE.
    """
    if registrar.arn(shard.stream) != arn:  # The reader of another shard has already registered the consumer again.
        return True
    is_listed = await call_with_retries(lambda: is_shard_listed(listing, shard), policy)
    was_consumer_gone = await registrar.reregister_if_gone(shard.stream, arn)
    # The service did not find the shard or the consumer, and a listing may lack a shard that exists. So the shard is gone only if it is
    # not listed and the consumer exists.
    if not is_listed and not was_consumer_gone:
        raise DataLossError(f"{shard.key} is gone: it is past the stream's retention, and was not read to its end")
    return was_consumer_gone
