"""ReadTasks: what a reader logs names its shard; one that goes back ends the job."""

import asyncio
import json
import logging
from contextlib import suppress
from dataclasses import replace

import pytest

from recordpublisher.cli.output import JsonLines
from recordpublisher.consumer.deserialization import BytesDeserializer
from recordpublisher.consumer.event_time import FunctionTimestamps
from recordpublisher.consumer.shard_consumer import BatchDecorator
from recordpublisher.consumer.watermark_strategies import BoundedOutOfOrderness
from recordpublisher.fetcher.checkpoints.shard_starts import Starts
from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.fetcher.shards.retention_check import RetentionCheck
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.base import RunResult
from recordpublisher.publishers.errors import DataLossError, DeserializationError, PluginError
from recordpublisher.publishers.positions import PositionType, SequenceNumber, StartingPosition
from recordpublisher.publishers.properties.job_properties import OnBadRecord
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.testing.virtual_time import EPOCH_MS, VirtualClock, run_virtual

from fakes.scripted_source import RecordingSink, ScriptedSource, make_fetcher, read

log = logging.getLogger("recordpublisher.test")


class LoggingSource(ScriptedSource):
    """A source whose publishers log a line when they are created."""

    async def create(self, shard, starting_position, metrics):
        log.warning("created")
        return await super().create(shard, starting_position, metrics)


class Lines(logging.Handler):
    """Keeps each line as the command line writes it."""

    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(json.loads(JsonLines().format(record)))


def test_each_line_of_a_reader_has_its_stream_and_shard_and_so_has_the_line_of_its_end(caplog):
    source, handler = LoggingSource(), Lines()
    source.add("0", EPOCH_MS)
    source.split("0", "1", "2")
    logger = logging.getLogger("recordpublisher")
    logger.addHandler(handler)
    try:
        with caplog.at_level(logging.INFO, "recordpublisher"):
            run_virtual(read(source, RecordingSink()))
    finally:
        logger.removeHandler(handler)

    shown = [(line["message"].split(",")[0], line.get("stream"), line.get("shard")) for line in handler.lines]
    assert sorted(row for row in shown if row[0] == "created") == [("created", "s", each) for each in "012"]
    assert ("shard s/0 has ended", "s", "0") in shown


class ForgetfulSource(ScriptedSource):
    """A plugin whose publishers begin at the beginning, whatever their starting position."""

    def __init__(self):
        super().__init__(per_read=5)
        self.orders = 0

    async def create(self, shard, starting_position, metrics):
        return await super().create(shard, StartingPosition.trim_horizon(), metrics)

    def order_of(self, sequence):
        self.orders += 1
        return int(sequence)


def test_a_publisher_that_ignores_where_it_resumes_ends_the_job():  # P1
    source, again = ForgetfulSource(), RecordingSink()
    source.add("0", *range(EPOCH_MS, EPOCH_MS + 20))

    async def job():
        fetcher, _ = await read(source, RecordingSink(), Bounds(max_records=10))
        await read(source, again, restore=(fetcher.snapshot(),))

    with pytest.raises(
        PluginError, match="ScriptedPublisher goes back in s/0: after the position 9 it gave 5 records from 0 on"
    ):
        run_virtual(job())
    assert again.rows == []


class BrokenSource(ScriptedSource):
    """A plugin that loses its connection: when a publisher is created, or while it runs."""

    def __init__(self, at_once):
        super().__init__(per_read=5)
        self.at_once = at_once

    async def create(self, shard, starting_position, metrics):
        made = await super().create(shard, starting_position, metrics)
        if self.at_once:
            raise ConnectionError("broken pipe to source")
        made.run = self.run
        return made

    async def run(self, consumer):
        raise ConnectionError("broken pipe to source")


@pytest.mark.parametrize(("at_once", "name"), [(True, "BrokenSource.create"), (False, "ScriptedPublisher.run")])
def test_an_error_of_a_publisher_names_its_method_and_its_shard(at_once, name):
    source = BrokenSource(at_once)
    source.add("0", EPOCH_MS)
    with pytest.raises(ConnectionError) as raised:
        run_virtual(read(source, RecordingSink()))
    assert raised.value.__notes__ == [f"`{name}` for s/0 failed"]


