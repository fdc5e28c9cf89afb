"""MapSink in a group: a record that takes long delays neither the checkpoints of the process nor the moves of other shards (E5)."""

import asyncio
import json
import logging

import recordpublisher as rp
from recordpublisher.testing import run_virtual

from fakes.leases.elastic_processes import DURATION, ElasticProcesses


class Handler:
    """Returns at once, but for the records whose shard and number are in `held`: these wait until the test lets them go."""

    def __init__(self, *held):
        self.held = set(held)
        self.go_on = asyncio.Event()
        self.done = []

    async def __call__(self, record):
        if (record.shard_id, int(record.data)) in self.held:
            await self.go_on.wait()
        self.done.append((record.shard_id, int(record.data)))


async def join(group, handler, **options):
    process = await group.join(sink=rp.MapSink(handler, **options))
    await asyncio.sleep(0)
    return process


def stored_positions(group):
    """The highest stored position of each shard."""
    found = {}
    for name, value in group.store.values.items():
        if name.startswith("group/positions/"):
            for shard, _, stored in json.loads(value.value)["positions"]:
                found[shard] = max(found.get(shard, -1), int(stored.get("position", -1)))
    return found


def test_a_slow_record_delays_no_checkpoint_and_no_other_record():
    async def story():
        group, handler = ElasticProcesses(shards=2), Handler(("shard-0", 3))
        process = await join(group, handler)
        group.send()
        await asyncio.sleep(60)
        first = stored_positions(group)
        group.send()
        await asyncio.sleep(60)
        second = stored_positions(group)
        done = set(handler.done)
        handler.go_on.set()
        await group.wait_until(lambda: stored_positions(group) == {"s/shard-0": 9, "s/shard-1": 9})
        await process.stop()
        return first, second, done

    first, second, done = run_virtual(story())
    assert first["s/shard-1"] == 4
    assert second["s/shard-1"] == 9
    assert first["s/shard-0"] == second["s/shard-0"] < 3
    assert {number for shard, number in done if shard == "shard-1"} == set(range(10))
    assert {number for shard, number in done if shard == "shard-0"} == set(range(10)) - {3}, (
        "it delays only its own key"
    )


def test_other_shards_move_while_a_record_of_one_is_handled_and_that_one_follows():
    async def story():
        group = ElasticProcesses(shards=4)
        handler, others = Handler(("shard-0", 2)), Handler()
        first = await join(group, handler)
        await group.wait_until(lambda: len(first.shards) == 4)
        group.send()
        await asyncio.sleep(20)
        second = await join(group, others)
        await asyncio.sleep(120)
        early = set(second.shards)
        group.send()
        await asyncio.sleep(60)
        handled = {shard for shard, _ in others.done}
        handler.go_on.set()
        await group.wait_until(lambda: len(second.shards) == 2)
        await group.wait_until(lambda: {*handler.done, *others.done} == group.sent)
        await first.stop()
        await second.stop()
        return group, early, handled, [*handler.done, *others.done]

    group, early, handled, done = run_virtual(story())
    assert handled == early == {"shard-1"}
    assert sorted(done) == sorted(group.sent), "a hand-over repeats nothing"


def test_a_process_that_leaves_gives_up_at_once_what_is_handled():
    async def story():
        group = ElasticProcesses(shards=2)
        handler, others = Handler(("shard-0", 2)), Handler()
        first = await join(group, handler)
        group.send()
        await asyncio.sleep(20)
        second = await join(group, others, concurrency=1)
        await group.wait_until(lambda: bool(others) and len(first.shards) + len(second.shards) == 2)
        stopping = asyncio.create_task(first.stop())
        await asyncio.sleep(20)
        early, is_waiting = set(second.shards), not stopping.done()
        handler.go_on.set()
        await stopping
        await group.wait_until(lambda: len(second.shards) == 2)
        group.send()
        await group.wait_until(lambda: {*handler.done, *others.done} == group.sent)
        await second.stop()
        return group, early, is_waiting, [*handler.done, *others.done]

    group, early, is_waiting, done = run_virtual(story())
    assert early == {"shard-1"}
    assert is_waiting
    assert sorted(done) == sorted(group.sent)


