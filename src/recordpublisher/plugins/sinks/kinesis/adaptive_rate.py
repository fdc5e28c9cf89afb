"""The rate of one shard: the most that it may be sent, and which part of that while other producers write to it too (AdaptiveRate)."""

import random
from dataclasses import dataclass

BURST_SECONDS = 0.25
"""One call sends a shard as much as it accepts in this time, then the shard pauses: few large calls instead of many small ones."""
MAX_CREDIT_SECONDS = 0.5
"""At most this much unused time may be caught up on. The service allows a second; this plus one burst stays below that."""


@dataclass(frozen=True, slots=True)
class ShardRateLimit:
    """Records and bytes per second that one shard may be sent: the service's limits times `RateLimit`; and the part of them used first.

    `longest_pause`: at a low rate the shard is sent nothing for this long at most (seconds), or for as long as it needs at the full rate.
    """

    records_per_second: float
    bytes_per_second: float
    initial_fraction: float = 1.0
    longest_pause: float = 2.0

    def seconds_for(self, records: int, size: int) -> float:
        """How long the shard needs for this many records and bytes at its rate limit."""
        return max(records / self.records_per_second, size / self.bytes_per_second)


INCREASE = 0.032
"""Growth of the rate in a second, as a part of the rate limit."""
DECREASE = 2.1
"""A refused record lowers the rate by this many records a second. With the growth above a rate is stable where 1.5 % of the rate limit
are refused, whatever the rate: 15 of 1,000 records/s."""
MAX_DECREASE = 0.5
"""One call lowers the rate to half at most."""
MIN_RATE = 0.001
UNCONTESTED_SECONDS = 5.0
UNCONTESTED_INCREASE = 0.1
"""Without a refusal for five seconds the rate grows by a tenth a second, since the others write less than before."""
FREQUENT_REFUSALS = 5.0
"""Refusing calls in the time in which the shard takes one second's worth of our records. Producers that back off cause one to five of
them, one that does not back off nine (measured with boto3). So many do not end when this sink slows down."""
REFUSALS_MEMORY = 3.0
"""They are averaged over what the shard takes in three seconds."""
TOLERATED_SHARE = 0.05
FREQUENT_DECREASE = 1.2
"""While refusals are frequent this part of the records sent may be refused without slowing down, and those above it count four
sevenths."""
RARE_BURST = 0.025
"""Calls while refusals are rare, in seconds of the rate limit: 25 records."""
FREQUENT_BURST_SECONDS = 0.04
"""Time between calls while refusals are frequent: what others take between two such calls is little."""
BURST_JITTER = 0.5
"""Each of these calls is up to this part smaller or larger, so that sinks with the same rate do not always follow each other in the same
order: the last one would be refused most."""


class AdaptiveRate:
    """The rate at which one shard is sent records, as a part of its rate limit: `fraction`.

    The rate grows by the same amount every second, and each refused record lowers it by the same amount (the primal algorithm of
    Kelly, Maulloo and Tan, 1998: additive increase, a decrease by the price). So it is stable where refusals have a certain number a
    second. Sinks that share a shard have the same part of their records refused, so all of them come to the same rate.

    Refusals that go on at any rate are random, or come from producers that do not back off. Then a small part of the records may be
    refused, and calls are small. Amounts of records are given in seconds that the shard needs for them at its rate limit.
    """

    def __init__(self, initial: float = 1.0) -> None:
        self.fraction = initial
        self._is_in_slow_start = True
        self._last_result_at: float | None = None
        self._last_refusal_at = float("-inf")
        self._refusing_calls = FREQUENT_REFUSALS  # the first refusals decide

    @property
    def has_frequent_refusals(self) -> bool:
        """Whether so many calls are refused records that slowing down does not help."""
        return self._refusing_calls > FREQUENT_REFUSALS

    def burst_seconds(self, now: float) -> float:
        """One call sends what the rate allows in this time, a random one while the shard refuses records."""
        if self._is_uncontested(now):
            return BURST_SECONDS
        seconds = FREQUENT_BURST_SECONDS
        if not self.has_frequent_refusals:
            seconds = max(seconds, RARE_BURST / self.fraction)
        return min(BURST_SECONDS, seconds * random.uniform(1 - BURST_JITTER, 1 + BURST_JITTER))  # noqa: S311 - jitter

    def add_results(self, sent: float, refused: float, now: float) -> None:
        """Adapt the rate to the results of a call: what was sent, and how much of it the shard refused."""
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
        """Growth in a second. The upper half of the rate limit is approached slowly: a producer that backs off leaves it, although it
        would use it."""
        steady = INCREASE * min(1.0, 2 * (1 - self.fraction))
        return max(steady, UNCONTESTED_INCREASE * self.fraction) if self._is_uncontested(now) else steady
