"""A job that runs alone: a later start and a fresh worker of a group replace it at once; it never replaces a living group."""

import asyncio
import contextlib
from itertools import pairwise

import pytest

from recordpublisher.fetcher.leases.group_store import GroupStore
from recordpublisher.fetcher.leases.worker_record import WorkerRecord
from recordpublisher.publishers.errors import FencedError, StateError, StoreUnavailableError
from recordpublisher.testing import run_virtual

from fakes.leases.alone_process import AloneProcess
from fakes.leases.elastic_processes import DURATION, ElasticProcesses, TimedSink


def now():
    return asyncio.get_running_loop().time()


async def written_alone(group):
    """An alone process that has written and stored some records."""
    process = await AloneProcess(group).start()
    group.send()
    await group.wait_until_all_is_written()
    await process.fetcher.checkpoint()
    return process


def repeated(group):
    return len(group.rows) - len(set(group.rows))


def test_a_later_start_resumes_where_the_last_one_stopped():
    async def story():
        group = ElasticProcesses(shards=3)
        first = await written_alone(group)
        await first.stop()
        second = await AloneProcess(group).start()
        group.send()
        await group.wait_until_all_is_written()
        await second.stop()
        return group

    group = run_virtual(story())
    assert sorted(group.rows) == sorted(group.sent)


@pytest.mark.parametrize("is_cut", [False, True])
def test_a_stop_seals_the_record_unless_the_store_is_away(is_cut):
    async def story():
        group = ElasticProcesses(shards=1)
        process = await written_alone(group)
        if is_cut:
            process.store.is_cut = True
            await asyncio.sleep(30)
        began = now()
        with contextlib.suppress(StoreUnavailableError):
            await process.stop()
        await process.fetcher.close()
        record = await GroupStore(group.store).read_record(process.alone.name)
        return record.document.is_sealed, now() - began

    drain_seconds = 20  # the last checkpoint waits for the store, and the seal does not
    assert run_virtual(story()) == (not is_cut, pytest.approx(drain_seconds if is_cut else 0, abs=1))


def test_a_store_that_hangs_does_not_keep_a_process_from_ending():
    async def story():
        process = await written_alone(ElasticProcesses(shards=1))
        await process.stop()

        async def hang(*given):
            await asyncio.sleep(1e9)

        process.store.compare_and_set = hang
        began = now()
        await process.fetcher.close()
        return now() - began

    assert run_virtual(story()) == pytest.approx(5, abs=0.1)


def test_a_later_start_replaces_one_that_runs_at_once():
    async def story():
        group = ElasticProcesses(shards=3)
        first = await written_alone(group)
        began = now()
        second = await AloneProcess(group).start()
        took = now() - began
        with pytest.raises(FencedError, match="the job was started again"):
            await first.running
        noticed = now() - began
        group.send()
        await group.wait_until_all_is_written()
        await second.stop()
        return group, took, noticed

    group, took, noticed = run_virtual(story())
    assert took < 1
    assert noticed < 6
    assert repeated(group) == 0


def test_a_replaced_process_stores_nothing_more():
    async def story():
        group = ElasticProcesses(shards=1)
        first = await written_alone(group)
        second = await AloneProcess(group).start()
        with pytest.raises(FencedError, match="was replaced"):
            await first.alone.store({**first.fetcher.snapshot(), "shards": {}})
        await second.stop()
        await first.kill()

    run_virtual(story())


def test_a_worker_of_a_group_replaces_an_alone_process_at_once_and_repeats_nothing_that_was_stored():
    async def story():
        group = ElasticProcesses(shards=4)
        alone = await written_alone(group)
        began = now()
        first, second = await group.join(), await group.join()
        with pytest.raises(FencedError):
            await alone.running
        group.send()
        await group.wait_until_all_is_written()
        took = now() - began
        await first.stop()
        await second.stop()
        return group, took

    group, took = run_virtual(story())
    assert took < DURATION / 2
    assert repeated(group) == 0


