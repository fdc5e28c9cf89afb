"""A run that an error ends stores what was finished before it, so that the next start repeats only what follows."""

import asyncio

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.publishers.errors import FencedError, SinkError, StateError, StoreUnavailableError
from recordpublisher.testing import VirtualClock, run_virtual

from fakes.kept_snapshots import KeptSnapshots
from fakes.leases.elastic_processes import ElasticProcesses
from fakes.memory_streams import PROPERTIES, install
from fakes.scripted_source import RecordingSink, ScriptedSource, make_fetcher

TWO_SHARDS = {"a": range(20), "b": range(100, 120)}
NO_PERIODIC = {"flink.state.checkpoint.interval": 3_600_000, "flink.job.drain.timeout": 5_000}


class Handler:
    """Handles records, whose payloads are numbers. One of them always fails, some take their time."""

    def __init__(self, bad=None, slow=()):
        self.handled = []
        self.bad = bad
        self.slow = slow

    async def __call__(self, record):
        number = int(record.data)
        if number in self.slow:
            await asyncio.sleep(2)
        if number == self.bad:
            raise ValueError("not an order")
        self.handled.append(number)

    async def of_list(self, records):
        if self.bad in [int(record.data) for record in records]:
            raise ValueError("not an order")
        for record in records:
            await self(record)


def failing_run(sink, kept, source=None):
    """Run until the error. Return the error, the positions that are stored then, and how many seconds the run took."""
    if source is None:
        source = ScriptedSource(per_read=5, latency=0.1)
        for shard, numbers in TWO_SHARDS.items():
            source.add(shard, *numbers)

    async def job():
        fetcher = make_fetcher(source, sink, NO_PERIODIC, alone=kept.start())
        await fetcher.open()
        began = asyncio.get_running_loop().time()
        with pytest.raises((SinkError, ValueError, rp.DeserializationError)) as raised:
            await fetcher.run_bounded(Bounds(max_time=60))
        took = asyncio.get_running_loop().time() - began
        await fetcher.close()
        return raised.value, took

    error, took = run_virtual(job())
    shards = kept.kept[-1]["shards"]
    return error, {key: shards.get(key, {}).get("position") for key in ("s/a", "s/b")}, took


def map_sink(handler, **options):
    return rp.MapSink(handler, clock=VirtualClock(), **{"retries": 0, "ordering": "PER_SHARD", **options})


def test_what_a_handler_has_handled_before_a_bad_record_is_stored():
    kept, handler = KeptSnapshots(), Handler(bad=7)

    error, positions, _ = failing_run(map_sink(handler), kept)

    assert "not an order" in str(error)
    assert positions["s/a"] == "6"
    assert sorted(handler.handled) == [*range(7), *range(100, 101 + int(positions["s/b"]))]


def test_restarts_repeat_no_good_record_before_the_bad_one():
    kept, handler = KeptSnapshots(), Handler(bad=7)

    for _ in range(3):
        failing_run(map_sink(handler), kept)

    assert len(handler.handled) == len(set(handler.handled))
    assert {*range(7)} < set(handler.handled)


@pytest.mark.parametrize("options", [{}, {"ordering": "PER_KEY"}, {"ordering": "NONE"}, {"batch_size": 3}])
def test_a_handler_that_runs_when_another_record_fails_is_waited_for(options):
    kept, handler = KeptSnapshots(), Handler(bad=7, slow={102})
    function = handler.of_list if "batch_size" in options else handler

    _, positions, took = failing_run(map_sink(function, **options), kept)

    assert 102 in handler.handled
    assert int(positions["s/b"]) >= 2
    assert took < 5


def test_a_second_record_that_fails_is_left_to_the_next_start():
    kept, handler = KeptSnapshots(), Handler(bad=7, slow={103})
    more = Handler(bad=103, slow={103})

    async def both(record):
        await (more if int(record.data) >= 100 else handler)(record)

    error, positions, took = failing_run(map_sink(both), kept)

    assert "record 7 of s/a" in str(error)
    assert positions == {"s/a": "6", "s/b": "2"}
    assert took < 5


