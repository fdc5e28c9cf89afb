"""What part of a shard each producer gets, by a model of rates and counts on virtual time: a minute takes milliseconds (K1).

Sinks are models with the real `AdaptiveRate`; boto3 producers send full calls and what was refused again after a pause.
`test_beside_other_producers.py` has whole sinks instead.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from statistics import mean

import pytest

from recordpublisher.plugins.sinks.kinesis.shard_rate import MAX_CREDIT_SECONDS, AdaptiveRate

LIMIT = 1_000
"""Records a second."""
LATENCY = 0.01
WARM_UP_SECONDS, SECONDS = 20, 30


class SharedShard:
    """Owns the time, the shard's token bucket of one second, and the part of the records that is refused at random."""

    def __init__(self, seed: int, refused_at_random: float = 0.0) -> None:
        self.random = random.Random(seed)
        self.now = 0.0
        self._refused_at_random = refused_at_random
        self._level, self._filled_at = float(LIMIT), 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()

    def call_at(self, at: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._due, (at, next(self._numbers), action))

    def latency(self) -> float:
        return LATENCY * self.random.uniform(0.5, 1.5)

    def run_until(self, end: float) -> None:
        while self._due[0][0] <= end:
            self.now, _, action = heapq.heappop(self._due)
            action()

    def put(self, records: int) -> int:
        """The number of records taken."""
        if self._refused_at_random:
            records = sum(self.random.random() >= self._refused_at_random for _ in range(records))
        self._level = min(LIMIT, self._level + (self.now - self._filled_at) * LIMIT)
        self._filled_at = self.now
        taken = min(records, int(self._level))
        self._level -= taken
        return taken


class Boto3Producer:
    """A loop of full calls. After refusals it pauses for 0.1 s, or with `backs_off` longer each time (to 5 s, full jitter)."""

    def __init__(self, shard: SharedShard, *, backs_off: bool) -> None:
        self._shard = shard
        self._backs_off = backs_off
        self._failures = self.taken = 0
        shard.call_at(shard.random.uniform(0, 0.3), self._put)

    def _put(self) -> None:
        taken = self._shard.put(500)
        self.taken += taken
        self._failures = self._failures + 1 if taken < 500 else 0
        self._shard.call_at(self._shard.now + 1.5 * self._shard.latency() + self._backoff(), self._put)

    def _backoff(self) -> float:
        if not self._failures or not self._backs_off:
            return 0.1 if self._failures else 0.0
        return self._shard.random.random() * min(5.0, 0.1 * 2 ** (self._failures - 1))


class ModelledSink:
    """Calls of what the rate allows, each after the pause that it costs; a call that is refused whole is followed by a backoff."""

    def __init__(self, shard: SharedShard) -> None:
        self._shard = shard
        self.rate = AdaptiveRate()
        self.taken = self.refused = self._failures = 0
        self._next_send_at = shard.random.uniform(0, 0.5)
        shard.call_at(self._next_send_at, self._send)

    def _send(self) -> None:
        now = self._shard.now
        if now >= self._next_send_at:
            per_second = LIMIT * self.rate.fraction
            records = max(1, int(per_second * self.rate.burst_seconds(now)))
            self._next_send_at = max(self._next_send_at, now - MAX_CREDIT_SECONDS) + records / per_second
            self._shard.call_at(now + self._shard.latency(), lambda: self._arrive(records))
        self._shard.call_at(max(now, self._next_send_at), self._send)

    def _arrive(self, records: int) -> None:
        now, taken = self._shard.now, self._shard.put(records)
        self.taken += taken
        self.refused += records - taken
        self.rate.add_results(records / LIMIT, (records - taken) / LIMIT, now)
        self._failures = 0 if taken else self._failures + 1
        if not taken:
            backoff = self._shard.random.random() * min(2.0, 0.1 * 1.5 ** (self._failures - 1))
            self._next_send_at = max(self._next_send_at, now + backoff)


@dataclass(frozen=True)
class Result:
    """Of each sink the records taken, as a part of a fair share; and of the shard's limit the part that all used together."""

    shares: list[float]
    used: float


def result_of(seed: int, sinks: int = 1, boto3: int = 0, *, back_off: bool = False, refused: float = 0.0) -> Result:
    random.seed(seed)  # the sizes of calls
    shard = SharedShard(seed, refused)
    modelled = [ModelledSink(shard) for _ in range(sinks)]
    producers = [*modelled, *(Boto3Producer(shard, backs_off=back_off) for _ in range(boto3))]
    shard.run_until(WARM_UP_SECONDS)
    before = [each.taken for each in producers]
    shard.run_until(WARM_UP_SECONDS + SECONDS)
    parts = [(each.taken - earlier) / (LIMIT * SECONDS) for each, earlier in zip(producers, before, strict=True)]
    return Result([part * len(parts) for part in parts[:sinks]], sum(parts))


@pytest.mark.parametrize("sinks", [2, 8])
def test_sinks_share_a_shard_equally_and_use_all_of_it(sinks):
    result = result_of(1, sinks)
    assert result.used >= 0.98
    assert min(result.shares) >= 0.75
    assert max(result.shares) <= 1.25


@pytest.mark.parametrize("others", [1, 3, 8])
def test_beside_producers_that_do_not_back_off_a_sink_gets_60_percent_of_a_fair_share_at_least(others):
    assert result_of(1, boto3=others).shares[0] >= 0.6


@pytest.mark.parametrize("others", [1, 3])
def test_beside_producers_that_back_off_exponentially_a_sink_gets_a_fair_share_at_least_and_less_than_twice_that(
    others,
):
    """The mean of some runs: few refusals are seen, so that a single run swings widely (docs/decisions/kinesis-sink.md)."""
    assert 0.9 <= mean(result_of(seed, boto3=others, back_off=True).shares[0] for seed in range(10)) < 2


def test_records_refused_at_random_do_not_lower_the_rate():
    assert result_of(1, refused=0.05).shares[0] >= 0.9
