"""`rp.DataFetcher`: a whole job from properties; invalid settings fail at construction (C2)."""

import asyncio

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.monitoring import alarm_monitor
from recordpublisher.local import in_memory

from fakes.memory_streams import ARRIVAL, PROPERTIES, MemoryFactory, install


@pytest.fixture(autouse=True)
def _orders(monkeypatch):
    install(monkeypatch, {"a": [b'{"at": 5, "n": 1}', b"no json", b'{"n": 3}', b'{"at": 7, "n": 4}']}, closed=True)


def fetcher(sink=None, streams=("orders",), properties=PROPERTIES, **options):
    return rp.DataFetcher(streams, properties, sink=rp.MemorySink() if sink is None else sink, **options)


WRONG = [
    ("streams", {"streams": None}),
    ("streams", {"streams": []}),
    ("streams", {"streams": [""]}),
    ("streams", {"streams": [7]}),
    ("streams", {"streams": 7}),
    ("streams", {"streams": ["orders", "orders"]}),
    ("properties", {"properties": "flink.stream.initpos=LATEST"}),
    ("flink.sink", {"sink": "memroy"}),
    ("sink", {"sink": rp.MemorySink}),
    ("restore", {"restore": "state.json"}),
    ("restore", {"restore": [None]}),
    ("restore", {"restore": 7}),
    ("flink.deserializer", {"deserializer": "jsno"}),
    ("deserializer", {"deserializer": 5}),
    ("timestamp_assigner", {"timestamp_assigner": 5}),
    ("watermark_assigner", {"watermark_assigner": 5}),
    ("state_store", {"state_store": "/tmp/state"}),
]


@pytest.mark.parametrize(("key", "options"), WRONG, ids=str)
def test_a_wrong_argument_is_named_with_what_is_valid(key, options):
    with pytest.raises(rp.ConfigurationError) as raised:
        fetcher(**options)

    assert raised.value.key == key
    assert raised.value.valid
    assert MemoryFactory.prepared == [], "nothing was registered for a job that cannot run"


def test_no_sink_is_an_error():
    with pytest.raises(rp.ConfigurationError, match="sink"):
        rp.DataFetcher(["orders"], PROPERTIES, sink=None)


def test_a_snapshot_that_cannot_be_read_fails_at_construction():  # S5
    with pytest.raises(rp.StateError, match="not a snapshot"):
        fetcher(restore={"shards": {}})


@pytest.mark.parametrize(
    "bound",
    [
        {"max_time": -1},
        {"max_time": float("nan")},
        {"max_time": "5"},
        {"max_records": -1},
        {"max_records": 1.5},
        {"stop_at_tip": "no"},
        {"stop_at_tip": 1},
        {"max_bytes": True},
        {"until_event_time": "2020"},
    ],
    ids=str,
)
async def test_a_wrong_bound_is_named(bound):
    async with fetcher() as running:
        with pytest.raises(rp.ConfigurationError) as raised:
            await running.run_bounded(**bound)

    assert raised.value.key in bound


async def test_given_functions_decide_values_and_event_times():
    sink = rp.MemorySink()
    options = {"deserializer": lambda record: len(record.data), "timestamp_assigner": lambda record: record.value}
    async with fetcher(sink, **options) as running:
        await running.run()

    assert [(record.value, record.event_time) for record in sink.records] == [(17, 17), (7, 7), (8, 8), (17, 17)]


async def test_skipped_records_are_counted_in_the_metrics():  # S7
    sink = rp.MemorySink()
    properties = {
        **PROPERTIES,
        "flink.deserializer": "json",
        "flink.deserializer.error": "SKIP",
        "flink.watermark.timestamp.field": "at",
    }
    async with fetcher(sink, properties=properties) as running:
        await running.run()
        metrics, state = running.metrics(), running.snapshot()

    assert [record.event_time for record in sink.records] == [5, 7]
    assert metrics["shards"]["orders/a"]["skippedRecords"] == 2
    assert state["shards"]["orders/a"]["position"] == "3"


async def test_invalid_event_times_are_counted_in_the_metrics():  # W12
    async with fetcher(timestamp_assigner=lambda record: round(ARRIVAL * 1000) + 10**9) as running:
        await running.run()
        metrics = running.metrics()

    assert metrics["shards"]["orders/a"]["futureEventTimes"] == 4
    assert metrics["shards"]["orders/a"]["watermark"] == round(ARRIVAL * 1000)


async def test_the_sink_is_closed_when_opening_fails(monkeypatch):
    class Sink(rp.MemorySink):
        closed = 0

        async def close(self):
            self.closed += 1

    async def gone(self, stream):
        raise rp.StreamNotFoundError(stream)

    monkeypatch.setattr(MemoryFactory, "discover", gone)
    sink = Sink()
    with pytest.raises(rp.StreamNotFoundError):
        async with fetcher(sink):
            pass

    assert sink.closed == 1