def test_a_handler_that_hangs_is_left_after_the_drain_timeout_and_the_first_error_is_raised():
    kept, handler = KeptSnapshots(), Handler(bad=7)

    async def hang(record):
        if int(record.data) == 102:
            await asyncio.Event().wait()
        await handler(record)

    error, positions, took = failing_run(map_sink(hang), kept)

    assert "not an order" in str(error)
    assert positions == {"s/a": "6", "s/b": "1"}
    assert 5 <= took < 10


class WritingSink(rp.Sink):
    """Has no `flush`: a row is durable when `write` returns."""

    def __init__(self, bad):
        self.rows = []
        self.bad = bad

    async def write(self, batch):
        numbers = [int(data) for data in batch.data]
        if self.bad in numbers:
            raise ValueError("not an order")
        self.rows += numbers


def test_what_a_sink_without_a_flush_has_written_is_stored():
    kept, sink = KeptSnapshots(), WritingSink(bad=7)

    for _ in range(2):
        _, positions, _ = failing_run(sink, kept)

    assert len(sink.rows) == len(set(sink.rows))
    assert positions["s/a"] == "4"


class BufferingSink(RecordingSink):
    """Keeps its rows until they are flushed. Loses all of them with an error of a write, as a sink of a user may."""

    def __init__(self, bad=None):
        super().__init__()
        self.buffered = []
        self.bad = bad

    async def write(self, batch):
        self.buffered += [int(data) for data in batch.data]
        if self.bad in self.buffered:
            self.buffered = []
            raise SinkError("the rows are lost")

    async def flush(self, checkpoint=None):
        self.rows += self.buffered
        self.buffered = []


def test_a_sink_that_may_have_lost_rows_with_its_error_is_not_trusted():
    kept, sink = KeptSnapshots(), BufferingSink(bad=7)

    _, positions, _ = failing_run(sink, kept)

    assert positions == {"s/a": None, "s/b": None}


def test_a_write_that_loses_rows_in_an_outage_while_another_error_ends_the_run_is_not_trusted():
    kept, sink = KeptSnapshots(), BufferingSink()
    source, error = failing_source()
    write = sink.write

    async def away(batch):
        await write(batch)
        if len(sink.buffered) == 7:
            source.failing["s/a"] = error
            await asyncio.sleep(1)
            sink.buffered = []
            raise StoreUnavailableError("the rows are lost")

    sink.write = away

    raised, positions, _ = failing_run(sink, kept, source)

    assert raised is error
    assert positions == {"s/a": None, "s/b": None}


class SlowlyFailingSink(BufferingSink):
    """Fails at a record after 20 seconds."""

    async def write(self, batch):
        if self.bad in [int(data) for data in batch.data]:
            await asyncio.sleep(20)
        await super().write(batch)


def test_a_checkpoint_that_waited_for_a_failing_write_does_not_cover_the_rows_that_it_has_lost():
    kept, sink = KeptSnapshots(), SlowlyFailingSink(bad=7)
    source = ScriptedSource(per_read=5, latency=0.1)
    source.add("a", *range(20))

    async def job():
        fetcher = make_fetcher(source, sink, {"flink.state.checkpoint.interval": 10_000}, alone=kept.start())
        await fetcher.open()
        with pytest.raises(SinkError, match="the rows are lost"):
            await fetcher.run()
        await fetcher.close()

    run_virtual(job())

    assert kept.kept[-1]["shards"].get("s/a", {}).get("position") is None


class OnceFailingSink(BufferingSink):
    """Its first flush of rows fails after five seconds and loses them. The next ones succeed."""

    async def flush(self, checkpoint=None):
        if self.buffered and not self.rows:
            await asyncio.sleep(5)
            self.buffered = []
            raise SinkError("the rows are lost")
        await super().flush(checkpoint)