def test_an_error_of_what_takes_its_batches_is_not_the_publishers():
    source = ForgetfulSource()
    source.add("0", "no time")
    with pytest.raises(DeserializationError) as raised:
        run_virtual(read(source, RecordingSink()))
    assert not hasattr(raised.value, "__notes__")


def test_an_order_of_a_plugin_is_asked_for_each_batch_and_for_each_record_only_of_the_first_three():
    source = ForgetfulSource()
    source.add("0", *range(EPOCH_MS, EPOCH_MS + 1000))
    source.per_read = 100
    run_virtual(read(source, RecordingSink()))
    of_first_batches = 3 * 100
    assert 0 < source.orders <= of_first_batches + 10 * 6


class NothingSource(ScriptedSource):
    """A plugin whose `create` has no return."""

    async def create(self, shard, starting_position, metrics):
        await super().create(shard, starting_position, metrics)


def test_a_factory_that_makes_no_publisher_is_named_with_the_shard():
    source = NothingSource()
    source.add("0", EPOCH_MS)
    with pytest.raises(PluginError, match=r"^NothingSource\.create returned None for s/0: return a RecordPublisher$"):
        run_virtual(read(source, RecordingSink()))


class CrossedSource(ScriptedSource):
    """A plugin that mixes up its shards when it creates a publisher."""

    async def create(self, shard, starting_position, metrics):
        return await super().create(self.shards["s/1"].shard, starting_position, metrics)


def test_a_publisher_that_reads_another_shard_ends_the_job():
    source, sink = CrossedSource(), RecordingSink()
    source.add("0", EPOCH_MS)
    source.add("1", EPOCH_MS + 1)
    with pytest.raises(PluginError, match="ScriptedPublisher gave a batch of s/1, but was created to read s/0"):
        run_virtual(read(source, sink))
    assert ("0", EPOCH_MS + 1) not in sink.rows


class CancelledSource(ScriptedSource):
    """A plugin whose first publisher ends as if it had been stopped, behind its first records."""

    def __init__(self, raises):
        super().__init__(per_read=2)
        self.raises = raises

    async def create(self, shard, starting_position, metrics):
        made = await super().create(shard, starting_position, metrics)
        run, source = made.run, self

        async def run_once(consumer):
            async def consume(batch):
                await consumer(batch)
                raise EndedError

            try:
                return await run(consume)
            except EndedError:
                if source.raises:
                    raise asyncio.CancelledError from None
                return RunResult.CANCELLED

        made.run = run_once
        return made


class EndedError(Exception):
    pass


@pytest.mark.parametrize("raises", [True, False])
def test_a_publisher_that_ends_as_cancelled_although_nobody_stopped_it_ends_the_job(raises):  # P1
    source, sink = CancelledSource(raises), RecordingSink(cost=3)
    source.add("0", *range(EPOCH_MS, EPOCH_MS + 6))

    with pytest.raises(PluginError, match="CancelledSource for s/0 ended as if it had been stopped"):
        run_virtual(read(source, sink))
    assert len(sink.rows) == len(set(sink.rows))
    assert len(source.created) == 1


class TrimmedSource(ScriptedSource):
    """Its service says that a position is past retention: `kept` is the first record that is there, None: not even that."""

    kept = 4

    async def create(self, shard, starting_position, metrics):
        made = await super().create(shard, starting_position, metrics)
        is_oldest = starting_position.type is PositionType.TRIM_HORIZON
        if self.kept is None or (not is_oldest and made._next < self.kept):

            async def lost(consumer):
                raise DataLossError("the position is past retention")

            made.run = lost
        elif is_oldest:
            made._next = self.kept
        return made


def read_again(source, loss):
    """Rows, gaps and stages of a job that is restarted behind its third record, when the source has dropped some."""

    async def job():
        first = TrimmedSource.kept, RecordingSink()
        source.kept = 0
        fetcher, _ = await read(source, first[1], Bounds(max_records=3))
        source.kept, sink = first[0], RecordingSink()
        given = {"flink.state.dataloss": loss}
        again, _ = await read(source, sink, properties=given, restore=(fetcher.snapshot(),))
        shards = again.metrics()["shards"]
        return [row[1] - EPOCH_MS for row in sink.rows], shards["s/0"]["retentionGaps"], shards["s/0"]["stage"]

    return run_virtual(job())


