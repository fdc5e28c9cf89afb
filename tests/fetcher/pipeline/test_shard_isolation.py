"""P7: shards that are back-pressured, poisoned, silent or refused do not affect 96 busy ones."""

from __future__ import annotations

import asyncio
import json
from collections import Counter

import pytest

from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.fetcher.sink import Sink
from recordpublisher.local import Account, Delays, MemoryTransport
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.testing.virtual_time import EPOCH_MS, VirtualClock, run_virtual

from fakes.fetcher_over_transport import fetcher_over

SHARDS, RECORDS, ROUNDS = 100, 5, 20
HELD, POISONED, SILENT, REFUSED = range(4)
BUSY = range(4, SHARDS)


class CountingSink(Sink):
    """Counts the records of each shard, and the time of the last busy one."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()
        self.last_at = 0.0

    async def write(self, batch):
        shard = int(batch.shard_id[-3:])
        self.counts[shard] += len(batch)
        if shard in BUSY:
            self.last_at = asyncio.get_running_loop().time()


def delivered(publisher: str, *troubled: int, **properties: object) -> CountingSink:
    """What arrives while 100 shards are written to for 10 s and some of them fail."""
    return run_virtual(_delivered(publisher, troubled, properties))


async def _delivered(publisher: str, troubled: tuple[int, ...], properties: dict[str, object]) -> CountingSink:
    account = Account(VirtualClock(), "us-east-1", Delays(consumer=0), None)
    stream = account.create_stream("orders", SHARDS)
    rules = {SILENT: f"silence@{_id(SILENT)},slow@{_id(SILENT)}~100000", REFUSED: f"throttle@{_id(REFUSED)}"}
    account.faults.start_random(",".join(rules.get(shard, "") for shard in troubled))
    given = Properties(
        {
            "flink.stream.recordpublisher": publisher,
            "flink.stream.initpos": "TRIM_HORIZON",
            "flink.stream.efo.consumername": "app",
            "flink.deserializer": "json",
            "flink.deserializer.error": "SKIP",
            "flink.watermark.timestamp.field": "at",
            "flink.watermark.future.limit": -1,
            "flink.shard.getrecords.maxretries": 10_000,
            "flink.shard.getiterator.maxretries": 10_000,
            "flink.shard.subscribetoshard.maxretries": 10_000,
            "flink.shard.queue.records": 25,
            **properties,
        }
    )
    sink = CountingSink()
    fetcher = fetcher_over(MemoryTransport(account), given, sink, VirtualClock())
    await fetcher.open()
    running = asyncio.create_task(fetcher.run_bounded(Bounds(max_time=30)))
    for number in range(ROUNDS):
        await asyncio.sleep(0.5)
        for index, shard in enumerate(stream.open_shards):
            ahead = 3_600_000 if index == HELD and HELD in troubled else 0
            row = json.dumps({"at": EPOCH_MS + number * 500 + ahead}).encode()
            for _ in range(RECORDS):
                stream.put(
                    b"poison" if index == POISONED and POISONED in troubled else row, "k", shard.hash_range.start
                )
    await running
    await fetcher.close()
    return sink


def _id(index: int) -> str:
    return f"shardId-{index:012d}"


@pytest.mark.parametrize("publisher", [pytest.param("POLLING", marks=pytest.mark.slow), "EFO"])
def test_a_poisoned_a_silent_and_a_refused_shard_delay_none_of_the_others(publisher):
    alone, beside = delivered(publisher), delivered(publisher, POISONED, SILENT, REFUSED)

    assert {beside.counts[shard] for shard in BUSY} == {RECORDS * ROUNDS}
    assert beside.last_at <= alone.last_at + 1.0
    assert [beside.counts[shard] for shard in (POISONED, SILENT, REFUSED)] == [0, 0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("publisher", [pytest.param("POLLING", marks=pytest.mark.slow), "EFO"])
def test_a_shard_that_is_held_back_delays_none_of_the_others(publisher):
    """An hour ahead of all others: its queue is full, and it reads no more (W11)."""
    aligned = {"flink.watermark.lookahead.millis": 5_000}
    alone, beside = delivered(publisher, **aligned), delivered(publisher, HELD, **aligned)

    assert {beside.counts[shard] for shard in BUSY} == {RECORDS * ROUNDS}
    assert beside.last_at <= alone.last_at + 1.0
    assert beside.counts[HELD] == 0