@pytest.mark.parametrize("sink", [SlowlyFailingSink(bad=7), OnceFailingSink()], ids=["write", "flush"])
def test_a_call_of_the_sink_that_fails_while_the_job_stops_is_no_clean_stop(sink):
    """The flush that follows succeeds, but without the rows that were lost."""
    kept = KeptSnapshots()
    source = ScriptedSource(per_read=5, latency=0.1)
    source.add("a", *range(20))

    async def job():
        fetcher = make_fetcher(source, sink, {"flink.state.checkpoint.interval": 10_000}, alone=kept.start())
        await fetcher.open()
        asyncio.get_running_loop().call_later(12, fetcher.stop)
        with pytest.raises(SinkError, match="the rows are lost"):
            await fetcher.run()
        await fetcher.close()

    run_virtual(job())

    assert kept.kept[-1]["shards"].get("s/a", {}).get("position") is None


def test_a_group_reads_again_what_a_failing_write_has_lost():
    async def story():
        group = ElasticProcesses(shards=1)
        first = await group.join(sink=SlowlyFailingSink(bad=7))
        group.send(5)
        await asyncio.sleep(1)
        group.send(5)
        with pytest.raises(SinkError, match="the rows are lost"):
            await first.running
        await first.fetcher.close()
        second = await group.join()
        await group.wait_until_all_is_written()
        await second.stop()

    run_virtual(story())


class LosingSink(BufferingSink):
    """Its write of the shard `shard-1` takes a minute, fails, and loses the buffered rows of every shard."""

    async def write(self, batch):
        await super().write(batch)
        if batch.shard_id == "shard-1":
            await asyncio.sleep(60)
            self.buffered = []
            raise SinkError("the rows are lost")


def test_no_checkpoint_covers_what_a_write_has_lost_of_other_shards_when_its_own_shard_was_removed():
    """The lease of a deleted stream is removed during the write, so the error itself does not end the run."""

    async def story():
        streams = ("s", "t")
        group, sink = ElasticProcesses(shards=2, streams=streams), LosingSink()
        first = await group.join(streams, sink=sink, **{"flink.state.checkpoint.interval": 3_600_000})
        group.source.shards["s/shard-0"].put(1, 2, 3)
        await group.wait_until(lambda: sink.buffered == [1, 2, 3])
        group.source.shards["t/shard-1"].put(9)
        await asyncio.sleep(1)
        group.source.deleted.add("t")
        await asyncio.sleep(90)
        first.fetcher.stop()
        with pytest.raises(SinkError, match="the rows are lost"):
            await first.running
        await first.fetcher.close()
        again = BufferingSink()
        second = await group.join(("s",), sink=again)
        await group.wait_until(lambda: again.rows == [1, 2, 3])
        await second.stop()

    run_virtual(story())


def failing_source():
    """Its shard `a` fails once all of its records were read."""
    source = ScriptedSource(per_read=5, latency=0.1)
    source.add("a", *range(5))
    source.add("b", 100, 101)
    return source, rp.DeserializationError("s", "a", "5", "not JSON")


def test_a_record_that_cannot_be_deserialized_leaves_a_sound_sink_whose_rows_are_stored():
    kept, sink = KeptSnapshots(), BufferingSink()
    source, error = failing_source()
    fail_once_written(sink, lambda: source.failing.update({"s/a": error}))

    raised, positions, _ = failing_run(sink, kept, source)

    assert raised is error
    assert positions == {"s/a": "4", "s/b": "1"}
    assert sorted(sink.rows) == [*range(5), 100, 101]


def fail_once_written(sink, fail):
    """Call `fail` when the sink has got all seven records."""
    write = sink.write

    async def failing(batch):
        await write(batch)
        if len(sink.buffered) == 7:
            fail()

    sink.write = failing


def test_nothing_is_flushed_once_another_start_owns_the_positions():
    source, kept, sink = ScriptedSource(per_read=1, latency=1.0), KeptSnapshots(), BufferingSink()
    source.add("a", *range(100))

    async def job():
        fetcher = make_fetcher(source, sink, {"flink.state.checkpoint.interval": 5_000}, alone=kept.start())
        await fetcher.open()
        asyncio.get_running_loop().call_later(7, setattr, kept, "opened", 2)
        with pytest.raises(FencedError):
            await fetcher.run()
        return len(sink.rows)

    assert run_virtual(job()) <= 10


