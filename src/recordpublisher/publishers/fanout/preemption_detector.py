"""SubscriptionPreemptionDetector: detects that another job uses our consumer (F10)."""

from __future__ import annotations

from ..errors import ConsumerError
from ..shards import Shard

MAX_PREEMPTIONS = 5
MAX_REFUSALS = 12  # at least 5 s apart, so about a minute; a count is not misled by a suspended process


class SubscriptionPreemptionDetector:
    """Owns two counts for one shard: subscriptions taken over in a row, and subscribe calls refused in a row.

    After a restart a subscription is taken over once or twice, which is normal. A second job with our consumer's name takes over each time.
    """

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._preemptions = 0
        self._refusals = 0

    def on_subscribed(self) -> None:
        """A subscription was opened."""
        self._refusals = 0

    def on_other_end(self) -> None:
        """A subscription ended for another reason."""
        self._preemptions = 0

    def on_preempted(self, arn: str) -> None:
        """Another caller took over our subscription. Raises: ConsumerError after MAX_PREEMPTIONS in a row."""
        self._preemptions += 1
        if self._preemptions >= MAX_PREEMPTIONS:
            raise ConsumerError(
                f"the subscription to {self._shard.key} was taken over {self._preemptions} times in a row: another job uses the "
                f"consumer {arn}; give each job its own flink.stream.efo.consumername"
            )

    def on_in_use(self, arn: str) -> None:
        """The service refused to subscribe because the consumer is in use. Raises: ConsumerError after MAX_REFUSALS in a row."""
        self._refusals += 1
        if self._refusals >= MAX_REFUSALS:
            raise ConsumerError(
                f"{self._shard.key} cannot be subscribed to, in use {self._refusals} times in a row: either another job uses the "
                f"consumer {arn} (give each job its own flink.stream.efo.consumername) or it is not ACTIVE"
            )