@pytest.fixture
def trimmed():
    source = TrimmedSource(per_read=1)
    source.add("0", *range(EPOCH_MS, EPOCH_MS + 6))
    return source


def test_where_the_publisher_finds_the_loss_the_job_goes_on_with_the_oldest_record_if_it_accepts_that(trimmed):  # S5
    assert read_again(trimmed, "CONTINUE") == ([4, 5], 1, "READING")


def test_a_shard_without_any_record_left_has_ended_if_the_job_accepts_the_loss(trimmed, monkeypatch):  # S5
    monkeypatch.setattr(TrimmedSource, "kept", None)
    assert read_again(trimmed, "CONTINUE") == ([], 2, "ENDED")


def test_a_loss_that_the_publisher_finds_ends_a_job_that_does_not_accept_it(trimmed):  # S5
    with pytest.raises(DataLossError, match="past retention"):
        read_again(trimmed, "FAIL")


class SourceWithHole(ScriptedSource):
    """The records 3 to 5 are gone, which the publisher says as `how` tells it."""

    how = "resume"

    async def create(self, shard, starting_position, metrics):
        made = await super().create(shard, starting_position, metrics)
        batch_of = made._batch

        def batch(numbered, behind, is_end):
            if self.how == "moving" and self.created[-1][1].type.value != "TRIM_HORIZON":
                # As of a publisher whose resume position has expired when it is read.
                assert len(self.created) < 1_000
                resume = StartingPosition.at_timestamp(EPOCH_MS + len(self.created))
                raise DataLossError("the records before it are gone", resume=resume)
            if not numbered or numbered[0][0] != (6 if self.how == "mark" else 3):
                return batch_of(numbered, behind, is_end)
            if self.how == "mark":
                return replace(batch_of(numbered, behind, is_end), after_gap=True)
            place = "5" if self.how == "resume" else "2"
            raise DataLossError("3 to 5 are gone", resume=StartingPosition.after(SequenceNumber(place)))

        made._batch = batch
        if self.how == "mark" and made._next == 3:
            made._next = 6
        return made


@pytest.mark.parametrize("how", ["resume", "mark"])
def test_after_a_hole_in_the_middle_the_job_goes_on_where_the_publisher_says(how, monkeypatch, caplog):  # S5
    monkeypatch.setattr(SourceWithHole, "how", how)
    source, sink = SourceWithHole(per_read=1), RecordingSink()
    source.add("0", *range(EPOCH_MS, EPOCH_MS + 9))

    async def job():
        fetcher, _ = await read(source, RecordingSink(), Bounds(max_records=3))
        given = {"flink.state.dataloss": "CONTINUE"}
        return (await read(source, sink, properties=given, restore=(fetcher.snapshot(),)))[0]

    shards = run_virtual(job()).metrics()["shards"]
    assert [row[1] - EPOCH_MS for row in sink.rows] == [6, 7, 8]
    assert shards["s/0"]["retentionGaps"] == 1
    assert "the job continues because flink.state.dataloss=CONTINUE" in caplog.text


@pytest.mark.parametrize(
    ("how", "error", "words"),
    [
        ("resume", DataLossError, r"Set flink\.state\.dataloss=CONTINUE to continue without them"),
        ("mark", DataLossError, r"Set flink\.state\.dataloss=CONTINUE to continue without them"),
        (
            "stuck",
            PluginError,
            "SourceWithHole for s/0 .* raised DataLossError again before any record: 3 to 5 are gone",
        ),
        ("moving", PluginError, "SourceWithHole for s/0 .* raised DataLossError again before any record"),
    ],
)
def test_a_hole_in_the_middle_ends_a_job_that_does_not_accept_it_and_one_whose_publisher_comes_no_further(
    how, error, words, monkeypatch
):
    monkeypatch.setattr(SourceWithHole, "how", how)
    source = SourceWithHole(per_read=1)
    source.add("0", *range(EPOCH_MS, EPOCH_MS + 9))

    async def job():
        fetcher, _ = await read(source, RecordingSink(), Bounds(max_records=3))
        given = {"flink.state.dataloss": "FAIL" if error is DataLossError else "CONTINUE"}
        await read(source, RecordingSink(), properties=given, restore=(fetcher.snapshot(),))

    with pytest.raises(error, match=words):
        run_virtual(job())