def test_a_flush_that_hangs_is_given_up_after_the_drain_timeout():
    kept, sink = KeptSnapshots(), BufferingSink()
    source, error = failing_source()

    def fail():
        source.failing["s/a"] = error
        sink.flush = hang

    async def hang(checkpoint=None):
        await asyncio.Event().wait()

    fail_once_written(sink, fail)

    raised, positions, took = failing_run(sink, kept, source)

    assert raised is error
    assert positions == {"s/a": None, "s/b": None}
    assert 5 <= took < 10


def test_a_flush_that_fails_does_not_hide_the_first_error(caplog):
    kept, sink = KeptSnapshots(), BufferingSink()
    source, error = failing_source()

    def fail():
        source.failing["s/a"] = error
        sink.flush = broken

    async def broken(checkpoint=None):
        raise SinkError("the disk is full")

    fail_once_written(sink, fail)

    raised, _, _ = failing_run(sink, kept, source)

    assert raised is error
    assert (
        "no last checkpoint could be stored after the error, so the next start repeats more records: the disk is full"
        in caplog.text
    )


class TransactionalSink(BufferingSink):
    """Stores rows and positions in one transaction of its own, without a state store."""

    def __init__(self, bad=None):
        super().__init__(bad)
        self.stored = None

    async def open(self, context):
        return self.stored

    async def stored_positions(self):
        return [] if self.stored is None else [self.stored]

    async def flush(self, checkpoint=None):
        await super().flush(checkpoint)
        self.stored = checkpoint.state


def test_rows_and_positions_of_a_sink_that_stores_both_are_stored_when_an_error_of_a_reader_ends_the_run():
    sink = TransactionalSink()

    async def job():
        source, error = failing_source()
        fail_once_written(sink, lambda: source.failing.update({"s/a": error}))
        fetcher = make_fetcher(source, sink, NO_PERIODIC)
        await fetcher.open()
        with pytest.raises(rp.DeserializationError):
            await fetcher.run_bounded(Bounds(max_time=60))
        await fetcher.close()

    run_virtual(job())

    assert {key: shard["position"] for key, shard in sink.stored["shards"].items()} == {"s/a": "4", "s/b": "1"}
    assert sorted(sink.rows) == [*range(5), 100, 101]


def test_a_sink_that_stores_both_commits_nothing_after_it_has_lost_rows_even_in_another_run():
    sink = TransactionalSink(bad=7)
    source = ScriptedSource(per_read=5, latency=0.1)
    source.add("a", *range(20))

    async def job():
        fetcher = make_fetcher(source, sink, NO_PERIODIC)
        await fetcher.open()
        for _ in range(2):
            with pytest.raises((SinkError, StateError)):
                await fetcher.run_bounded(Bounds(max_time=60))
            sink.bad = None
        await fetcher.close()

    run_virtual(job())

    position = sink.stored["shards"].get("s/a", {}).get("position")
    assert len(sink.rows) == (0 if position is None else int(position) + 1)


class SharedHandler(Handler):
    """Knows the shard of each number, too: the shards of a group have the same numbers."""

    async def __call__(self, record):
        if int(record.data) == self.bad:
            raise ValueError("not an order")
        self.handled.append((record.shard_id, int(record.data)))


def test_a_process_of_a_group_stores_what_is_handled_and_the_others_do_not_repeat_it():
    async def story():
        group, handler = ElasticProcesses(shards=2), SharedHandler(bad=8)
        first = await group.join(sink=map_sink(handler), **{"flink.state.checkpoint.interval": 3_600_000})
        group.send(10)
        with pytest.raises(SinkError, match="not an order"):
            await first.running
        await first.fetcher.close()
        handler.bad, began = None, asyncio.get_running_loop().time()
        second = await group.join(sink=map_sink(handler))
        await group.wait_until(lambda: group.sent <= set(handler.handled))
        took = asyncio.get_running_loop().time() - began
        await second.stop()
        return handler.handled, took

    handled, took = run_virtual(story())
    assert len(handled) == len(set(handled))
    assert took < 5  # the leases were released


class SlowHandler(SharedHandler):
    """Takes a second for each record."""

    async def __call__(self, record):
        await asyncio.sleep(1)
        await super().__call__(record)


