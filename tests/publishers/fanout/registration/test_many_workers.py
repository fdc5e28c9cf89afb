"""Sixty-four workers share one consumer: they start together and stop one by one (F4, F8)."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from recordpublisher.local import Account, Delays, MemoryTransport
from recordpublisher.publishers.base import RunResult
from recordpublisher.publishers.errors import ConsumerError
from recordpublisher.publishers.fanout import FanOutRecordPublisherFactory
from recordpublisher.publishers.fanout.registration import ConsumerRefCounts
from recordpublisher.publishers.kinesis import KinesisClient
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import Shard
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

GIVEN = {"aws.region": "us-east-1", "flink.stream.efo.consumername": "app"}
WORKERS = 64


class CountingTransport(MemoryTransport):
    """Counts the calls of each API."""

    calls: Counter[str]

    async def call(self, api: str, **parameters: Any) -> dict[str, Any]:
        self.calls[api] += 1
        return await super().call(api, **parameters)


class Job:
    """Workers over one account, in one process (one table of ref_counts) or in many."""

    def __init__(self, *, rules: str = "", shards: int = WORKERS, processes: int = 1, **properties: Any) -> None:
        self.account = Account(VirtualClock(), "us-east-1", Delays(consumer=5_000), None)
        self.stream = self.account.create_stream("orders", shards)
        self.account.faults.start_random(rules, 5)
        self.calls: Counter[str] = Counter()
        self._ref_counts = [ConsumerRefCounts() for _ in range(processes)]
        self._given = Properties({**GIVEN, **properties})
        self.taken: Counter[str] = Counter()

    def factory(self, worker: int) -> FanOutRecordPublisherFactory:
        transport = CountingTransport(self.account)
        transport.calls = self.calls
        client = KinesisClient(self._given, transport=transport)
        ref_counts = self._ref_counts[worker % len(self._ref_counts)]
        return FanOutRecordPublisherFactory(self._given, ports=client, clock=VirtualClock(), ref_counts=ref_counts)

    async def read(self, factory: FanOutRecordPublisherFactory, worker: int) -> None:
        shard = Shard("orders", f"shardId-{worker:012d}")
        publisher = await factory.create(shard, StartingPosition.trim_horizon(), ShardMetrics())

        async def take(batch):
            self.taken.update(record.data.decode() for record in batch.records)
            return batch.read_position

        while await publisher.run(take) is RunResult.INCOMPLETE:
            pass

    def put(self, text: str) -> None:
        for shard in self.stream.open_shards:
            self.stream.put(text.encode(), "k", shard.hash_range.start)

    @property
    def statuses(self) -> list[str]:
        return [consumer.status(VirtualClock().now_ms()) for consumer in self.stream.consumers.all()]


@pytest.mark.parametrize(
    "rules", ["", "throttle@RegisterStreamConsumer=0.5,throttle@DescribeStreamConsumer=0.2", "deleting=0.9*5"]
)
def test_f8_workers_that_start_together_register_one_consumer(rules):
    async def main():
        job = Job(rules=rules)
        job.put("one")
        factories = [job.factory(worker) for worker in range(WORKERS)]
        tasks = [asyncio.create_task(job.read(factory, number)) for number, factory in enumerate(factories)]
        await asyncio.sleep(120)
        assert not any(task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        return job.taken["one"], job.statuses, len(job.account.subscriptions._last_success_ms)

    assert run_virtual(main()) == (WORKERS, ["ACTIVE"], WORKERS)


def test_f8_the_last_worker_to_stop_deregisters():
    async def main():
        job = Job()
        factories = [job.factory(worker) for worker in range(WORKERS)]
        tasks = [asyncio.create_task(job.read(factory, number)) for number, factory in enumerate(factories)]
        await asyncio.sleep(30)
        seen = set()
        for number, (task, factory) in enumerate(zip(tasks, factories, strict=True)):
            seen.add((*job.statuses, job.calls["DeregisterStreamConsumer"]))
            job.put(f"{number}")
            await asyncio.sleep(1)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await factory.close()
        await asyncio.sleep(10)
        # while worker n stops, n others have stopped and 64 - n still read
        return (
            seen,
            [job.taken[f"{number}"] for number in range(WORKERS)],
            job.statuses,
            job.calls["DeregisterStreamConsumer"],
        )

    assert run_virtual(main()) == ({("ACTIVE", 0)}, list(range(WORKERS, 0, -1)), [], 1)


def test_f4_after_one_process_deregistered_the_consumer_the_others_register_it_again():
    """Reference counts do not cover other processes. The documented consequence causes no gap and no duplicate."""

    async def main():
        job = Job(shards=3, processes=3)
        factories = [job.factory(worker) for worker in range(3)]
        tasks = [asyncio.create_task(job.read(factory, number)) for number, factory in enumerate(factories)]
        await asyncio.sleep(30)
        tasks[0].cancel()
        await asyncio.gather(tasks[0], return_exceptions=True)
        await factories[0].close()
        for number in range(60):
            job.put(f"{number}")
            await asyncio.sleep(1)
        alive = [task.done() for task in tasks[1:]]
        for task, factory in zip(tasks[1:], factories[1:], strict=True):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await factory.close()
        return alive, {job.taken[f"{number}"] for number in range(60)}

    assert run_virtual(main()) == ([False, False], {2})


def test_f8_the_twenty_first_consumer_is_an_error_with_a_hint():
    async def main():
        job = Job(shards=1)
        for number in range(20):
            job.stream.consumers.register(f"other-{number}")
        factory = job.factory(0)
        with pytest.raises(
            ConsumerError, match=r"'app' cannot be registered: .*maximum of consumers \(20.*deregister an unused one"
        ):
            await job.read(factory, 0)
        await factory.close()

    run_virtual(main())