async def test_an_error_while_closing_does_not_hide_that_of_the_run(monkeypatch, caplog):
    class Sink(rp.MemorySink):
        async def write(self, batch):
            raise OSError("the disk is full")

    async def cannot(self):
        raise ValueError("a connection is broken")

    monkeypatch.setattr(MemoryFactory, "close", cannot)
    with pytest.raises(OSError, match="the disk is full"):
        async with fetcher(Sink()) as running:
            await running.run()

    assert "a connection is broken" in caplog.text


async def test_an_error_while_closing_is_raised(monkeypatch):
    async def cannot(self):
        raise ValueError("a connection is broken")

    monkeypatch.setattr(MemoryFactory, "close", cannot)
    with pytest.raises(ValueError, match="a connection is broken"):
        async with fetcher() as running:
            await running.run()


class KeepsPositions(rp.MemorySink):
    async def stored_positions(self):
        return []


def told_of_positions(caplog):
    return [line for line in caplog.messages if line.startswith("no positions are stored: each start ")]


async def test_a_run_that_stores_no_positions_says_once_what_a_restart_does(caplog):
    async with fetcher() as running:
        await running.run()
        await running.run()

    (told,) = told_of_positions(caplog)
    assert told.endswith("; set flink.state.uri")


@pytest.mark.parametrize("kept", ["in a store", "in the sink", "by the program", "for a bounded run"])
async def test_a_run_whose_positions_are_kept_says_nothing_of_them(kept, caplog, tmp_path):
    options = {
        "in a store": {"state_store": rp.FolderStore(tmp_path)},
        "in the sink": {"sink": KeepsPositions()},
        "by the program": {"restore": []},
    }
    async with fetcher(**options.get(kept, {})) as running:
        await (running.run_bounded(max_records=1) if kept == "for a bounded run" else running.run())

    assert told_of_positions(caplog) == []


async def test_a_second_run_is_refused_while_the_first_reads_on(monkeypatch, caplog):
    install(monkeypatch, {"a": [b"1", b"2"]})
    async with fetcher(sink=(sink := rp.MemorySink())) as running:
        first = asyncio.create_task(running.run())
        await running.wait_ready()
        for run in (running.run, running.run_bounded):
            with pytest.raises(
                RuntimeError, match="the fetcher is running already: wait until the first run has ended"
            ):
                await run()
        assert not first.done()
        running.stop()
        assert (await first).records == len(sink.records) == 2
    assert not [line for line in caplog.messages if "the run ended with an error" in line]


async def test_a_stopped_fetcher_does_not_run_again_as_if_all_were_well(monkeypatch):
    install(monkeypatch, {"a": [b"1", b"2"]})
    async with fetcher() as running:
        running.stop()
        assert (await running.run_bounded(stop_at_tip=True)).reason is rp.EndReason.STOPPED
        for run in (running.run, running.run_bounded):
            with pytest.raises(rp.StateError, match="make a new DataFetcher to read on"):
                await run()


async def handle(record):
    pass


