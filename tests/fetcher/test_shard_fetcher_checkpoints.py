"""Checkpoints of a whole fetcher: when they are stored, and from which state a start resumes."""

import asyncio

import pytest

from recordpublisher.fetcher.checkpoints.shard_starts import Starts
from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.fetcher.sink import Unfinished
from recordpublisher.publishers.errors import FencedError, PluginError, SinkError, StoreUnavailableError
from recordpublisher.publishers.positions import PositionType, StartingPosition
from recordpublisher.testing.virtual_time import EPOCH_MS, run_virtual

from fakes.kept_snapshots import KeptSnapshots
from fakes.scripted_source import TIP, RecordingSink, ScriptedSource, make_fetcher, read


def test_the_pinned_start_is_stored_before_the_first_read():  # P3
    source, sink, store = ScriptedSource(), RecordingSink(), KeptSnapshots()
    source.add("a", 1)

    async def job():
        latest = StartingPosition.latest()
        fetcher = make_fetcher(source, sink, starts=Starts(latest), alone=store.start())
        await fetcher.open()

    run_virtual(job())

    assert source.created == []
    assert [flushed.state for flushed in sink.flushed] == store.kept
    assert store.kept[0]["pinnedStartMs"] == EPOCH_MS
    assert store.kept[0]["shards"]["s/a"]["start"] == {"type": "AT_TIMESTAMP", "timestamp": EPOCH_MS}


def test_an_age_is_subtracted_once_however_often_the_job_starts():  # P3
    source, store = ScriptedSource(), KeptSnapshots()
    source.add("a", 1)

    async def start_without_state_of_the_shard():
        an_hour = Starts(StartingPosition(PositionType.LATEST, ago_ms=3_600_000))
        store.kept = [{**each, "shards": {}} for each in store.kept]
        await make_fetcher(source, RecordingSink(), starts=an_hour, alone=store.start()).open()
        return store.kept[-1]["pinnedStartMs"], store.kept[-1]["shards"]["s/a"]["start"]["timestamp"]

    for _ in range(2):
        assert run_virtual(start_without_state_of_the_shard()) == (EPOCH_MS - 3_600_000, EPOCH_MS - 3_600_000)


def test_checkpoints_are_stored_in_the_interval_and_flush_the_sink_first():  # S6
    source, sink, store = ScriptedSource(per_read=1, latency=1.0), RecordingSink(), KeptSnapshots()
    source.add("a", *range(100))

    run_virtual(read(source, sink, Bounds(max_time=35), alone=store.start()))

    positions = [int(state["shards"]["s/a"].get("position", -1)) for state in store.kept]
    assert positions == sorted(positions)
    assert len(positions) == 1 + 3 + 1
    assert [flushed.state for flushed in sink.flushed] == store.kept


def test_a_fenced_worker_stops_emitting():  # S6
    source, sink, store = ScriptedSource(per_read=1, latency=1.0), RecordingSink(), KeptSnapshots()
    source.add("a", *range(100))

    async def job():
        fetcher = make_fetcher(source, sink, alone=store.start())
        await fetcher.open()
        asyncio.get_running_loop().call_later(15, setattr, store, "opened", 2)
        with pytest.raises(FencedError):
            await fetcher.run()
        rows = len(sink.rows)
        await asyncio.sleep(100)
        return rows

    assert run_virtual(job()) == len(sink.rows) <= 20


class CountedReads(set):
    """Is asked before each read."""

    reads = 0

    def __contains__(self, key):
        self.reads += 1
        return False


def test_a_worker_that_is_fenced_between_two_checkpoints_stops_reading_at_once_also_while_a_write_lasts():  # S6
    source, store, owner = ScriptedSource(per_read=1, latency=1.0), KeptSnapshots(), []
    source.add("a", *range(100))
    source.silent = CountedReads()

    class Stuck(RecordingSink):
        async def write(self, batch):
            await asyncio.sleep(60)

    async def check_owner():
        if owner:
            raise FencedError("replaced")

    async def job():
        fetcher = make_fetcher(source, Stuck(), alone=store.start(), check_owner=check_owner)
        await fetcher.open()
        asyncio.get_running_loop().call_later(3, owner.append, "another start")
        running = asyncio.ensure_future(fetcher.run())
        await asyncio.sleep(6)
        before = source.silent.reads
        with pytest.raises(FencedError):
            await running
        return before, source.silent.reads

    before, after = run_virtual(job())
    assert before == after <= 6


OUTLASTS_MINUTES = {"flink.shard.getrecords.maxretries": 200, "flink.shard.getrecords.backoff.max": 10_000}


class AwayStore(KeptSnapshots):
    """Is away between these seconds of the loop."""

    def __init__(self, since, until):
        super().__init__()
        self.since, self.until = since, until

    async def begin(self):
        self._check()
        return await super().begin()

    async def write(self, epoch, state):
        self._check()
        await super().write(epoch, state)

    def _check(self):
        if self.since <= asyncio.get_running_loop().time() < self.until:
            raise StoreUnavailableError("away")