def test_a_process_that_leaves_ends_soon_after_its_last_record_is_handled():
    """It used to wait for the next of its ever rarer checkpoints: up to 5 s with no record to handle."""

    async def story():
        group, handler = ElasticProcesses(shards=2), Handler(("shard-0", 3), ("shard-1", 3))
        process = await join(group, handler)
        other = await join(group, Handler())
        await group.wait_until(lambda: len(process.shards) == len(other.shards) == 1)
        group.send()
        stopping = asyncio.create_task(process.stop())
        await asyncio.sleep(14)
        assert not stopping.done()
        began = asyncio.get_running_loop().time()
        handler.go_on.set()
        await stopping
        took = asyncio.get_running_loop().time() - began
        await other.stop()
        return took

    assert run_virtual(story()) < 1


def test_a_hand_over_that_waits_for_a_record_is_logged_each_minute(caplog):
    async def story():
        group = ElasticProcesses(shards=2)
        handler = Handler(("shard-0", 2), ("shard-1", 2))
        first = await join(group, handler)
        group.send()
        await asyncio.sleep(20)
        second = await join(group, Handler())
        await asyncio.sleep(200)
        handler.go_on.set()
        await group.wait_until(lambda: len(second.shards) == 1)
        await first.stop()
        await second.stop()

    with caplog.at_level(logging.WARNING):
        run_virtual(story())
    found = [record.getMessage() for record in caplog.records if "wait to be transferred" in record.getMessage()]
    assert len(found) in (2, 3)
    assert "s/shard-" in found[0]


def test_a_list_that_waits_for_more_does_not_delay_a_hand_over_and_is_left_to_the_next_owner():
    async def story():
        group = ElasticProcesses(shards=1)

        async def handle(records):
            pass

        process = await join(group, handle, batch_size=100, batch_wait="1000s")
        group.send()
        await asyncio.sleep(20)
        before = asyncio.get_running_loop().time()
        await process.stop()
        return asyncio.get_running_loop().time() - before, stored_positions(group)

    took, stored = run_virtual(story())
    assert took < 10
    assert stored == {"s/shard-0": -1}


def test_a_process_that_leaves_a_backlog_hands_over_what_no_handler_has_begun():
    async def story():
        group = ElasticProcesses(shards=1)
        done = []

        async def slow(record):
            await asyncio.sleep(10)
            done.append((record.shard_id, int(record.data)))

        first = await join(group, slow, concurrency=2, ordering="NONE")
        group.send(500)
        await asyncio.sleep(60)
        before = asyncio.get_running_loop().time()
        await first.stop()
        took = asyncio.get_running_loop().time() - before
        others = Handler()
        second = await join(group, others, concurrency=2, ordering="NONE")
        await group.wait_until(lambda: {*done, *others.done} == group.sent)
        await second.stop()
        return took, sorted([*done, *others.done]) == sorted(group.sent), bool(done)

    took, is_once, has_begun = run_virtual(story())
    assert took < 30
    assert is_once, "nothing is handled twice"
    assert has_begun


def test_a_worker_that_was_replaced_names_how_many_calls_run(caplog):
    async def story():
        group, handler = ElasticProcesses(shards=2), Handler(("shard-0", 3), ("shard-1", 3))
        first = await join(group, handler)
        group.send()
        await asyncio.sleep(10)
        first.store.is_cut = True
        second = await join(group, Handler())
        await group.wait_until(lambda: len(second.shards) == 2)
        first.store.is_cut = False
        await asyncio.sleep(DURATION)
        counted = first.fetcher.metrics()["worker"]["inFlightWhenReplaced"]
        handler.go_on.set()
        await first.stop()
        await second.stop()
        return counted

    assert run_virtual(story()) == 2
    assert "In the middle of a write or a call here: 2" in caplog.text
