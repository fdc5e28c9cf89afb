"""Random schedules of one sink on virtual time: throttling, outages, lost responses, quotas, reshards, many writers (K1 to K4)."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from dataclasses import dataclass, replace

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from recordpublisher.plugins.sinks.kinesis import KinesisSink
from recordpublisher.publishers.errors import TransientError
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.writable_stream import THROTTLED, FakeKinesis
from random_inputs import inputs

PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""No shrinking: what is drawn is small already."""
NEVER_GIVES_UP = {"flink.job.max.outage": "1h"}


@dataclass(frozen=True)
class Plan:
    seed: int
    shards: int
    keys: int
    records: int
    writers: int
    limit: int
    aggregates: bool
    aggregate_bytes: int
    refusals: float
    outages: int
    reshards: int
    rate: int | None
    explicit: bool


plans = st.builds(
    Plan,
    seed=st.integers(0, 2**32),
    shards=st.integers(1, 4),
    keys=st.sampled_from([1, 2, 50]),
    records=st.integers(1, 400),
    writers=st.integers(1, 10),
    limit=st.sampled_from([1, 7, 100, 10_000]),
    aggregates=st.booleans(),
    aggregate_bytes=st.sampled_from([64, 300, 51_200]),
    refusals=st.sampled_from([0.0, 0.1, 0.6]),
    outages=st.integers(0, 2),
    reshards=st.integers(0, 4),
    rate=st.sampled_from([None, 30, 1_000]),
    explicit=st.booleans(),
)


class Run:
    """One run of a plan: who writes, and what goes wrong meanwhile."""

    def __init__(self, plan: Plan, ordering: str) -> None:
        self.plan = plan
        self.random = random.Random(plan.seed)
        self.fake = FakeKinesis(plan.shards, seed=plan.seed)
        self.fake.rate = plan.rate
        self.fake.refuse = self._refuse
        self.put: dict[str, list[int]] = defaultdict(list)
        properties = {
            "aws.region": "eu-west-1",
            "AggregationEnabled": plan.aggregates,
            "AggregationMaxSize": plan.aggregate_bytes,
            **NEVER_GIVES_UP,
        }
        self.sink = KinesisSink(
            "out", properties, queue_limit=plan.limit, ordering=ordering, port=self.fake, clock=VirtualClock()
        )
        self.numbers = iter(range(plan.records))

    async def play(self) -> None:
        async with self.sink:
            trouble = asyncio.create_task(self._trouble())
            await asyncio.gather(*(self._write() for _ in range(self.plan.writers)))
            await self.sink.flush()
            metrics = self.sink.metrics()
            trouble.cancel()
            await asyncio.gather(trouble, return_exceptions=True)
        assert metrics["outstandingRecordsCount"] == 0
        assert metrics["outstandingBytes"] == 0
        assert metrics["numRecordsOut"] == self.plan.records

    async def _write(self) -> None:
        for number in self.numbers:
            key = f"key-{self.random.randrange(self.plan.keys)}"
            hash_key = str(int(key[4:]) * 2**120) if self.plan.explicit else None
            # numbered when it is put: of several writers of one key, the first to wait is served first
            await self.sink.put(f"{number}".encode(), key, hash_key)
            self.put[key].append(number)
            if self.random.random() < 0.05:
                await asyncio.sleep(self.random.uniform(0, 0.3))

    def _refuse(self, entry):
        if self.random.random() >= self.plan.refusals:
            return None
        return self.random.choice([THROTTLED, "InternalFailure"])

    async def _trouble(self) -> None:
        events = [self._outage] * self.plan.outages + [self._reshard] * self.plan.reshards + [self._lose_an_answer]
        self.random.shuffle(events)
        for event in events:
            await asyncio.sleep(self.random.uniform(0, 0.5))
            await event()

    async def _outage(self) -> None:
        self.fake.fail = TransientError("PutRecords", "ClientConnectorError", "refused")
        await asyncio.sleep(self.random.uniform(0, 3))
        self.fake.fail = None

    async def _reshard(self) -> None:
        ids = self.fake.open_ids()
        ids.sort(key=lambda one: self.fake.shards[one].shard.hash_range.start)
        place = self.random.randrange(len(ids))
        if len(ids) > 1 and place + 1 < len(ids) and self.random.random() < 0.5:
            self.fake.merge(ids[place], ids[place + 1])
        else:
            self.fake.split(ids[place])

    async def _lose_an_answer(self) -> None:
        self.fake.lost_responses = 1


@settings(max_examples=inputs(40, 10), deadline=None, phases=PHASES, suppress_health_check=list(HealthCheck))
@given(plans)
def test_nothing_is_lost_whatever_happens(plan):
    run = Run(plan, "NONE")
    run_virtual(run.play())
    assert {int(data) for _, data in run.fake.user_records()} == set(range(plan.records))


@settings(max_examples=inputs(40, 10), deadline=None, phases=PHASES, suppress_health_check=list(HealthCheck))
@given(plans)
def test_k2_per_key_keeps_the_order_of_each_key(plan):
    run = Run(replace(plan, writers=1), "PER_KEY")
    run_virtual(run.play())
    read: dict[str, list[int]] = defaultdict(list)
    for key, data in run.fake.user_records():
        read[key].append(int(data))
    for key, numbers in run.put.items():
        assert first_seen(read[key]) == numbers, key


def first_seen(numbers):
    """Without records that were put twice because a response was lost."""
    return list(dict.fromkeys(numbers))