def read_with(store, seconds, sink=None, **properties):
    """The sink, after a job that writes a record each second."""
    source, sink = ScriptedSource(per_read=1, latency=1.0), sink or RecordingSink()
    source.add("a", *range(2_000))
    bounds, given = Bounds(max_time=seconds), OUTLASTS_MINUTES | properties
    run_virtual(read(source, sink, bounds, given, alone=store.start()))
    return sink


def test_a_job_waits_at_its_start_for_a_store_that_is_away():
    store = AwayStore(0, 300)

    assert len(read_with(store, 20).rows) >= 18
    assert store.opened == 1


def test_a_store_that_is_away_for_minutes_does_not_end_a_running_job(caplog):
    store = AwayStore(25, 300)

    sink = read_with(store, 400)

    assert len(sink.rows) >= 398
    assert store.kept[-1]["shards"]["s/a"]["position"] == str(sink.rows[-1][1])
    told = [line for line in caplog.messages if line.startswith("a checkpoint was not stored")]
    assert told[0] == "a checkpoint was not stored, the next one tries again: away"
    assert "times since the last such line), the next one tries again: away" in told[1]
    assert len(told) == 5  # in 300 s


def test_a_store_that_stays_away_ends_a_running_job_in_the_end():
    sink = RecordingSink()
    with pytest.raises(StoreUnavailableError):
        read_with(AwayStore(25, 1e9), 1_500, sink)
    assert 900 < len(sink.rows) < 1_200


def test_an_outage_of_the_store_begins_anew_with_the_next_run_of_a_fetcher():
    async def job():
        source, store = ScriptedSource(per_read=1, latency=1.0), AwayStore(25, 1e9)
        source.add("a", *range(10_000))
        fetcher = make_fetcher(source, RecordingSink(), OUTLASTS_MINUTES, alone=store.start())
        await fetcher.open()
        first = asyncio.create_task(fetcher.run())
        await asyncio.sleep(60)
        first.cancel()
        await asyncio.wait([first])
        await asyncio.sleep(3_600)
        store.until = asyncio.get_running_loop().time() + 25
        second = asyncio.create_task(fetcher.run_bounded(Bounds(max_time=60)))
        await asyncio.sleep(5)
        reasons = fetcher.reasons_not_ready()
        await second
        return reasons

    assert run_virtual(job()) == []


def test_time_in_which_the_process_was_suspended_is_no_outage_of_its_store():
    class AwayAfterSuspension(KeptSnapshots):
        is_over = False

        async def write(self, epoch, state):
            loop = asyncio.get_running_loop()
            if loop.time() > 25 and not self.is_over:
                self.is_over = True
                loop.call_soon(loop.suspend, 3_600)
                await asyncio.sleep(0.1)
                raise StoreUnavailableError("the connection is broken")
            await super().write(epoch, state)

    sink = read_with(AwayAfterSuspension(), 3_700)
    assert len(sink.rows) > 60


def test_a_requested_checkpoint_that_no_periodic_one_would_repeat_ends_the_job():
    class Requesting(RecordingSink):
        async def open(self, context):
            self.request_checkpoint = context.request_checkpoint

        async def write(self, batch):
            await super().write(batch)
            if len(self.rows) == 30:
                self.request_checkpoint()

    sink = Requesting()
    with pytest.raises(StoreUnavailableError):
        read_with(AwayStore(25, 1e9), 200, sink, **{"flink.state.checkpoint.interval": -1})
    assert len(sink.rows) < 35


def test_a_checkpoint_of_a_later_generation_takes_precedence_over_restore():  # S5
    source, store = ScriptedSource(), KeptSnapshots()
    source.add("a", *range(30))
    first, second, third = RecordingSink(), RecordingSink(), RecordingSink()

    async def job():
        fetcher, _ = await read(source, first, Bounds(max_records=5))
        seed = fetcher.snapshot()
        await read(source, second, Bounds(max_records=10), restore=(seed,), alone=store.start())
        await read(source, third, restore=(seed,), alone=store.start())

    run_virtual(job())

    assert [time for _, time in first.rows + second.rows + third.rows] == list(range(30))


def test_the_last_checkpoint_stores_what_the_sink_is_done_with_before_it_waits_for_the_rest():
    class Hanging(RecordingSink):
        """Is done with nothing but the first flush, which is the fetcher's own."""

        async def flush(self, checkpoint=None):
            if not checkpoint.may_be_partial and self.rows:
                await asyncio.sleep(3_600)
            await super().flush(checkpoint)
            shards = {key: {**state, "position": "0"} for key, state in checkpoint.state["shards"].items()}
            return {**checkpoint.state, "shards": shards} if self.rows else None

    source, store = ScriptedSource(), KeptSnapshots()
    source.add("a", 1, 2, 3)

    async def story():
        fetcher = make_fetcher(source, Hanging(), alone=store.start())
        await fetcher.open()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(60):
                await fetcher.run_bounded(Bounds(max_records=3))
        return store.kept[-1]["shards"]["s/a"]["position"]

    assert run_virtual(story()) == "0"