class CatchesCancellation:
    """A wait of a plugin that catches the cancellation, and lasts longer than the job waits for it."""

    def __init__(self, call):
        self.calls, self.hangs_at = 0, call

    async def __call__(self):
        self.calls += 1
        if self.calls == self.hangs_at:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(1_000)
            await asyncio.sleep(40)


async def two_runs(source, sink, **parts):
    """A run that ends while a call hangs, and one in which the call returns."""
    fetcher = make_fetcher(source, sink, **parts)
    await fetcher.open()
    await fetcher.run_bounded(Bounds(max_time=5))
    source.latency = 5
    await asyncio.sleep(10)
    await fetcher.run_bounded(Bounds(max_time=200))
    await fetcher.close()
    return [time for _, time in sink.rows]


def decorators_with(deserializer):
    properties = Properties({})

    def decorator_for(shard, metrics):
        times, strategy = FunctionTimestamps(lambda record: int(record.data)), BoundedOutOfOrderness(properties)
        return BatchDecorator(deserializer, times, strategy, metrics, on_poison=OnBadRecord.FAIL, future_limit_ms=-1)

    return decorator_for


def test_a_batch_whose_deserializer_catches_the_cancellation_is_not_queued_in_the_next_run():
    class Deserializer(BytesDeserializer):
        wait = CatchesCancellation(2)

        async def prepare(self, batch):
            await self.wait()

    source = ScriptedSource(per_read=2)
    source.add("a", *range(1, 21))
    rows = run_virtual(two_runs(source, RecordingSink(), decorator_for=decorators_with(Deserializer())))
    assert rows == [*range(1, 21)]


def test_a_batch_is_not_queued_in_the_next_run_if_the_check_of_its_retention_catches_the_cancellation():
    wait = CatchesCancellation(1)

    async def oldest_retained(stream):
        await wait()

    async def oldest_record(shard):
        return None

    source = ScriptedSource(per_read=2)
    source.add("a", *range(1, 21))
    retention = RetentionCheck(oldest_retained, oldest_record, int, VirtualClock())
    starts = Starts(StartingPosition.trim_horizon(), {"a": ShardState(StartingPosition.trim_horizon(), seen_ms=1)})
    rows = run_virtual(two_runs(source, RecordingSink(), retention=retention, starts=starts))
    assert wait.calls
    assert rows == [*range(1, 21)]


def test_s2_a_shard_does_not_end_with_records_that_were_dropped_while_the_listing_caught_the_cancellation():
    class Source(ScriptedSource):
        wait = CatchesCancellation(1)

        async def discover(self, stream):
            await self.wait()
            return [replace(each.shard, closed=each.closed) for each in self.shards.values()]

    source = Source(per_read=5)
    source.add("a", *range(1, 21))
    source.close_shard("a")
    rows = run_virtual(two_runs(source, RecordingSink(cost=2)))
    assert rows == [*range(1, 21)]


@pytest.mark.parametrize(("slow_ms", "told"), [(120_000, 1), (2_000, 0)])
def test_a_slow_clock_of_this_machine_is_told_once_because_lags_look_short(slow_ms, told, caplog):
    source = ScriptedSource(per_read=1)  # its records have the arrival of a right clock
    source.add("0", *range(3))
    run_virtual(read(source, RecordingSink(), clock=VirtualClock(EPOCH_MS - slow_ms)))
    lines = [line for line in caplog.messages if "its clock is slow, so lags and ages are shown too short" in line]
    assert len(lines) == told
    assert not told or lines[0].startswith("a record of s/0 arrived 2 min after the present time of this machine")
