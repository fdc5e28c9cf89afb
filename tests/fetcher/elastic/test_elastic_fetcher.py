"""Elastic fetchers share the shards of a stream while they come and go: no record is lost (E1, E4, E5, E7)."""

import asyncio
from itertools import pairwise

import pytest

from recordpublisher.fetcher.leases.lease_settings import LeaseSettings
from recordpublisher.fetcher.sink import Unfinished
from recordpublisher.publishers.errors import SinkError
from recordpublisher.testing import run_virtual

from fakes.leases.elastic_processes import DURATION, ElasticProcesses
from fakes.scripted_source import RecordingSink


def test_processes_share_the_shards_and_a_joiner_causes_no_repeat():
    async def story():
        group = ElasticProcesses(shards=6)
        first = await group.join()
        await group.wait_until(lambda: len(first.shards) == 6)
        group.send()
        second = await group.join()
        await group.wait_until(lambda: len(first.shards) == len(second.shards) == 3)
        group.send()
        await group.wait_until_all_is_written()
        assert first.shards.isdisjoint(second.shards)
        metrics = [each.fetcher.metrics()["worker"] for each in (first, second)]
        assert [(each["leasesTaken"], each["leasesGiven"]) for each in metrics] == [(6, 3), (3, 0)]
        await first.stop()
        await second.stop()
        return group

    group = run_virtual(story())
    assert sorted(group.rows) == sorted(group.sent)


def test_the_shards_of_a_process_that_stops_are_read_without_waiting_for_its_leases():
    async def story():
        group = ElasticProcesses(shards=4)
        first, second = await group.join_two()
        await first.stop()
        group.send()
        before = asyncio.get_running_loop().time()
        await group.wait_until_all_is_written()
        took = asyncio.get_running_loop().time() - before
        await second.stop()
        return group, took

    group, took = run_virtual(story())
    assert sorted(group.rows) == sorted(group.sent)
    assert took < 1


def test_a_process_that_stops_reads_on_until_the_others_know_of_it():
    async def story():
        group = ElasticProcesses(shards=4)
        first, second = await group.join_two()
        stopping = asyncio.create_task(first.stop())
        await asyncio.sleep(LeaseSettings(DURATION).announce_seconds - 1)
        before = len(first.sink.rows)
        group.send()
        await group.wait_until_all_is_written()
        wrote = len(first.sink.rows) - before
        await stopping
        began = asyncio.get_running_loop().time()
        await second.stop()  # alone, it need not tell anybody
        return group, wrote, asyncio.get_running_loop().time() - began

    group, wrote, alone = run_virtual(story())
    assert sorted(group.rows) == sorted(group.sent)
    assert wrote == 2 * 5
    assert alone < 1


def test_processes_that_stop_together_do_not_wait_for_each_other():
    async def story():
        group = ElasticProcesses(shards=4)
        processes = await group.join_two()
        began = asyncio.get_running_loop().time()
        await asyncio.gather(*(process.stop() for process in processes))
        return asyncio.get_running_loop().time() - began

    assert run_virtual(story()) < 1.5


def test_the_shards_of_a_process_that_fails_are_read_without_waiting_for_its_leases():
    async def story():
        group = ElasticProcesses(shards=4)
        first, second = await group.join_two()
        first.sink.failure = SinkError("the disk is full")
        group.send()
        with pytest.raises(SinkError):
            await first.running
        before = asyncio.get_running_loop().time()
        await group.wait_until_all_is_written()
        took = asyncio.get_running_loop().time() - before
        await first.fetcher.close()
        await second.stop()
        return group, took

    group, took = run_virtual(story())
    assert sorted(group.rows) == sorted(group.sent)
    assert took < DURATION / 2


async def seconds_after_a_cancellation(group, first, second):
    """How long the other process takes for records of all shards."""
    await first.kill()
    await first.fetcher.close()
    group.send()
    before = asyncio.get_running_loop().time()
    await group.wait_until_all_is_written()
    took = asyncio.get_running_loop().time() - before
    await second.stop()
    return took


def test_the_shards_of_a_run_that_is_cancelled_are_read_soon_after_the_fetcher_was_closed():
    async def story():
        group = ElasticProcesses(shards=4)
        first, second = await group.join_two()
        group.send()
        await group.wait_until_all_is_written()
        return group, await seconds_after_a_cancellation(group, first, second)

    group, took = run_virtual(story())
    assert set(group.rows) == group.sent
    assert took < DURATION / 2


def test_a_run_after_one_that_was_cancelled_reads_without_waiting_for_the_leases_of_the_first():
    async def story():
        group = ElasticProcesses(shards=2)
        process = await group.join()
        await group.wait_until(lambda: len(process.shards) == 2)
        await process.kill()
        before = asyncio.get_running_loop().time()
        process.running = asyncio.create_task(process.fetcher.run())
        group.send()
        await group.wait_until_all_is_written()
        took = asyncio.get_running_loop().time() - before
        await process.stop()
        return took

    assert run_virtual(story()) < DURATION / 2