def test_a_record_that_fails_while_a_process_leaves_its_group_loses_no_position(caplog):
    async def story():
        group, handler = ElasticProcesses(shards=2), SlowHandler()
        first = await group.join(sink=map_sink(handler), **{"flink.state.checkpoint.interval": 3_600_000})
        group.send(10)
        await group.wait_until(lambda: len(handler.handled) >= 8)
        handler.bad = 1 + max(number for _, number in handler.handled)  # a handler runs with it
        first.fetcher.stop()
        with pytest.raises(SinkError, match="not an order"):
            await first.running
        await first.fetcher.close()
        handler.bad = None
        second = await group.join(sink=map_sink(handler))
        await group.wait_until(lambda: group.sent <= set(handler.handled))
        await second.stop()
        return handler.handled

    handled = run_virtual(story())
    assert len(handled) == len(set(handled))
    assert "no last checkpoint" not in caplog.text


class SinkOfATransfer(RecordingSink):
    """Its rows are durable at once. It raises when a shard is transferred or its process leaves."""

    is_sound = True
    is_told = False

    async def flush(self, checkpoint=None):
        if checkpoint is not None and checkpoint.stopped and not self.is_told:
            raise SinkError("not in order")

    def may_flush_after_error(self):
        self.is_told = self.is_sound
        return self.is_sound


@pytest.mark.parametrize("is_sound", [True, False])
def test_an_error_in_a_transfer_ends_the_run_with_a_last_checkpoint_if_the_sink_is_sound(is_sound):
    async def story():
        group, sink = ElasticProcesses(shards=2), SinkOfATransfer()
        sink.is_sound = is_sound
        first = await group.join(sink=sink, **{"flink.state.checkpoint.interval": 3_600_000})
        group.send(8)
        await group.wait_until(lambda: len(sink.rows) == 16)
        second = await group.join(sink=SinkOfATransfer())
        with pytest.raises(SinkError, match="not in order"):
            await first.running
        await first.fetcher.close()
        began = asyncio.get_running_loop().time()
        await group.wait_until(lambda: second.shards == {"shard-0", "shard-1"})
        await asyncio.sleep(5)
        second.sink.may_flush_after_error()
        await second.stop()
        return len(second.sink.rows), asyncio.get_running_loop().time() - began

    repeated, took = run_virtual(story())
    assert repeated == (0 if is_sound else 16)
    assert took < 12  # no lease had to expire


class FailsWhenAssigned(RecordingSink):
    """Raises when it gets a shard, once it is armed."""

    is_armed = False

    def assigned(self, shards):
        if self.is_armed:
            raise ValueError("no room")


def test_an_error_of_assigned_ends_the_run_with_a_last_checkpoint_of_the_other_shards():
    async def story():
        group, sink, far = (
            ElasticProcesses(shards=2),
            FailsWhenAssigned(),
            {"flink.state.checkpoint.interval": 3_600_000},
        )
        first, second = await group.join(sink=sink, **far), await group.join(sink=FailsWhenAssigned(), **far)
        await group.wait_until(lambda: len(first.shards) == len(second.shards) == 1)
        group.send(4)
        await group.wait_until(lambda: len(sink.rows) == len(second.sink.rows) == 4)
        sink.is_armed = True
        await second.stop()
        with pytest.raises(ValueError, match="no room"):
            await first.running
        await first.fetcher.close()
        third = await group.join(sink=FailsWhenAssigned())
        await group.wait_until(lambda: len(third.shards) == 2)
        await asyncio.sleep(5)
        await third.stop()
        return third.sink.rows

    assert run_virtual(story()) == []


@pytest.mark.parametrize("workers", ["ALONE", "GROUP"])
async def test_rows_that_were_written_are_committed_with_their_positions(workers, tmp_path, monkeypatch):
    install(monkeypatch, {"a": [b"1", b"2", b"3", rp.RecordPublisherError("the shard cannot be read")]})
    given = {**PROPERTIES, "flink.job.workers": workers, "flink.state.checkpoint.interval": "1 h"}
    rows = tmp_path / "rows"

    for _ in range(2):
        job = rp.DataFetcher(
            "orders", given, sink="jsonl", sink_jsonl_path=str(rows), state_uri=str(tmp_path / "state"), job_name="job"
        )
        with pytest.raises(rp.RecordPublisherError, match="cannot be read"):
            async with job:
                await job.run()

    written = [line for file in sorted(rows.rglob("*.jsonl")) for line in file.read_text().splitlines()]
    assert len(written) == 3


