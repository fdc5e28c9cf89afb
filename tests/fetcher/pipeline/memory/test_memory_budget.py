"""P6: memory in flight is bounded, and the shard with the lowest watermark can always read."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.fetcher.pipeline.memory_budget import MemoryBudget
from recordpublisher.fetcher.settings import BudgetLimits
from recordpublisher.publishers.records import PoisonedRecord

from fakes.shard_entries import entry, marker, watermarked

LIMITS = BudgetLimits(worker_bytes=10_000, shard_bytes=4_000, shard_records=8)
LARGE = BudgetLimits(worker_bytes=1_000_000, shard_bytes=400_000, shard_records=8)


def full_entry(budget, shard_id="a", records=3, head=0):
    one = entry(shard_id)
    batch = watermarked(*range(head, head + records))
    budget.settle_read(one, batch.held_bytes)
    one.reading.queue.push(batch)
    return one


def shared(limits, readers):
    budget = MemoryBudget(limits)
    budget.share_among(readers)
    return budget


def test_a_shard_with_an_empty_queue_may_always_read():
    budget = shared(LARGE, 4)
    budget.used = 10_000_000

    assert budget.reserve_read(entry()) == 250_000


def test_a_first_read_gets_a_fair_share():
    assert shared(LARGE, 5).reserve_read(entry()) == 200_000
    assert shared(LARGE, 1).reserve_read(entry()) == 400_000
    assert shared(LARGE, 1_000).reserve_read(entry()) == 65_536


def test_a_read_does_not_wait_because_of_a_queued_marker():
    budget, one = shared(LIMITS, 4), entry()
    one.reading.queue.push(marker())
    budget.used = 1_000_000

    assert budget.reserve_read(one) > 0


def test_a_shard_with_records_queued_waits_when_the_budget_is_used_up():
    budget = MemoryBudget(LIMITS)
    one = full_entry(budget)
    assert budget.reserve_read(one) > 0
    budget.settle_read(one, 0)
    budget.used = 9_900
    one.reservation.expected_bytes = 1_000

    assert budget.reserve_read(one) == 0


def test_p6_a_shard_with_dead_letters_queued_waits_when_the_budget_is_used_up():
    budget, one = MemoryBudget(LIMITS), entry()
    batch = watermarked(1)
    bad = (PoisonedRecord(0, batch.records[0], "bad"),)
    one.reading.queue.push(replace(batch, records=(), watermarks=(), poisoned=bad))
    budget.used = 9_900
    one.reservation.expected_bytes = 1_000

    assert budget.reserve_read(one) == 0


def test_a_held_shard_gets_no_extra_memory():
    budget = MemoryBudget(LIMITS)
    one = full_entry(budget)
    one.status.set_held(True, 1.0)

    assert budget.reserve_read(one) == 0


def test_a_shard_queues_a_limited_number_of_records():
    budget = MemoryBudget(BudgetLimits(10**9, 10**9, 8))

    assert budget.reserve_read(full_entry(budget, records=7)) > 0
    assert budget.reserve_read(full_entry(budget, records=8)) == 0


def test_a_reservation_is_replaced_by_the_bytes_that_arrived():
    budget, one = MemoryBudget(LIMITS), entry()
    one.reservation.expected_bytes = 1_000
    budget.reserve_read(one)
    assert budget.used == 2_000
    budget.settle_read(one, 300)

    assert budget.used == 300


def test_repeated_requests_reserve_once():
    budget, one = MemoryBudget(LIMITS), entry()
    one.reservation.expected_bytes = 1_000
    budget.reserve_read(one)
    budget.reserve_read(one)

    assert budget.used == 2_000


def test_a_silent_shard_reserves_less_with_each_read():
    budget, one = MemoryBudget(LIMITS), entry()
    one.reservation.expected_bytes = 1_000
    for _ in range(12):
        budget.reserve_read(one)
        budget.settle_read(one, 0)
    budget.reserve_read(one)

    assert budget.used == 0


def test_a_shard_with_queued_records_may_read_only_what_is_reserved():
    """Otherwise a thousand shards, each with a fair share on top of its queue, would use nearly twice the budget."""
    budget = MemoryBudget(LARGE)
    one = full_entry(budget)
    one.reservation.expected_bytes = 50_000
    room = budget.reserve_read(one)

    assert room == one.reservation.bytes == 100_000


def test_first_reads_reserve_their_memory():
    """A thousand reads are in flight when the first one returns: the memory for them is not given away."""
    budget, entries = shared(LARGE, 10), [entry(str(number)) for number in range(10)]
    for one in entries:
        assert budget.reserve_read(one) == 100_000

    assert budget.used == LARGE.worker_bytes


@given(st.integers(2, 40), st.integers(1, 50))
def test_shards_that_use_all_they_may_read_stay_within_the_budget(shards, records):
    limits = BudgetLimits(worker_bytes=shards * 65_536, shard_bytes=10**9, shard_records=10**9)
    budget = shared(limits, shards)
    entries = [entry(str(number)) for number in range(shards)]
    first = watermarked(*range(records))
    for one in entries:
        assert budget.reserve_read(one) >= 65_536
        budget.settle_read(one, first.held_bytes)
        one.reading.queue.push(first)
    for _ in range(10):
        rooms = [(one, budget.reserve_read(one)) for one in entries]
        for one, room in rooms:
            budget.settle_read(one, room)
            one.reading.queue.bytes += room

    assert budget.used <= limits.worker_bytes


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 6), st.booleans()), max_size=60))
def test_queued_bytes_stay_within_the_budget_and_one_batch_for_each_shard(steps):
    budget = shared(LIMITS, 5)
    entries = [entry(str(number)) for number in range(5)]
    for which, records, emits in steps:
        one = entries[which]
        if emits and one.reading.queue:
            budget.release(one.take(len(one.reading.queue[0]))[1])
        elif budget.reserve_read(one):
            batch = watermarked(*range(records))
            budget.settle_read(one, batch.held_bytes if records else 0)
            if records:
                one.reading.queue.push(batch)
        queued = sum(each.reading.queue.bytes for each in entries)
        assert queued <= LIMITS.worker_bytes + 5 * watermarked(*range(6)).held_bytes
        assert budget.used == queued + sum(each.reservation.bytes for each in entries)