class BusySink(RecordingSink):
    """Has a call in a thread, which nobody can end."""

    def unfinished(self):
        return Unfinished(0, "records not handled: 0", calls=1)


def test_the_leases_of_a_run_that_is_cancelled_expire_if_a_call_still_runs():
    async def story():
        group = ElasticProcesses(shards=4)
        first = await group.join(sink=BusySink(0.0))
        await group.wait_until(lambda: len(first.shards) == 4)
        await first.kill()
        await first.fetcher.close()
        before = asyncio.get_running_loop().time()
        second = await group.join()
        group.send()
        await group.wait_until_all_is_written()
        await second.stop()
        return asyncio.get_running_loop().time() - before

    assert run_virtual(story()) >= DURATION


def test_the_shards_of_a_run_that_is_cancelled_while_it_ends_are_read_soon_after_the_fetcher_was_closed():
    async def story():
        group = ElasticProcesses(shards=1, cost=3.0)
        first = await group.join()
        await group.wait_until(lambda: len(first.shards) == 1)
        group.send(1)
        await asyncio.sleep(1)
        first.fetcher.stop()
        await asyncio.sleep(0.1)  # the run waits for its write
        await first.kill()
        await first.fetcher.close()
        before = asyncio.get_running_loop().time()
        second = await group.join()
        group.send(1)
        await group.wait_until_all_is_written()
        took = asyncio.get_running_loop().time() - before
        await second.stop()
        return took

    assert run_virtual(story()) < DURATION


def test_the_leases_of_a_run_that_is_cancelled_twice_during_a_write_expire():
    async def story():
        group = ElasticProcesses(shards=1, cost=3.0)
        first = await group.join()
        await group.wait_until(lambda: len(first.shards) == 1)
        group.send(1)
        await asyncio.sleep(1)
        first.running.cancel()
        await asyncio.sleep(0.1)  # the run waits for its write
        await first.kill()
        await first.fetcher.close()
        before = asyncio.get_running_loop().time()
        second = await group.join()
        group.send(1)
        await group.wait_until_all_is_written()
        await second.stop()
        return asyncio.get_running_loop().time() - before

    assert run_virtual(story()) >= DURATION


def test_a_run_that_is_cancelled_does_not_wait_for_a_store_that_hangs():
    async def story():
        group = ElasticProcesses(shards=1)
        first = await group.join()
        await group.wait_until(lambda: len(first.shards) == 1)
        await first.kill()
        first.store.is_hanging = True
        before = asyncio.get_running_loop().time()
        await first.fetcher.close()
        return asyncio.get_running_loop().time() - before

    assert run_virtual(story()) <= 2


def test_a_process_that_fails_without_its_store_ends_and_its_leases_expire():
    async def story():
        group = ElasticProcesses(shards=2)
        first, second = await group.join_two()
        first.store.is_cut = True
        first.sink.failure = SinkError("the disk is full")
        group.send()
        with pytest.raises(SinkError):
            await first.running
        await first.fetcher.close()
        await group.wait_until_all_is_written()
        await second.stop()
        return group

    group = run_virtual(story())
    assert sorted(group.rows) == sorted(group.sent)


def test_the_shards_of_a_killed_process_are_read_by_the_others():
    async def story():
        group = ElasticProcesses(shards=4, cost=0.3)
        first, second = await group.join_two()
        group.send(40)
        await group.wait_until(lambda: bool(first.sink.rows and second.sink.rows))
        await first.kill()
        group.send()
        await group.wait_until_all_is_written()
        await second.stop()
        return group

    group = run_virtual(story())
    assert set(group.rows) == group.sent


def test_a_process_that_does_not_reach_the_store_stops_writing_and_comes_back():
    async def story():
        group = ElasticProcesses(shards=4)
        first, second = await group.join_two()
        first.store.is_cut = True
        cut_at = asyncio.get_running_loop().time()
        for _ in range(60):
            group.send()
            await asyncio.sleep(1)
        await group.wait_until(lambda: len(second.shards) == 4)
        first.store.is_cut = False
        back_at = asyncio.get_running_loop().time()
        await group.wait_until(lambda: not first.shards)
        await group.wait_until(lambda: len(first.shards) == len(second.shards) == 2)
        assert first.fetcher.metrics()["worker"]["workerReplaced"] == 1
        assert second.fetcher.metrics()["worker"]["workersSealed"] == 1
        group.send()
        await group.wait_until_all_is_written()
        await first.stop()
        await second.stop()
        while_cut = [time - cut_at for time in first.sink.times if cut_at < time < back_at]
        return group, while_cut

    group, while_cut = run_virtual(story())
    assert set(group.rows) == group.sent
    assert max(while_cut) < DURATION * 2 / 3


