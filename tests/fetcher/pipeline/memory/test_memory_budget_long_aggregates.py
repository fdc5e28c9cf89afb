"""P6: an aggregate of very many sub-records counts batch by batch. The next batch is made when the budget has room for it."""

import asyncio

from recordpublisher.consumer.deserialization import BytesDeserializer
from recordpublisher.consumer.event_time import ArrivalTimestamps
from recordpublisher.consumer.shard_consumer import BatchDecorator, ShardConsumer
from recordpublisher.consumer.watermark_strategies import BoundedOutOfOrderness
from recordpublisher.fetcher.pipeline.memory_budget import MemoryBudget
from recordpublisher.fetcher.pipeline.process_suspension import SuspensionDetector
from recordpublisher.fetcher.pipeline.reading import ReadIntake
from recordpublisher.fetcher.pipeline.retention_gaps import RetentionGaps
from recordpublisher.fetcher.settings import BudgetLimits
from recordpublisher.publishers.aggregation.deaggregation import MAX_BATCH_BYTES
from recordpublisher.publishers.aggregation.kpl_format import STEP
from recordpublisher.publishers.base import RunResult
from recordpublisher.publishers.properties.job_properties import OnBadRecord
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.records import RECORD_OVERHEAD_BYTES
from recordpublisher.testing.virtual_time import VirtualClock, run_virtual

from fakes.polling_shard import FakeShard, publisher_of
from fakes.shard_entries import entry
from servers.kpl_aggregates import sealed

COUNT = 60_000
BATCH = MAX_BATCH_BYTES + STEP * (RECORD_OVERHEAD_BYTES + 10)
"""The most that a batch takes."""


def test_p6_the_batches_of_a_long_aggregate_wait_for_memory():
    async def run():
        clock, limit, used = VirtualClock(), MAX_BATCH_BYTES, []
        suspension = SuspensionDetector(clock, lambda gap: None)
        gaps = RetentionGaps(None, suspension, clock, False)
        limits = BudgetLimits(limit, limit, 10**9)
        intake = ReadIntake(MemoryBudget(limits), clock, suspension, lambda _: None, gaps)
        shard, options = entry(), {"on_poison": OnBadRecord.FAIL, "future_limit_ms": -1}
        decorator = BatchDecorator(
            BytesDeserializer(), ArrivalTimestamps(), BoundedOutOfOrderness(Properties()), shard.metrics, **options
        )
        fake = FakeShard(sealed(b"\x0a\x01a" + b"\x1a\x05\x08\x00\x1a\x01x" * COUNT), closed=True)
        publisher = publisher_of(fake, metrics=shard.metrics)
        reader = asyncio.create_task(ShardConsumer(publisher, decorator, intake.output_for(shard)).run())
        emitted = 0
        while not reader.done() or shard.reading.queue:
            await asyncio.sleep(1)  # by now the reader waits for memory
            used.append(intake.used_bytes)
            assert shard.metrics.number_of_deaggregated_records == emitted + shard.reading.queue.records
            if shard.reading.queue:
                batch, freed = shard.take(len(shard.reading.queue[0]))
                emitted += len(batch)
                intake.on_emitted(shard, freed)
        return reader.result(), emitted, max(used)

    result, emitted, most_used = run_virtual(run())
    assert (result, emitted) == (RunResult.COMPLETE, COUNT)
    assert most_used <= MAX_BATCH_BYTES + BATCH
