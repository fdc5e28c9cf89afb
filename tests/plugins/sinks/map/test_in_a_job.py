"""A job with a `MapSink`: what its stored positions cover, and how it ends."""

import asyncio

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.monitoring.alarm_monitor import cancel_if_hung, words_for_hung
from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.testing import VirtualClock, run_virtual

from fakes.batches import batch
from fakes.kept_snapshots import KeptSnapshots
from fakes.leases.elastic_processes import ElasticProcesses
from fakes.memory_streams import PROPERTIES, install
from fakes.scripted_source import ScriptedSource, make_fetcher
from fakes.stored_job import states_in

GIVEN = {**PROPERTIES, "flink.job.name": "job", "flink.state.checkpoint.interval": "20ms"}


RECORDS = {"a": [b"a0", b"a1", b"a2"], "b": [b"b0", b"b1", b"b2"]}


@pytest.fixture
def open_shards(monkeypatch):
    install(monkeypatch, RECORDS)


@pytest.fixture
def ended_shards(monkeypatch):
    install(monkeypatch, RECORDS, closed=True)


def job(handler, folder, **options):
    sink = rp.MapSink(handler, ordering="PER_SHARD", **options)
    return rp.DataFetcher(["orders"], {**GIVEN, "flink.state.uri": str(folder)}, sink=sink)


async def stored_positions(folder):
    states = await states_in(rp.FolderStore(folder))
    return {key: state.get("position") for key, state in states.items()}


async def stopped_while_two_run(fetcher, seen, go_on):
    """Run until two handlers have begun, stop, and let them end."""
    running = asyncio.ensure_future(fetcher.run())
    while len(seen) < 2:  # noqa: ASYNC110 - handlers set no event
        await asyncio.sleep(0.01)
    fetcher.stop()
    await asyncio.sleep(0.05)
    go_on.set()
    await running


async def test_a_record_that_takes_long_holds_back_its_shard_and_no_other(tmp_path, open_shards):
    seen, again = [], []

    async def stuck(record):
        seen.append(record.data)
        if record.data == b"a1":
            await asyncio.Event().wait()

    async def handle(record):
        again.append(record.data)

    async with job(stuck, tmp_path) as fetcher:
        running = asyncio.ensure_future(fetcher.run())
        while (await stored_positions(tmp_path)).get("orders/b") != "2":  # noqa: ASYNC110 - the store sets no event
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait([running])
    positions = await stored_positions(tmp_path)
    async with job(handle, tmp_path) as fetcher:
        running = asyncio.ensure_future(fetcher.run())
        while b"a2" not in again:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        fetcher.stop()
        await running

    assert sorted(seen) == [b"a0", b"a1", b"b0", b"b1", b"b2"]
    assert positions == {"orders/a": "0", "orders/b": "2"}
    assert again == [b"a1", b"a2"]


async def test_the_end_of_a_run_waits_for_every_record(tmp_path, ended_shards):
    seen = []

    async def handle(record):
        await asyncio.sleep(0.01)
        seen.append(record.data)

    async with job(handle, tmp_path) as fetcher:
        await fetcher.run()
    assert sorted(seen) == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]


async def test_a_job_that_is_stopped_leaves_what_no_handler_has_begun_to_the_next_start(tmp_path, open_shards):
    seen, go_on = [], asyncio.Event()

    async def slow(record):
        seen.append(record.data)
        await go_on.wait()

    async def handle(record):
        seen.append(record.data)

    async with job(slow, tmp_path) as fetcher:
        await stopped_while_two_run(fetcher, seen, go_on)
        told = fetcher.progress()
    begun = sorted(seen)
    async with job(handle, tmp_path) as fetcher:
        running = asyncio.ensure_future(fetcher.run())
        while len(seen) < 6:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        fetcher.stop()
        await running

    assert begun == [b"a0", b"b0"]
    assert sorted(seen) == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]
    assert (told.records, told.unfinished, told.left) == (6, 0, 4)  # nothing is nowhere


async def test_without_a_store_a_job_that_is_stopped_handles_all_that_its_snapshot_covers(open_shards):
    seen, go_on = [], asyncio.Event()

    async def slow(record):
        seen.append(record.data)
        await go_on.wait()

    async with rp.DataFetcher(["orders"], GIVEN, sink=rp.MapSink(slow, ordering="PER_SHARD")) as fetcher:
        await stopped_while_two_run(fetcher, seen, go_on)
        covered = {key: entry["position"] for key, entry in fetcher.snapshot()["shards"].items()}

    assert sorted(seen) == [b"a0", b"a1", b"a2", b"b0", b"b1", b"b2"]
    assert covered == {"orders/a": "2", "orders/b": "2"}