def test_children_are_read_after_their_parent_whoever_reads_them():
    async def story():
        group = ElasticProcesses(shards=4)
        first, second = await group.join_two()
        group.send(30)
        group.source.split("shard-0", "left", "right")
        group.send(30)
        await group.wait_until_all_is_written()
        await first.stop()
        await second.stop()
        return group

    group = run_virtual(story())
    of_lineage = [shard for shard, _ in group.rows if shard in ("shard-0", "left", "right")]
    assert "shard-0" not in of_lineage[of_lineage.index("left") :]
    assert sorted(group.rows) == sorted(group.sent)


def test_each_shard_is_written_in_order_while_it_moves():
    async def story():
        group = ElasticProcesses(shards=5, cost=0.2)
        first = await group.join()
        group.send(60)
        second = await group.join()
        await group.wait_until(lambda: len(second.shards) >= 2)
        await first.stop()
        await group.wait_until_all_is_written()
        await second.stop()
        return group

    group = run_virtual(story())
    for number in range(5):
        times = [time for shard, time in group.rows if shard == f"shard-{number}"]
        assert all(later == earlier + 1 for earlier, later in pairwise(times))


def test_a_job_goes_on_where_the_last_process_has_stopped():
    async def story():
        group = ElasticProcesses(shards=2)
        first = await group.join()
        group.send()
        await group.wait_until_all_is_written()
        await first.stop()
        group.send()
        second = await group.join()
        await group.wait_until_all_is_written()
        await second.stop()
        return group

    group = run_virtual(story())
    assert sorted(group.rows) == sorted(group.sent)


def test_alignment_holds_shards_of_different_processes_together():
    async def story():
        group = ElasticProcesses(shards=2)
        aligned = {"flink.watermark.lookahead.millis": 3_000}
        first, second = await group.join_two(**aligned)
        slow, fast = (next(iter(each.shards)) for each in (first, second))
        group.source.shards[f"s/{fast}"].put(1_000, 20_000)
        await asyncio.sleep(60)
        waiting = list(second.sink.rows)
        group.source.shards[f"s/{slow}"].put(18_000)
        await group.wait_until(lambda: (fast, 20_000) in group.rows)
        await first.stop()
        await second.stop()
        return waiting

    assert run_virtual(story()) == []


def test_a_shard_that_moves_while_its_last_records_are_queued_has_not_ended():
    async def story():
        group = ElasticProcesses(shards=2, cost=4)
        group.send(50)
        for shard in ("shard-0", "shard-1"):
            group.source.split(shard, f"{shard}-left", f"{shard}-right")
        group.send(3)
        first = await group.join()
        await group.wait_until(lambda: bool(first.sink.rows))
        second = await group.join()
        await group.wait_until_all_is_written()
        await first.stop()
        await second.stop()
        return group, second

    group, second = run_virtual(story())
    assert sorted(group.rows) == sorted(group.sent)
    assert {shard for shard, _ in second.sink.rows} & {"shard-0", "shard-1"}


def test_a_shard_that_a_replaced_worker_had_read_to_its_end_is_read_again():
    async def story():
        group = ElasticProcesses(shards=2)
        first, second = await group.join_two()
        (moved,) = first.shards
        first.store.is_cut = True
        group.send()
        group.source.split(moved, "left", "right")
        await group.wait_until_all_is_written()
        group.source.silent.add(f"s/{moved}")
        await group.wait_until(lambda: moved in second.shards)
        first.store.is_cut = False
        await second.kill()
        group.source.silent.clear()
        group.send()
        await group.wait_until_all_is_written()
        await first.stop()
        return group, moved

    group, moved = run_virtual(story())
    assert group.rows.count((moved, 0)) == 2


def test_a_run_of_the_same_processes_is_repeated_to_the_name_and_the_second():
    async def story():
        group = ElasticProcesses(shards=8)
        first, second = await group.join_two()
        group.send()
        await group.wait_until_all_is_written()
        moments = [process.sink.times for process in (first, second)]
        names = [process.store.workers for process in (first, second)]
        await first.stop()
        await second.stop()
        return moments, names, asyncio.get_running_loop().time()

    assert run_virtual(story()) == run_virtual(story())


def test_a_group_that_has_read_everything_says_that_it_continues(caplog):
    async def story():
        group = ElasticProcesses(shards=1)
        group.source.close_shard("shard-0")
        first = await group.join()
        await asyncio.sleep(20)
        await first.stop()
        await (await group.join()).stop()

    with caplog.at_level("INFO", "recordpublisher.start"):
        run_virtual(story())
    begins = [line.partition("; it ")[2].partition(";")[0] for line in caplog.messages if "; it " in line]
    assert begins == ["begins at TRIM_HORIZON: no positions are stored", "continues at stored positions of 1 shard"]
