"""The rate at which one shard is sent records: its limit, and the part of the limit to use while other producers write."""

from __future__ import annotations

import random
from dataclasses import dataclass

BURST_SECONDS = 0.25
"""One call sends a shard as much as it accepts in this time, and then pauses for the shard.

This makes few large calls instead of many small ones.
"""


MAX_CREDIT_SECONDS = 0.5
"""Unused time that the sink may catch up on, at most. The service allows one second; this time plus one burst stays below that."""


INCREASE = 0.032
"""Growth of the rate in a second, as a part of the rate limit."""


DECREASE = 2.1
"""Records per second by which one refused record lowers the rate.

Together with INCREASE it makes the rate stable when 1.5 % of the rate limit is refused (15 of 1,000 records/s), whatever the rate is.
"""


MAX_DECREASE = 0.5
"""The results of one call lower the rate at most to half."""


MIN_RATE = 0.001


UNCONTESTED_SECONDS = 5.0


UNCONTESTED_INCREASE = 0.1
"""Without a refusal for five seconds the rate grows by a tenth of itself each second, because other producers write less than before."""


FREQUENT_REFUSALS = 5.0
"""Refusals are frequent if there are more refused calls than this while the shard takes one second's worth of our records.

Other producers that back off cause one to five refused calls. A producer that does not back off causes nine (measured with boto3), and
its refusals do not end when this sink slows down.
"""


REFUSALS_MEMORY = 3.0
"""The number of refused calls is averaged over the records that the shard takes in this time (seconds)."""


TOLERATED_SHARE = 0.05


FREQUENT_DECREASE = 1.2
"""Records per second by which a refused record lowers the rate while refusals are frequent.

The part TOLERATED_SHARE of the records sent may be refused without slowing down. Refusals above it count four sevenths (1.2 instead of
2.1).
"""


RARE_BURST = 0.025
"""Size of a call while refusals are rare, in seconds of the rate limit: 25 records."""


FREQUENT_BURST_SECONDS = 0.04
"""Time between calls while refusals are frequent. Other producers use up little of the shard's limit between two such calls."""


BURST_JITTER = 0.5
"""While calls are refused now and then, their size varies at random by up to this part.

Otherwise sinks with the same rate would always follow each other in the same order, and the last one would be refused most.
"""


class AdaptiveRate:
    """Adapts the rate at which one shard is sent records (`fraction`, a part of its rate limit) to refused records.

    The rate grows by the same amount every second, and each refused record lowers it by the same amount (the primal algorithm of Kelly,
    Maulloo and Tan, 1998). It becomes stable at a certain number of refusals per second.
    Sinks that share a shard come to the same rate, because the shard refuses the same share of their records.

    If refusals continue at any rate, they are random, or other producers do not back off. The sink then accepts that a small part of the
    records is refused, and makes small calls. Amounts of records are given as the seconds that the shard needs at its rate limit.
    """

    def __init__(self, initial: float = 1.0) -> None:
        self.fraction = initial
        self._is_in_slow_start = True
        self._last_result_at: float | None = None
        self._last_refusal_at = float("-inf")
        self._refusing_calls = FREQUENT_REFUSALS  # so that the first refusals decide whether refusals are frequent

    @property
    def has_frequent_refusals(self) -> bool:
        """Whether calls are refused so often that slowing down does not help."""
        return self._refusing_calls > FREQUENT_REFUSALS

    def burst_seconds(self, now: float) -> float:
        """Return the size of one call, as the seconds that its records need at the rate limit. It is random after refusals."""
        if self._is_uncontested(now):
            return BURST_SECONDS
        seconds = FREQUENT_BURST_SECONDS
        if not self.has_frequent_refusals:
            seconds = max(seconds, RARE_BURST / self.fraction)
        return min(BURST_SECONDS, seconds * random.uniform(1 - BURST_JITTER, 1 + BURST_JITTER))  # noqa: S311 - jitter

    def add_results(self, sent: float, refused: float, now: float) -> None:
        """Adapt the rate to the results of a call.

        - `sent`: the records that were sent, in seconds of the rate limit.
        - `refused`: the records that the shard refused, in seconds of the rate limit.
        """
        since_last = 0.0 if self._last_result_at is None else now - self._last_result_at
        self._last_result_at = now
        if refused:
            self._last_refusal_at = now
            self._is_in_slow_start = False
        if self._is_in_slow_start:
            self.fraction = min(1.0, 2 * self.fraction)
            return
        self._count_refusing_calls(sent, refused)
        change = self._increase(now) * since_last - self._decrease(sent, refused)
        self.fraction = min(1.0, max(MIN_RATE, MAX_DECREASE * self.fraction, self.fraction + change))

    def _is_uncontested(self, now: float) -> bool:
        return now - self._last_refusal_at >= UNCONTESTED_SECONDS

    def _count_refusing_calls(self, sent: float, refused: float) -> None:
        weight = min(1.0, sent / REFUSALS_MEMORY)
        self._refusing_calls += (refused > 0) / REFUSALS_MEMORY - weight * self._refusing_calls

    def _decrease(self, sent: float, refused: float) -> float:
        if self.has_frequent_refusals:
            return FREQUENT_DECREASE * (refused - TOLERATED_SHARE * sent)
        return DECREASE * refused

    def _increase(self, now: float) -> float:
        """Return the growth of the rate per second.

        The growth is slower in the upper half of the rate limit, because another producer that has backed off would use that half again.
        """
        steady = INCREASE * min(1.0, 2 * (1 - self.fraction))
        return max(steady, UNCONTESTED_INCREASE * self.fraction) if self._is_uncontested(now) else steady


@dataclass(frozen=True, slots=True)
class ShardRateLimit:
    """Records and bytes per second that one shard may be sent: the service's limits times the property `RateLimit`.

    - `initial_fraction`: the part of the limit that is used first.
    - `longest_pause`: longest time in which a shard is sent nothing because of a low rate (seconds). A call that needs more time at the
      full rate is followed by a longer pause.
    """

    records_per_second: float
    bytes_per_second: float
    initial_fraction: float = 1.0
    longest_pause: float = 2.0

    def seconds_for(self, records: int, size: int) -> float:
        """Return how long the shard needs for this many records and bytes at its rate limit."""
        return max(records / self.records_per_second, size / self.bytes_per_second)
