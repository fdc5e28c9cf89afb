"""SubscriptionPreemptionDetector: notices that somebody else uses our consumer (F10)."""

from __future__ import annotations

from ..errors import ConsumerError
from ..shards import Shard

MAX_PREEMPTIONS = 5
MAX_REFUSALS = 12  # at least 5 s apart: a minute of trying, counted so that a suspended process is not misled


class SubscriptionPreemptionDetector:
    """Owns two counts for one shard: subscriptions taken over in a row, and refusals in a row.

    A restart takes over once or twice, which is normal; a second reader with our consumer's name takes over every time.
    """

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._preemptions = 0
        self._refusals = 0

    def on_subscribed(self) -> None:
        """A subscription was opened."""
        self._refusals = 0

    def on_other_end(self) -> None:
        """A subscription ended by anything but a take-over."""
        self._preemptions = 0

    def on_preempted(self, arn: str) -> None:
        """Another call took our subscription. Raises: ConsumerError when that repeats."""
        self._preemptions += 1
        if self._preemptions >= MAX_PREEMPTIONS:
            raise ConsumerError(
                f"the subscription to {self._shard.key} was taken over {self._preemptions} times in a row: somebody else uses the "
                f"consumer {arn}; give each job its own flink.stream.efo.consumername"
            )

    def on_in_use(self, arn: str) -> None:
        """The service refused to subscribe because the resource is in use. Raises: ConsumerError when that lasts."""
        self._refusals += 1
        if self._refusals >= MAX_REFUSALS:
            raise ConsumerError(
                f"{self._shard.key} cannot be subscribed to, in use {self._refusals} times in a row: either somebody else uses the "
                f"consumer {arn} (give each job its own flink.stream.efo.consumername) or it is not ACTIVE"
            )
