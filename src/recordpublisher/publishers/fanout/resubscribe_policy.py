"""Recovery: what a failed subscription means, whether another may be opened, and when (F3, F5, F10)."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

from ..clock import Clock
from ..errors import (
    ConsumerError,
    ExpiredIteratorError,
    ImpossibleStateError,
    ResourceInUseError,
    RetriesExhaustedError,
    ThrottledError,
    TransientError,
)
from ..shard_metrics import ShardMetrics
from ..shards import Shard
from .config import FanOutConfig
from .pacing import SECONDS_AFTER_SUCCESS, Pacing
from .preemption_detector import TakeOverWatch

log = logging.getLogger(__name__)

MAX_HEALS = 5


class Recovery:
    """Owns one shard's failures in a row and, through its parts, the take-overs and the time of the next call."""

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
        self._policy = config.retries.subscribe
        self._recoverable = config.recoverable
        self._metrics = metrics
        self._draw = draw
        self._take_overs = TakeOverWatch(shard)
        self._failures = 0
        self._heals = 0

    def established(self) -> None:
        """A subscription was opened."""
        self.pacing.succeeded()
        self._take_overs.established()

    def progressed(self) -> None:
        """An event came, empty or not: the retry budget is whole again."""
        self._failures = 0
        self._heals = 0

    def ended(self) -> None:
        """A subscription ended without an error; the next one only has to keep the service's pace."""
        self._take_overs.ended_by_itself()

    def refused(self, error: Exception, arn: str) -> None:
        """No subscription was opened: plan the next call. Raises: what no retry can help."""
        if isinstance(error, ResourceInUseError) and error not in self._recoverable:
            self._take_overs.refused(arn)
            self._wait_out_the_other(error)
        else:
            self._plan(error)

    def broken(self, error: Exception, arn: str, *, was_held_up: bool) -> None:
        """An open subscription broke: plan the next call. Raises: what no retry can help.

        `was_held_up`: we had not read for long, so the break may be our own doing and costs no budget (F5).
        """
        if isinstance(error, ResourceInUseError):
            self._take_overs.taken_over(arn)
            return self._wait_out_the_other(error)
        self._take_overs.ended_by_itself()
        if was_held_up and isinstance(error, TransientError):
            return self._back_off(error)
        return self._plan(error)

    def _plan(self, error: Exception) -> None:
        if error in self._recoverable:
            self._back_off(error)
        elif isinstance(error, TransientError):
            self._count(error)
        elif isinstance(error, ExpiredIteratorError):
            raise ImpossibleStateError(
                f"a subscription to {self._shard.key} met {error}, which has no iterator"
            ) from error
        else:
            raise error

    def healed(self, arn: str) -> None:
        """Our consumer was gone and is registered again. Raises: ConsumerError when it vanishes again and again."""
        self._take_overs.ended_by_itself()
        self._heals += 1
        if self._heals > MAX_HEALS:
            raise ConsumerError(
                f"the consumer of {self._shard.key} vanished {self._heals} times in a row without an event between, last {arn}: "
                "somebody keeps deregistering it"
            )

    def not_found_without_reason(self, error: Exception) -> None:
        """The service did not find something that is there (it is consistent only eventually): as any failure, counted."""
        self._take_overs.ended_by_itself()
        self._count(error)

    def _count(self, error: Exception) -> None:
        if self._failures >= self._policy.max_retries:
            raise RetriesExhaustedError(
                f"Maximum retries exceeded for SubscribeToShard of {self._shard.key}: {self._failures + 1} failures in a row without "
                f"an event between, the last: {error}"
            ) from error
        self._back_off(error)
        self._failures += 1

    def _back_off(self, error: Exception) -> None:
        self._metrics.retries += 1
        self._metrics.throttles += isinstance(error, ThrottledError)
        delay = self._policy.delay_seconds(self._failures, self._draw)
        self.pacing.wait_at_least(delay)
        log.info("subscribing to %s again in %.1f s: %s", self._shard.key, delay, error)

    def _wait_out_the_other(self, error: Exception) -> None:
        """Within 5 s of the other's success we would be refused; the jitter keeps two contenders out of step."""
        self.pacing.wait_at_least(SECONDS_AFTER_SUCCESS + self._draw())
        log.info("subscription to %s is in use, waiting out 5 s: %s", self._shard.key, error)
