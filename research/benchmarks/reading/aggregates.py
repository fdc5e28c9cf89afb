"""Batches of KPL aggregates, and the cost of de-aggregation alone."""

import time

from recordpublisher.publishers.aggregation.deaggregation import Deaggregator
from recordpublisher.publishers.kinesis.ports import ReadResponse
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.records import UserRecord
from recordpublisher.publishers.shard_metrics import ShardMetrics
from recordpublisher.publishers.shards import Shard

from servers.kpl_aggregates import aggregate

START = StartingPosition.trim_horizon()


def batch(records, sub_records, keys, size, plain=0):
    """Records of one read: aggregates with this number of partition keys, and plain records between them."""
    made = []
    for number in range(records):
        parts = [(f"key-{(number * sub_records + part) % keys}", bytes(size)) for part in range(sub_records)]
        made.append(UserRecord(aggregate(*parts), str(number), 1.0, "outer"))
        made += [UserRecord(bytes(size), str(number), 1.0, "plain")] * plain
    return made


async def read_all(deaggregator, records):
    """The number of user records. Each batch is freed before the next one is made."""
    batches = deaggregator.batches(ReadResponse(records, 0), SequenceNumber(records[-1].sequence_number), START)
    return sum([len(batch) async for batch in batches])


async def cost_of(records, hash_range, rounds=7):
    """Microseconds of CPU a sub-record, the best of the rounds."""
    deaggregator = Deaggregator(Shard("s", "0", hash_range=hash_range), ShardMetrics())
    count = await read_all(Deaggregator(Shard("s", "0"), ShardMetrics()), records)
    best = float("inf")
    for _ in range(rounds):
        began = time.process_time()
        await read_all(deaggregator, records)
        best = min(best, time.process_time() - began)
    return best / count * 1e6