def test_a_group_that_finds_no_shard_begun_starts_at_its_own_start():
    async def story():
        group = ElasticProcesses(shards=2)
        alone = AloneProcess(group)
        await alone.alone.open()  # and is killed before its first checkpoint
        group.send()
        worker = await group.join()
        await group.wait_until_all_is_written()
        await worker.stop()
        return group

    group = run_virtual(story())
    assert sorted(group.rows) == sorted(group.sent)


def test_an_alone_start_is_refused_while_a_group_lives_and_names_its_worker():
    async def story():
        group = ElasticProcesses(shards=2)
        worker = await group.join()
        await group.wait_until(lambda: len(worker.shards) == 2)
        with pytest.raises(
            StateError, match=f"worker {worker.worker.name} of the group .* sends heartbeats: stop it, or start with"
        ):
            await AloneProcess(group).start()
        group.send()
        await group.wait_until_all_is_written()
        await worker.stop()

    run_virtual(story())


def test_an_alone_start_waits_for_the_lease_of_a_killed_group():
    async def story():
        group = ElasticProcesses(shards=2)
        worker = await group.join()
        group.send()
        await group.wait_until_all_is_written()
        await worker.fetcher.checkpoint()
        await worker.kill()
        began = now()
        alone = await AloneProcess(group).start()
        took = now() - began
        group.send()
        await group.wait_until_all_is_written()
        await alone.stop()
        return group, took

    group, took = run_virtual(story())
    assert DURATION <= took < 2 * DURATION
    assert repeated(group) == 0


def test_an_alone_start_takes_the_shards_of_a_stopped_group_at_once():
    async def story():
        group = ElasticProcesses(shards=4)
        first, second = await group.join_two()
        group.send()
        await group.wait_until_all_is_written()
        await first.stop()
        await second.stop()
        began = now()
        alone = await AloneProcess(group).start()
        took = now() - began
        group.send()
        await group.wait_until_all_is_written()
        await alone.stop()
        left = await group.store.list_names("group/workers/")
        return group, took, left, alone.alone.name

    group, took, left, name = run_virtual(story())
    assert took < 1
    assert sorted(group.rows) == sorted(group.sent)
    assert left == [f"group/workers/{name}"]


def test_a_later_life_of_a_group_ends_when_the_job_was_started_alone_meanwhile():
    async def story():
        group = ElasticProcesses(shards=2)
        worker = await group.join()
        group.send()
        await group.wait_until_all_is_written()
        await worker.fetcher.checkpoint()
        worker.store.is_cut = True
        alone = await AloneProcess(group).start()
        worker.store.is_cut = False
        with pytest.raises(StateError, match="was started alone with this job"):
            await worker.running
        group.send()
        await group.wait_until_all_is_written()
        await alone.stop()
        return group

    group = run_virtual(story())
    assert repeated(group) == 0


def test_a_worker_whose_join_was_late_still_replaces_the_alone_worker():
    async def story():
        group = ElasticProcesses(shards=2)
        await (await written_alone(group)).kill()
        worker = await group.join()
        worker.store.is_cut = True
        await asyncio.sleep(DURATION + 10)
        worker.store.is_cut = False
        group.send()
        await group.wait_until(lambda: worker.running.done() or group.sent <= set(group.rows))
        await worker.stop()
        return group, worker

    group, worker = run_virtual(story())
    assert len(worker.store.workers) == 2, "the first life was too late"
    assert sorted(group.rows) == sorted(group.sent)


def test_it_reads_and_writes_on_through_an_outage_of_its_store():
    async def story():
        group = ElasticProcesses(shards=2)
        alone = await written_alone(group)
        alone.store.is_cut = True
        group.send()
        await asyncio.sleep(120)
        in_outage = group.sent <= set(group.rows)
        alone.store.is_cut = False
        await asyncio.sleep(10)
        await alone.kill()
        second = await AloneProcess(group).start()
        group.send()
        await group.wait_until_all_is_written()
        await second.stop()
        return group, in_outage

    group, in_outage = run_virtual(story())
    assert in_outage
    assert repeated(group) == 0