async def test_a_failure_ends_the_job_with_the_record_and_its_cause(tmp_path, ended_shards):
    async def handle(record):
        raise KeyError("customer")

    async with job(handle, tmp_path, retries=0) as fetcher:
        with pytest.raises(
            rp.SinkError, match=r"record 0 of orders/. cannot be handled after 1 attempt: KeyError"
        ) as raised:
            await fetcher.run()
    assert isinstance(raised.value.__cause__, KeyError)


# --- A job that is stopped ends although a handler does not return, even if it swallows its cancellation ---


DRAIN = {"flink.job.drain.timeout": "30s"}


async def swallowing(record):
    while int(record.data) == 5:
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            continue
    await asyncio.sleep(1)


def stopped(handler, source, store=None, max_time=None, retries=0, **properties):
    """Run until all handlers have begun, and stop the job. Return how long the stop took (seconds).

    `max_time`: bound of the run in seconds, which stops the job instead of `stop`.
    """

    async def story():
        fetcher = make_fetcher(
            source,
            rp.MapSink(handler, concurrency=10, ordering="NONE", retries=retries, clock=VirtualClock()),
            {**DRAIN, **properties},
            alone=None if store is None else store.start(),
        )
        await fetcher.open()
        running = asyncio.create_task(fetcher.run_bounded(Bounds(max_time=max_time)))
        await asyncio.sleep(5)
        if max_time is None:
            fetcher.stop()
        began = asyncio.get_running_loop().time()
        async with asyncio.timeout(600):
            await running
            await fetcher.close()
        return asyncio.get_running_loop().time() - began

    return run_virtual(story())


@pytest.mark.parametrize("max_time", [None, 5])
@pytest.mark.parametrize("has_store", [True, False])
def test_a_stopped_job_ends_after_the_drain_timeout_and_names_the_handler_and_the_record(caplog, has_store, max_time):
    source, store = ScriptedSource(), KeptSnapshots()
    source.add("a", *range(10))
    seconds = stopped(swallowing, source, store if has_store else None, max_time)

    assert 30 < seconds < 50, "the drain timeout, and ten seconds for handlers to clean up"
    (line,) = [line for line in caplog.messages if "flink.job.drain.timeout" in line]
    assert "the handler swallowing has run for 3" in line
    assert "with record 5 of s/a" in line
    if has_store:
        assert store.kept[-1]["shards"]["s/a"]["position"] == "4"
    assert ("The next start reads its records" in line) == has_store
    assert ("no start continues at these records" in line) != has_store


@pytest.mark.parametrize(("seconds", "drain"), [(25, 30), (110, 120)])
def test_what_is_handled_while_it_drains_is_stored(seconds, drain):
    async def slow_before_a_hung_one(record):
        await asyncio.sleep({4: seconds, 5: 1e6}.get(int(record.data), 0))

    source, store = ScriptedSource(), KeptSnapshots()
    source.add("a", *range(10))
    stopped(slow_before_a_hung_one, source, store, **{"flink.job.drain.timeout": f"{drain}s"})
    assert store.kept[-1]["shards"]["s/a"]["position"] == "4"


async def slow(record):
    await asyncio.sleep(20 + 10 * int(record.data))


def test_a_stop_ends_after_the_drain_timeout_although_handlers_return_in_the_meantime(caplog):
    """A process manager kills the process at a fixed time after the stop."""
    source, store = ScriptedSource(), KeptSnapshots()
    source.add("a", *range(10))
    assert 30 <= stopped(slow, source, store) < 32
    assert store.kept[-1]["shards"]["s/a"]["position"] == "1", "the handlers of the others end 40 s after their start"
    (line,) = [line for line in caplog.messages if "flink.job.drain.timeout" in line]
    assert line.startswith(
        "the job ends although the sink has not finished 30 s after the stop (flink.job.drain.timeout)"
    )


