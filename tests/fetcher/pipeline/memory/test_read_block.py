"""Why the next read of a shard waits (P6, S2, W11)."""

from dataclasses import replace

import pytest

from recordpublisher.fetcher.pipeline.memory_budget import ReadBlock, why_blocked
from recordpublisher.fetcher.settings import BudgetLimits
from recordpublisher.fetcher.shards.shard_entry import ShardStage
from recordpublisher.publishers.records import PoisonedRecord
from recordpublisher.testing import run_virtual

from fakes.shard_entries import entry, watermarked

LIMITS = BudgetLimits(worker_bytes=10_000, shard_bytes=4_000, shard_records=3)


def queued(*watermarks):
    made = entry()
    made.reading.queue.push(watermarked(*watermarks))
    return made


def test_a_shard_that_is_read_is_not_blocked():
    assert why_blocked(entry(), LIMITS) is None
    assert why_blocked(queued(1, 2), LIMITS) is None


def test_a_child_waits_for_its_parents():
    assert why_blocked(entry("b", "a", stage=ShardStage.WAITING), LIMITS) is ReadBlock.PARENTS


@pytest.mark.parametrize("limits", [LIMITS, BudgetLimits(10_000, 100, 9)], ids=["records", "bytes"])
def test_a_full_queue_blocks(limits):
    assert why_blocked(queued(1, 2, 3), limits) is ReadBlock.FULL_QUEUE


@pytest.mark.parametrize("limits", [LIMITS, BudgetLimits(10_000, 100, 9)], ids=["records", "bytes"])
def test_p6_dead_letters_fill_a_queue_as_records_do(limits):
    made, poisoned = entry(), watermarked(1)
    bad = tuple(PoisonedRecord(0, poisoned.records[0], "bad") for _ in range(3))
    made.reading.queue.push(replace(poisoned, records=(), watermarks=(), poisoned=bad))
    assert why_blocked(made, limits) is ReadBlock.FULL_QUEUE
    made.reading.queue.pop(0)
    assert why_blocked(made, limits) is None


def test_alignment_is_named_before_the_full_queue_that_it_causes():
    made = queued(1, 2, 3)
    made.status.set_held(True, 0.0)

    assert why_blocked(made, LIMITS) is ReadBlock.ALIGNMENT


def test_a_read_that_waits_although_the_shard_may_queue_more_waits_for_memory():
    async def story():
        made = queued(1)
        made.reservation.request()
        return why_blocked(made, LIMITS)

    assert run_virtual(story()) is ReadBlock.MEMORY