def test_no_run_follows_an_error_after_which_the_shards_were_released():
    """The records that `MapSink` has left to the next start would be passed over."""
    kept, handler = KeptSnapshots(), Handler(bad=7)
    source = ScriptedSource(per_read=5, latency=0.1)
    source.add("a", *TWO_SHARDS["a"])

    async def job():
        fetcher = make_fetcher(source, map_sink(handler), NO_PERIODIC, alone=kept.start())
        await fetcher.open()
        with pytest.raises(SinkError, match="not an order"):
            await fetcher.run_bounded(Bounds(max_time=60))
        handler.bad = None
        with pytest.raises(StateError, match="create a new one") as raised:
            await fetcher.run_bounded(Bounds(max_time=60))
        await fetcher.close()
        return raised.value

    error = run_virtual(job())

    assert "not an order" in str(error.__cause__)
    assert kept.kept[-1]["shards"]["s/a"]["position"] == "6"
    assert handler.handled == [*range(7)]


def test_a_store_that_ends_as_if_it_had_been_cancelled_does_not_hide_the_first_error(caplog):
    kept, handler = KeptSnapshots(), Handler(bad=7)
    source = ScriptedSource(per_read=5, latency=0.1)
    source.add("a", *TWO_SHARDS["a"])

    async def cancelled(state):
        raise asyncio.CancelledError

    async def job():
        alone = kept.start()
        fetcher = make_fetcher(source, map_sink(handler), NO_PERIODIC, alone=alone)
        await fetcher.open()
        alone.store = cancelled
        running = asyncio.create_task(fetcher.run())
        await asyncio.wait([running])
        await fetcher.close()
        return running

    running = run_virtual(job())

    assert not running.cancelled()
    assert "not an order" in str(running.exception())
    assert "no last checkpoint could be stored after the error" in caplog.text


def test_a_store_that_is_away_when_an_error_ends_the_run_is_named_in_the_log(caplog):
    kept, handler = KeptSnapshots(), Handler(bad=7)
    source = ScriptedSource(per_read=5, latency=0.1)
    source.add("a", *TWO_SHARDS["a"])

    async def away(state):
        await asyncio.sleep(0.2)
        raise StoreUnavailableError("connection to db7 refused")

    async def job():
        alone = kept.start()
        fetcher = make_fetcher(source, map_sink(handler), NO_PERIODIC, alone=alone)
        await fetcher.open()
        alone.store, began = away, asyncio.get_running_loop().time()
        with pytest.raises(SinkError, match="not an order"):
            await fetcher.run()
        took = asyncio.get_running_loop().time() - began
        await fetcher.close()
        return took

    assert 5 <= run_virtual(job()) < 8
    (line,) = [text for text in caplog.messages if text.startswith("no last checkpoint could be stored")]
    assert "connection to db7 refused" in line


class BrokenTarget(RecordingSink):
    """A target of dead letters that takes none."""

    async def write(self, batch):
        raise SinkError("the disk is full")


def test_what_is_handled_is_stored_although_the_target_of_dead_letters_fails():
    kept, handler = KeptSnapshots(), Handler(bad=7)
    sink = map_sink(handler, on_failure="DEAD_LETTER")
    source = ScriptedSource(per_read=5, latency=0.1)
    for shard, numbers in TWO_SHARDS.items():
        source.add(shard, *numbers)

    async def job():
        fetcher = make_fetcher(source, sink, NO_PERIODIC, alone=kept.start(), dead_letters=BrokenTarget())
        await fetcher.open()
        with pytest.raises(SinkError, match="the disk is full"):
            await fetcher.run_bounded(Bounds(max_time=60))
        await fetcher.close()

    for _ in range(2):
        sink = map_sink(handler, on_failure="DEAD_LETTER")
        run_virtual(job())

    assert kept.kept[-1]["shards"]["s/a"]["position"] == "6"
    assert [number for number in handler.handled if number < 7] == [*range(7)]  # those behind it are repeated