def test_a_handler_that_times_out_and_is_called_again_does_not_delay_the_end():
    began = []

    async def hangs(record):
        began.append(asyncio.get_running_loop().time())
        await asyncio.sleep(3_600)

    async def story():
        source, store = ScriptedSource(), KeptSnapshots()
        sink = rp.MapSink(hangs, timeout=15, clock=VirtualClock())
        fetcher = make_fetcher(source, sink, {"flink.job.drain.timeout": "8s"}, alone=store.start())
        for number in range(5):
            source.add("a", number)
        await fetcher.open()
        running = asyncio.create_task(fetcher.run())
        await asyncio.sleep(12)  # The calls time out 3 s after the stop, and are made again.
        fetcher.stop()
        stop = asyncio.get_running_loop().time()
        await running
        await fetcher.close()
        return asyncio.get_running_loop().time() - stop, max(began) - stop

    seconds, last_call = run_virtual(story())
    assert seconds < 10
    assert 0 < last_call < 5


@pytest.mark.parametrize("drain", [2, 5, 60])
def test_records_that_fail_are_left_before_the_drain_timeout_cuts_off_the_calls(caplog, drain):
    async def too_early(record):
        await asyncio.sleep(0.3)
        raise rp.TransientError("apply", "TooEarly", "the order does not exist yet", retry_after=0.5)

    source, store = ScriptedSource(), KeptSnapshots()
    source.add("a", *range(10))
    assert stopped(too_early, source, store, retries=1000, **{"flink.job.drain.timeout": f"{drain}s"}) < min(drain, 7)
    assert "flink.job.drain.timeout" not in caplog.text
    assert "still fails after this process has released the shard" in caplog.text


def test_records_that_wait_for_a_retry_count_for_the_drain_timeout(caplog):
    """The calls are short, so none of them runs when the job looks at the sink."""

    async def too_early(record):
        raise rp.TransientError("apply", "TooEarly", "the order does not exist yet", retry_after=0.9)

    async def story():
        sink = rp.MapSink(too_early, ordering="NONE", retries=10**6, clock=VirtualClock())
        await sink.open(rp.SinkContext())
        await sink.write(batch(b"1", b"2"))
        await asyncio.sleep(5)
        work = asyncio.Event().wait()
        began = asyncio.get_running_loop().time()
        left = await cancel_if_hung(work, sink, lambda: 0, 3, VirtualClock(), limits_all=True)
        await sink.close()
        return left, asyncio.get_running_loop().time() - began

    left, seconds = run_virtual(story())
    assert (left.calls, left.waiting) == (0, 2)
    assert 3 <= seconds < 4.1
    assert words_for_hung(left, 3, limits_all=True) == "the sink has not finished 3 s after the stop"


@pytest.mark.parametrize(("has_store", "max_time"), [(True, 5), (False, None)])
def test_a_bound_and_a_stop_without_a_store_wait_while_handlers_return(caplog, has_store, max_time):
    """Without a store nothing is left to a next start, which begins elsewhere."""
    source, store = ScriptedSource(), KeptSnapshots()
    source.add("a", *range(10))
    assert stopped(slow, source, store if has_store else None, max_time) > 100
    assert "flink.job.drain.timeout" not in caplog.text


def test_a_worker_of_a_group_ends(caplog):
    async def story():
        group = ElasticProcesses(shards=1)
        sink = rp.MapSink(swallowing, concurrency=10, ordering="NONE", clock=VirtualClock())
        process = await group.join(sink=sink, **DRAIN)
        group.send(10)
        await asyncio.sleep(60)
        began = asyncio.get_running_loop().time()
        async with asyncio.timeout(600):
            await process.stop()
        return asyncio.get_running_loop().time() - began

    assert run_virtual(story()) < 60
    assert "with record 5 of s/shard-0" in caplog.text


def test_a_worker_leaves_its_group_and_the_next_one_reads_at_once_what_was_not_handled(caplog):
    async def story():
        group, now = ElasticProcesses(shards=1), asyncio.get_running_loop().time
        sink = rp.MapSink(swallowing, concurrency=10, ordering="NONE", clock=VirtualClock())
        first = await group.join(sink=sink, **DRAIN)
        group.send(10)
        await asyncio.sleep(60)
        await first.stop()
        began, second = now(), await group.join()
        await group.wait_until(lambda: len(second.sink.rows) == 5)
        return now() - began, [row[1] for row in second.sink.rows]

    caplog.set_level("INFO")
    seconds, rows = run_virtual(story())
    assert seconds < 5, "the next worker does not wait for the end of a lease"
    assert rows == [5, 6, 7, 8, 9]
    assert "has left its group" in caplog.text