def test_children_begin_without_a_write_of_the_table_and_are_known_to_a_group():
    async def story():
        group = ElasticProcesses(shards=1)
        alone = await written_alone(group)
        versions = (await GroupStore(group.store).read_table()).version
        group.source.split("shard-0", "shard-1", "shard-2")
        group.send()
        await group.wait_until_all_is_written()
        unchanged = (await GroupStore(group.store).read_table()).version == versions
        await alone.fetcher.checkpoint()
        await alone.kill()
        worker = await group.join()
        group.send()
        await group.wait_until_all_is_written()
        await worker.stop()
        return group, unchanged

    group, unchanged = run_virtual(story())
    assert unchanged
    assert sorted(group.rows) == sorted(group.sent)
    for shard in ("shard-1", "shard-2"):
        times = [time for key, time in group.rows if key == shard]
        assert all(before < after for before, after in pairwise(times))


@pytest.mark.parametrize("name", ["group/leases", "record", "part"])
def test_a_start_whose_write_has_no_answer_finds_it_again(name):
    async def story():
        group = ElasticProcesses(shards=2)
        await (await written_alone(group)).stop()
        alone = AloneProcess(group)
        prefix = {"record": f"group/workers/{alone.alone.name}", "part": f"group/positions/{alone.alone.name}/0"}
        losing, lost = prefix.get(name, name), []
        write = alone.store._write

        def without_answer(written, value, expected):
            version = write(written, value, expected)
            if written == losing and not lost:
                lost.append(written)
                raise StoreUnavailableError("no answer")
            return version

        alone.store._write = without_answer
        await alone.start()
        group.send()
        await group.wait_until_all_is_written()
        await alone.stop()
        return group, lost

    group, lost = run_virtual(story())
    assert lost
    assert sorted(group.rows) == sorted(group.sent)


def test_at_rest_it_writes_the_time_of_its_last_read_only():
    async def story():
        group = ElasticProcesses(shards=2)
        alone = await written_alone(group)
        before = group.store.writes
        await asyncio.sleep(200)
        written = group.store.writes - before
        await alone.stop()
        return written

    assert run_virtual(story()) == 1


@pytest.mark.parametrize("interval", [-1, 600_000])
def test_it_notices_a_successor_between_rare_checkpoints(interval):
    async def story():
        group = ElasticProcesses(shards=1)
        first = await AloneProcess(group, **{"flink.state.checkpoint.interval": interval}).start()
        began = now()
        second = await AloneProcess(group).start()
        with pytest.raises(FencedError):
            await first.running
        noticed = now() - began
        await second.stop()
        return noticed

    assert run_virtual(story()) <= 25


def test_it_notices_a_successor_while_its_sink_is_flushed():
    class SlowSink(TimedSink):
        async def flush(self, checkpoint):
            await asyncio.sleep(300 if self.is_slow else 0)

    async def story():
        group = ElasticProcesses(shards=1)
        sink = SlowSink(group.rows, 0.0)
        sink.is_slow = False
        first = await AloneProcess(group, sink).start()
        sink.is_slow = True
        await asyncio.sleep(6)  # the flush of its first checkpoint has begun
        began = now()
        second = await AloneProcess(group).start()
        await group.wait_until(lambda: first.fetcher._completion.error is not None)
        noticed = now() - began
        await second.stop()
        await first.kill()
        return noticed

    assert run_virtual(story()) <= 25


def test_what_a_start_has_left_that_took_nothing_is_deleted_after_a_day():
    async def story():
        group = ElasticProcesses(shards=1)
        documents = GroupStore(group.store)
        alone = AloneProcess(group)
        now_ms = alone.alone._clock.now_ms()
        for name, sent_ms in (("old", now_ms - 90_000_000), ("new", now_ms - 1_000)):
            await documents.own_record(name).write(WorkerRecord(name, 1, is_alone=True, sent_ms=sent_ms))
        await alone.start()
        await alone.stop()
        return sorted(await documents.read_records()), alone.alone.name

    records, name = run_virtual(story())
    assert records == sorted(["new", name])