@pytest.mark.parametrize("make", [lambda: rp.MapSink(handle), lambda: rp.JsonlSink({"flink.sink.jsonl.path": "rows"})])
async def test_a_sink_of_another_open_fetcher_is_refused_and_that_fetcher_reads_on(make, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    install(monkeypatch, {"a": [b"1", b"2"]})
    sink = make()
    async with fetcher(sink=sink) as first:
        running = asyncio.create_task(first.run())
        await first.wait_ready()
        with pytest.raises(rp.SinkError, match="another DataFetcher that is open, which reads orders: make a sink for"):
            async with fetcher(sink=sink):
                pass
        assert not running.done()
        first.stop()
        assert (await running).records == 2
    async with fetcher(sink=sink) as second:
        assert (await second.run_bounded(stop_at_tip=True)).reason is rp.EndReason.TIP


async def test_a_sink_that_is_neither_opened_nor_closed_may_have_several_fetchers(monkeypatch):
    install(monkeypatch, {"a": [b"1", b"2"]})
    sink = rp.MemorySink()
    async with fetcher(sink=sink) as first, fetcher(sink=sink) as second:
        await asyncio.gather(first.run_bounded(stop_at_tip=True), second.run_bounded(stop_at_tip=True))
    assert len(sink.records) == 4


async def test_a_fetcher_that_is_open_is_not_opened_again_and_reads_on(monkeypatch):
    install(monkeypatch, {"a": [b"1", b"2"]})
    async with fetcher() as opened:
        with pytest.raises(rp.StateError, match="the fetcher is open already"):
            async with opened:
                pass
        assert (await opened.run_bounded(stop_at_tip=True)).records == 2


async def test_a_worker_of_a_group_is_ready_when_it_has_read_its_shards_and_not_when_it_joins(monkeypatch, tmp_path):
    install(monkeypatch, {"a": [b"1", b"2"]})
    group = {"flink.job.workers": "GROUP", "flink.state.uri": str(tmp_path / "group")}
    async with fetcher(sink=(sink := rp.MemorySink()), properties={**PROPERTIES, **group}) as worker:
        run = asyncio.create_task(worker.run())
        await worker.wait_ready()
        assert (worker.reasons_not_ready(), worker.progress().open_shards) == ([], 1)
        worker.stop()
        await run
    assert len(sink.records) == 2


async def test_a_wait_for_a_run_that_was_never_started_says_so(monkeypatch, caplog):
    monkeypatch.setattr("recordpublisher.plugins.runtime.data_fetcher._WAIT_READY_SECONDS", 0.01)
    async with fetcher() as opened:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await opened.wait_ready()
    assert [line for line in caplog.messages if "asyncio.create_task(fetcher.run())" in line]


def test_a_limit_of_other_libraries_names_ours():
    with pytest.raises(rp.ConfigurationError, match="did you mean 'max_records'"):
        rp.consume("orders", PROPERTIES, limit=3)


class TakesRowsOut(rp.Sink):
    """Takes its rows out before it awaits its service, which is slow."""

    def __init__(self, target):
        self.rows, self.target = [], target

    async def write(self, batch):
        self.rows += batch.data

    async def flush(self, checkpoint=None):
        rows, self.rows = self.rows, []
        if rows:
            await asyncio.sleep(0.3)
            self.target += rows


@pytest.mark.parametrize("is_running", [True, False])
async def test_a_checkpoint_that_is_given_up_flushes_the_sink_to_the_end(tmp_path, is_running):
    target = []
    with in_memory({"orders": 1}) as account:
        account.find("orders").put(b"1", "k")
        sink = TakesRowsOut(target)
        async with rp.DataFetcher(
            "orders", region="eu-west-1", start="earliest", sink=sink, state_uri=str(tmp_path)
        ) as job:
            if is_running:
                running = asyncio.create_task(job.run())
                while not sink.rows:  # noqa: ASYNC110 - the sink sets no event
                    await asyncio.sleep(0.01)
            else:
                sink.rows.append(b"1")
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await job.checkpoint()
            if is_running:
                job.stop()
                await running
    assert target == [b"1"]


async def _give_up(job):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await job.checkpoint()


async def test_a_stop_ends_although_a_checkpoint_that_was_given_up_waits_for_a_handler(tmp_path, monkeypatch):
    monkeypatch.setattr(alarm_monitor, "FLUSH_MS", 10)
    monkeypatch.setattr(alarm_monitor, "POLL_SECONDS", 0.02)
    begun = asyncio.Event()

    async def hang(record):
        begun.set()
        await asyncio.Event().wait()

    given = {"flink.job.drain.timeout": 1000, "flink.state.uri": str(tmp_path)}
    with in_memory({"orders": 1}) as account:
        account.find("orders").put(b"1", "k")
        sink = rp.MapSink(hang)
        async with rp.DataFetcher("orders", given, region="eu-west-1", start="earliest", sink=sink) as job:
            running = asyncio.create_task(job.run())
            await begun.wait()
            await _give_up(job)
            job.stop()
            async with asyncio.timeout(5):
                await running


class Closes(TakesRowsOut):
    is_closed = False

    async def close(self):
        self.is_closed = True


async def test_a_cancellation_while_a_given_up_checkpoint_ends_closes_the_sink(tmp_path):
    with in_memory({"orders": 1}):
        sink = Closes([])

        async def work():
            async with rp.DataFetcher("orders", region="eu-west-1", sink=sink, state_uri=str(tmp_path)) as job:
                sink.rows.append(b"1")
                await _give_up(job)

        working = asyncio.create_task(work())
        await asyncio.sleep(0.25)
        assert not sink.is_closed
        working.cancel()
        await asyncio.wait([working])
        assert working.cancelled()
        assert sink.is_closed


class Fails(TakesRowsOut):
    async def flush(self, checkpoint=None):
        await super().flush(checkpoint)
        if self.target:
            raise rp.SinkError("the target is gone")


async def test_an_error_of_a_checkpoint_that_was_given_up_is_logged(tmp_path, caplog):
    with in_memory({"orders": 1}):
        sink = Fails([])
        async with rp.DataFetcher("orders", region="eu-west-1", sink=sink, state_uri=str(tmp_path)) as job:
            sink.rows.append(b"1")
            await _give_up(job)
    assert "a checkpoint has failed after the program had given up waiting for it: SinkError: the target is gone" in (
        caplog.text
    )