def test_what_the_sink_is_done_with_is_stored_while_a_run_that_has_ended_waits_for_the_rest():
    class Slow(RecordingSink):
        """Is done with a record each second, and ends the job at the thirtieth."""

        async def open(self, context):
            self.begun = asyncio.get_running_loop().time()

        def unfinished(self):
            return Unfinished(len(self.rows) - self.done(), "")

        def done(self):
            return min(len(self.rows), int(asyncio.get_running_loop().time() - self.begun))

        async def flush(self, checkpoint=None):
            if not checkpoint.may_be_partial and self.rows:
                await asyncio.sleep(3_600)
            if self.done() >= 30:
                raise SinkError("the thirtieth")
            return {**checkpoint.state, "shards": {"s/a": {"start": "TRIM_HORIZON", "position": str(self.done())}}}

    source, store = ScriptedSource(), KeptSnapshots()
    source.add("a", *range(100))
    properties = {"flink.state.checkpoint.interval": 10_000}

    with pytest.raises(SinkError):
        run_virtual(read(source, Slow(), Bounds(max_records=100), properties, alone=store.start()))

    assert int(store.kept[-1]["shards"]["s/a"]["position"]) >= 27


def test_a_sink_that_finishes_only_when_all_is_asked_for_is_asked_for_all():
    class Buffering(RecordingSink):
        """Keeps its rows until a flush that may not be partial, as sinks of users did before they were asked more than once."""

        is_done = False

        def unfinished(self):
            return None if self.is_done or not self.rows else Unfinished(len(self.rows), "")

        async def flush(self, checkpoint=None):
            if checkpoint.may_be_partial and self.rows:
                return {**checkpoint.state, "shards": {}}
            self.is_done = bool(self.rows)
            return None

    source, sink, store = ScriptedSource(), Buffering(), KeptSnapshots()
    source.add("a", 1, 2, 3)

    async def story():
        async with asyncio.timeout(600):
            await read(source, sink, Bounds(max_records=3), alone=store.start())

    run_virtual(story())
    assert sink.is_done
    assert store.kept[-1]["shards"]["s/a"]["position"]


def test_a_flush_that_returns_no_state_is_an_error_that_names_the_sink():
    class Wrong(RecordingSink):
        async def flush(self, checkpoint=None):
            return True

    source = ScriptedSource()
    source.add("a", 1)

    with pytest.raises(PluginError, match=r"`Wrong\.flush` returned True: return None, or the state"):
        run_virtual(read(source, Wrong(), Bounds(max_records=1), alone=KeptSnapshots().start()))


class Overlaps(RecordingSink):
    """Records whether a flush has met a write."""

    is_writing = False
    met_a_write = False

    async def write(self, batch):
        self.is_writing = True
        await super().write(batch)
        self.is_writing = False

    async def flush(self, checkpoint=None):
        self.met_a_write |= self.is_writing


def test_a_flush_waits_for_the_write_that_goes_on():  # S1, S6
    sink, source = Overlaps(cost=2), ScriptedSource(per_read=1)
    source.add("a", *range(10))
    run_virtual(read(source, sink, properties={"flink.state.checkpoint.interval": 500}))

    assert len(sink.rows) == 10
    assert not sink.met_a_write


class AwayAtTheEnd(KeptSnapshots):
    """Does not answer for some seconds, beginning with the last checkpoint."""

    away_until = float("inf")

    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    async def write(self, epoch, state):
        now = asyncio.get_running_loop().time()
        if state["shards"]["s/a"].get("position") == "19":
            self.away_until = min(self.away_until, now + self.seconds)
            if now < self.away_until:
                raise StoreUnavailableError("away")
        await super().write(epoch, state)


RARE = {"flink.state.checkpoint.interval": 3_600_000}


@pytest.mark.parametrize("bounds", [TIP, Bounds(max_time=10)], ids=["tip", "max_time"])
def test_the_last_checkpoint_waits_for_its_store_for_the_drain_timeout(bounds):
    """Without it the next start repeats every record since the checkpoint before."""
    source, store = ScriptedSource(), AwayAtTheEnd(seconds=15)
    source.add("a", *range(20))

    run_virtual(read(source, RecordingSink(), bounds, RARE, alone=store.start()))

    assert store.kept[-1]["shards"]["s/a"]["position"] == "19"


def test_a_run_whose_store_stays_away_ends_with_an_error_after_the_drain_timeout():
    source, store = ScriptedSource(), AwayAtTheEnd(seconds=3_600)
    source.add("a", *range(20))

    async def job():
        began = asyncio.get_running_loop().time()
        with pytest.raises(StoreUnavailableError, match=r"away"):
            await read(source, RecordingSink(), TIP, RARE, alone=store.start())
        return asyncio.get_running_loop().time() - began

    assert 20 <= run_virtual(job()) < 25
