"""ResubscribePolicy decides whether another subscription may be opened after a failure, and when (F3, F5, F10)."""

import logging
import random
from collections.abc import Callable

from ..clock import Clock
from ..errors import (
    ConsumerError,
    DataLossError,
    ExpiredIteratorError,
    ImpossibleStateError,
    ResourceInUseError,
    RetriesExhaustedError,
    TransientError,
)
from ..kinesis.ports import ListingPort, is_shard_listed
from ..retry import Failures, RetryPolicy, call_with_retries
from ..service_limits import SECONDS_BETWEEN_SUBSCRIBE_CALLS, SECONDS_BETWEEN_SUBSCRIPTIONS
from ..shard_metrics import ShardMetrics
from ..shards import Shard
from .config import FanOutConfig
from .registration.consumer_registrar import ConsumerRegistrar

log = logging.getLogger(__name__)

MAX_REREGISTRATIONS = 5


class ResubscribePolicy:
    """Owns one shard's count of failures in a row. Its parts own the count of pre-emptions and the time of the next call."""

    def __init__(
        self,
        shard: Shard,
        config: FanOutConfig,
        metrics: ShardMetrics,
        clock: Clock,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self.pacing = Pacing(clock)
        self._shard = shard
        self._failures = Failures(config.retries.subscribe, draw=draw)
        self._recoverable = config.recoverable
        self._metrics = metrics
        self._draw = draw
        self._preemption = SubscriptionPreemptionDetector(shard)
        self._reregistrations = 0

    async def wait(self) -> None:
        """Wait until a subscription may be opened."""
        await self._failures.sleep(self.pacing.seconds_to_wait)

    def on_subscribed(self) -> None:
        """Note that a subscription was opened."""
        self.pacing.on_subscribed()
        self._preemption.on_subscribed()

    def on_event(self) -> None:
        """Reset the retry budget, because an event arrived, empty or not."""
        self._failures.on_success()
        self._reregistrations = 0

    def on_clean_end(self) -> None:
        """Note that a subscription ended without an error. The next one only keeps the service's rate limits."""
        self._preemption.on_other_end()

    def on_subscribe_error(self, error: Exception, arn: str) -> None:
        """Plan the next call after a subscription could not be opened. Raises: the error if a retry cannot help."""
        if isinstance(error, ResourceInUseError) and error not in self._recoverable:
            self._metrics.add("subscriptions_refused")
            self._preemption.on_in_use(arn)
            self._wait_until_free(error)
        else:
            self._plan_retry(error)

    def on_read_error(self, error: Exception, arn: str, *, was_backpressured: bool) -> None:
        """Plan the next call after an open subscription broke.

        `was_backpressured` says that the consumer had blocked the reader for long. This may have caused the break, so
        it is not counted (F5).

        Raises: the error if a retry cannot help.
        """
        if isinstance(error, ResourceInUseError):
            self._metrics.add("subscriptions_taken_over")
            self._preemption.on_preempted(arn)
            return self._wait_until_free(error)
        self._preemption.on_other_end()
        if was_backpressured and isinstance(error, TransientError):
            return self._back_off(error)
        return self._plan_retry(error)

    def _plan_retry(self, error: Exception) -> None:
        if error in self._recoverable:
            self._back_off(error)
        elif isinstance(error, TransientError):
            self._count(error)
        elif isinstance(error, ExpiredIteratorError):
            raise ImpossibleStateError(
                f"a subscription to {self._shard.key} failed with {error}, although it has no iterator"
            ) from error
        else:
            raise error

    def on_reregistered(self, arn: str) -> None:
        """Note that the consumer was gone and is registered again. Raises: ConsumerError after more than MAX_REREGISTRATIONS in a row."""
        self._preemption.on_other_end()
        self._reregistrations += 1
        if self._reregistrations > MAX_REREGISTRATIONS:
            raise ConsumerError(
                f"the consumer of {self._shard.key} vanished {self._reregistrations} times in a row without an event between, last {arn}: "
                "someone keeps deregistering it"
            )

    def on_unexplained_not_found(self, error: Exception) -> None:
        """Count a failure, because the service did not find a resource that exists (it is eventually consistent)."""
        self._preemption.on_other_end()
        self._count(error)

    def _count(self, error: Exception) -> None:
        try:
            delay = self._failures.pause_after(error)
        except RetriesExhaustedError as over:
            words = (
                f"Maximum retries exceeded for SubscribeToShard of {self._shard.key}, without an event between: {over}"
            )
            raise RetriesExhaustedError(words) from error
        self._wait(error, delay)

    def _back_off(self, error: Exception) -> None:
        self._wait(error, self._failures.backoff())

    def _wait(self, error: Exception, delay: float) -> None:
        self._metrics.count_retry(error)
        self.pacing.wait_at_least(delay)
        log.info("subscribing to %s again in %.1f s: %s", self._shard.key, delay, error)

    def _wait_until_free(self, error: Exception) -> None:
        """Wait at least 5 s, because the service refuses calls within 5 s of another caller's success.

        Jitter keeps two callers from colliding.
        """
        self.pacing.wait_at_least(SECONDS_BETWEEN_SUBSCRIPTIONS + self._draw())
        log.info(
            "subscription to %s is in use, waiting out %g s: %s", self._shard.key, SECONDS_BETWEEN_SUBSCRIPTIONS, error
        )


class Pacing:
    """Owns the earliest time of the next SubscribeToShard call."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._not_before = clock.monotonic()

    def on_call(self) -> None:
        """Note that a call is sent now."""
        self.wait_at_least(SECONDS_BETWEEN_SUBSCRIBE_CALLS)

    def on_subscribed(self) -> None:
        """Note that a subscription was opened just now."""
        self.wait_at_least(SECONDS_BETWEEN_SUBSCRIPTIONS)

    def wait_at_least(self, seconds: float) -> None:
        """Wait at least `seconds` from now. A later time that was set before stays."""
        self._not_before = max(self._not_before, self._clock.monotonic() + seconds)

    @property
    def seconds_to_wait(self) -> float:
        """Seconds until a call may be sent; 0 if it may be sent now."""
        return max(0.0, self._not_before - self._clock.monotonic())


async def resolve_not_found(
    shard: Shard, arn: str, registrar: ConsumerRegistrar, listing: ListingPort, policy: RetryPolicy
) -> bool:
    """Find out what a ResourceNotFoundException is about: stream, shard or consumer. It never means the end of a shard.

    Return True if the consumer was gone and is registered again, False if stream, shard and consumer all exist. A
    listing may lack a shard that exists. So the shard counts as gone only if the consumer exists: then it was the shard
    that the service did not find.

    Raises: StreamNotFoundError if the stream is gone, DataLossError if the shard is gone, ConsumerError if the consumer
    is gone and the registration is NONE.
    """
    if registrar.arn(shard.stream) != arn:  # the reader of another shard has registered it already
        return True
    is_listed = await call_with_retries(lambda: is_shard_listed(listing, shard), policy)
    was_consumer_gone = await registrar.reregister_if_gone(shard.stream, arn)
    if not is_listed and not was_consumer_gone:
        raise DataLossError(f"{shard.key} is gone: it is past the stream's retention and was not read to its end")
    return was_consumer_gone


MAX_PREEMPTIONS = 5
MAX_REFUSALS = 12  # at least 5 s apart, so about a minute; a suspension does not distort a count


class SubscriptionPreemptionDetector:
    """Owns two counts for one shard: subscriptions taken over in a row, and subscribe calls refused in a row.

    After a restart a subscription is taken over once or twice, which is normal. A second job with our consumer's name
    takes over each time.
    """

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._preemptions = 0
        self._refusals = 0

    def on_subscribed(self) -> None:
        """Reset the count of refusals, because a subscription was opened."""
        self._refusals = 0

    def on_other_end(self) -> None:
        """Reset the count of pre-emptions, because a subscription ended for another reason."""
        self._preemptions = 0

    def on_preempted(self, arn: str) -> None:
        """Count that another caller took over our subscription. Raises: ConsumerError after MAX_PREEMPTIONS in a row."""
        self._preemptions += 1
        error = ConsumerError(
            f"the subscription to {self._shard.key} was taken over {self._preemptions} times in a row: another job uses the "
            f"consumer {arn}; give each job its own flink.stream.efo.consumername"
        )
        _tell(error, self._preemptions, MAX_PREEMPTIONS)

    def on_in_use(self, arn: str) -> None:
        """Count that the service refused to subscribe because the consumer is in use. Raises: ConsumerError after MAX_REFUSALS in a row."""
        self._refusals += 1
        error = ConsumerError(
            f"{self._shard.key} cannot be subscribed to, in use {self._refusals} times in a row: either another job uses the "
            f"consumer {arn} (give each job its own flink.stream.efo.consumername) or it is not ACTIVE"
        )
        _tell(error, self._refusals, MAX_REFUSALS)


def _tell(error: ConsumerError, count: int, most: int) -> None:
    """Warn once, when the count passes half of `most`, because one or two are normal after a restart. Raises: `error` at `most`."""
    if count >= most:
        raise error
    if count == most // 2 + 1:
        log.warning("%s; %d more end this one", error, most - count)
