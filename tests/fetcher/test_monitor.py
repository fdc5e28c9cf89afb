"""A2 in a running fetcher, on virtual time: what is raised, for which shard, with which reason."""

import asyncio

import pytest

from recordpublisher.fetcher.alarms import AlarmKind
from recordpublisher.fetcher.checkpoints import Checkpoints
from recordpublisher.fetcher.global_watermark import InProcessTracker
from recordpublisher.fetcher.state_store import StateStore
from recordpublisher.publishers.errors import StateError, TransientError
from recordpublisher.publishers.tip import Tip

from scripted import RecordingSink, ScriptedSource, a_fetcher
from virtual_time import run_virtual

INTERVAL = {"flink.alarm.interval": 10_000}
ALIGNED = {**INTERVAL, "flink.watermark.lookahead.millis": 0}


class Tips:
    """The port to the service's tips: shards with something behind every position."""

    def __init__(self, *unread):
        self.unread = set(unread)
        self.asked = []
        self.failure = None

    async def __call__(self, shard, position):
        self.asked.append(shard.shard_id)
        if self.failure:
            raise self.failure
        return Tip(shard.shard_id in self.unread)


class Stored(StateStore):
    """What the subtasks of a job have stored, changed by the test."""

    def __init__(self):
        self.snapshots = {}
        self.failure = None

    async def load(self):
        if self.failure:
            raise self.failure
        return list(self.snapshots.values())

    async def open_generation(self, subtask):
        return 1

    async def store(self, subtask, generation, state):
        self.snapshots[subtask] = state


def alarms_of(source, seconds=40, properties=INTERVAL, sink=None, during=None, **parts):
    """Run a job for so many virtual seconds; answers (subject, reason, is over) of every alarm told, reminders left out."""

    async def job():
        heard = {}
        fetcher = a_fetcher(
            source,
            sink or RecordingSink(),
            dict(properties),
            on_alarm=lambda alarm: heard.setdefault((alarm.kind, alarm.subject, alarm.is_over), alarm),
            **parts,
        )
        await fetcher.open()
        running = asyncio.create_task(fetcher.run())
        await during(fetcher) if during else None
        await asyncio.sleep(seconds)
        fetcher.stop()
        await running
        await fetcher.close()
        return list(heard.values())

    return run_virtual(job())


def unread(alarms):
    return [(alarm.subject, alarm.reason) for alarm in alarms if alarm.kind is AlarmKind.UNREAD and not alarm.is_over]


def test_a_job_that_reads_on_raises_none():
    source = ScriptedSource(per_read=1)
    source.add("a", *range(150))

    assert alarms_of(source) == []


def test_shards_at_their_tips_raise_none_however_long_and_cost_no_call():
    source, tips = ScriptedSource(), Tips()
    source.add("a", 1)
    source.add("b")

    assert alarms_of(source, seconds=200, tip=tips) == []
    assert tips.asked == []


def test_a_held_shard_is_raised_with_whom_alignment_waits_for_and_is_over_when_that_one_speaks():
    source = ScriptedSource()
    source.add("late", 100)
    quiet = source.add("quiet")
    source.silent.add("s/quiet")

    async def speaks_later(fetcher):
        await asyncio.sleep(30)
        assert fetcher.metrics()["shards"]["s/late"]["alarm"] is True
        assert fetcher.metrics()["subtask"]["alarms"] == 2
        source.silent.clear()
        quiet.put(200)

    alarms = alarms_of(source, properties=ALIGNED, during=speaks_later, seconds=5)

    assert unread(alarms) == [("s/late", "held back by alignment, which waits for shard s/quiet")]
    stalled = [alarm for alarm in alarms if alarm.kind is AlarmKind.STALLED and not alarm.is_over]
    assert [alarm.reason for alarm in stalled] == ["it stands at None, waiting for shard s/quiet"]
    assert {alarm.subject for alarm in alarms if alarm.is_over} == {"s/late", "global watermark"}


def test_it_takes_the_interval_and_not_much_more():
    source = ScriptedSource()
    source.add("late", 100)
    source.add("quiet")
    first = min(alarm.lasting_ms for alarm in alarms_of(source, properties=ALIGNED))

    assert 10_000 <= first <= 12_000


def test_without_an_interval_nobody_looks():
    source = ScriptedSource()
    source.add("late", 100)
    source.add("quiet")

    assert alarms_of(source, properties={**ALIGNED, "flink.alarm.interval": -1}, seconds=900) == []


def test_a_sink_that_does_not_return_is_raised():
    source = ScriptedSource()
    source.add("a", 1)

    alarms = alarms_of(source, sink=RecordingSink(cost=30))

    assert unread(alarms) == [("s/a", "the sink's write does not return")]


def test_a_reader_that_is_stuck_is_found_out_by_asking_for_the_tip():
    source, tips = ScriptedSource(), Tips("a")
    source.add("a")
    source.add("b")
    source.silent |= {"s/a", "s/b"}

    assert unread(alarms_of(source, tip=tips)) == [("s/a", "its reads bring nothing")]
    assert set(tips.asked) == {"a", "b"}


def test_a_stuck_reader_without_anything_to_read_is_none_and_so_is_a_tip_that_nobody_tells():
    source, tips = ScriptedSource(), Tips("a")
    source.add("a")
    source.silent.add("s/a")
    tips.failure = TransientError("GetRecords", "Slow", "down")

    assert alarms_of(source, tip=Tips()) == alarms_of(source, tip=tips) == alarms_of(source) == []


def test_a_shard_that_nobody_owns_is_raised_also_without_a_store():
    source, tips = ScriptedSource(), Tips("lost")
    source.add("a")
    source.add("lost")

    alarms = alarms_of(source, tip=tips, parallelism=1, assigner=lambda shard, _: 7 if shard.shard_id == "lost" else 0)

    assert unread(alarms) == [("s/lost", "nobody owns it: it was given to subtask 7 of 1")]


def others(source, stored, during=None, tips=None, subtask=0, checkpoint_ms=1_000):
    """Alarms of one of two subtasks; shard a is of the first, b of the second, which does not run."""

    async def told(fetcher):
        fetcher._parts.tracker._group.join(1, 0)
        if stored:
            stored.snapshots[1] = {"version": 1, "generation": 1, "shards": {"s/b": {"start": "TRIM_HORIZON"}}}
        await during(fetcher) if during else None

    return alarms_of(
        source,
        properties={**INTERVAL, "flink.state.checkpoint.interval": checkpoint_ms},
        during=told,
        tip=tips or Tips("b"),
        parallelism=2,
        subtask=subtask,
        assigner=lambda shard, _: int(shard.shard_id == "b"),
        checkpoints=Checkpoints(stored, subtask) if stored else None,
    )


def two_shards():
    source = ScriptedSource()
    source.add("a")
    source.add("b")
    return source


def test_a_shard_of_a_subtask_that_stores_no_progress_is_raised_by_its_guardian():
    assert unread(others(two_shards(), Stored())) == [("s/b", "its owner, subtask 1, stores no progress")]


def test_a_subtask_that_stores_progress_is_left_alone():
    stored = Stored()

    async def advances(fetcher):
        for number in range(30):
            stored.snapshots[1] = {
                "version": 1,
                "generation": 1,
                "shards": {"s/b": {"start": "TRIM_HORIZON", "position": str(number)}},
            }
            await asyncio.sleep(1)
        stored.snapshots.clear()
        fetcher.stop()

    assert others(two_shards(), stored, during=advances) == []


@pytest.mark.parametrize("checkpoint_ms", [-1, 6_000])
def test_positions_that_are_stored_too_rarely_say_nothing_of_others(checkpoint_ms):
    assert others(two_shards(), Stored(), checkpoint_ms=checkpoint_ms) == []


def test_what_others_store_is_read_only_now_and_then():
    stored, loads = Stored(), []
    load = stored.load

    async def counted():
        loads.append(1)
        return await load()

    async def counts(fetcher):
        stored.load = counted

    others(two_shards(), stored, during=counts)

    assert 10 <= len(loads) <= 17  # every 2.5 s of 40 s


def test_a_child_that_waits_for_others_is_not_judged_without_a_store():  # S2
    source = ScriptedSource()
    source.add("b")
    source.split("b", "c", "d")

    assert others(source, None, tips=Tips("b", "c", "d")) == []


def test_without_a_store_nobody_judges_what_another_subtask_reads():
    tips = Tips("b")

    assert others(two_shards(), None, tips=tips) == []
    assert tips.asked == []


def test_a_store_that_cannot_be_read_ends_nothing():
    stored = Stored()

    async def breaks(fetcher):
        stored.failure = StateError("torn")

    assert others(two_shards(), stored, during=breaks) == []


def test_a_process_that_was_suspended_wakes_without_an_alarm():  # W3's sister: it has not looked
    source = ScriptedSource(per_read=1)
    source.add("a", *range(2_000))

    async def sleeps(fetcher):
        await asyncio.sleep(5)
        asyncio.get_running_loop().suspend(600)

    assert alarms_of(source, during=sleeps, seconds=60) == []


def test_a_child_that_waits_for_a_parent_elsewhere_is_none_while_that_one_is_read():  # S2
    source, stored = ScriptedSource(), Stored()
    parent = source.add("b")
    source.split("b", "c", "d")
    assert parent.shard.shard_id == "b"

    async def reads_on(fetcher):
        for number in range(30):
            shards = {"s/b": {"start": "TRIM_HORIZON", "position": str(number)}}
            stored.snapshots[1] = {"version": 1, "generation": 1, "shards": shards}
            await asyncio.sleep(1)
        fetcher.stop()

    assert others(source, stored, during=reads_on, tips=Tips("b", "c", "d")) == []


class Unreachable(InProcessTracker):
    """A tracker that nobody reaches until the test says so."""

    is_answering = False

    def report(self, report):
        return super().report(report) if self.is_answering else None

    def current(self):
        return super().current() if self.is_answering else None


def test_a_subtask_that_goes_alone_is_raised_at_once_and_over_when_the_tracker_answers():  # W10
    source, tracker = ScriptedSource(), Unreachable()
    source.add("a", *range(200))

    async def reached_later(fetcher):
        await asyncio.sleep(20)
        tracker.is_answering = True

    properties = {**ALIGNED, "flink.watermark.startup.timeout": 5_000}
    alarms = alarms_of(source, properties=properties, during=reached_later, tracker=tracker, seconds=10)

    told = [(alarm.subject, alarm.is_over) for alarm in alarms if alarm.kind is AlarmKind.ALONE]
    assert told == [("tracker", False), ("tracker", True)]


def test_a_look_that_fails_ends_nothing(caplog):
    source = ScriptedSource()
    source.add("a")
    source.silent.add("s/a")

    async def fails(shard, position):
        raise ValueError("a plugin's own error")

    assert alarms_of(source, tip=fails) == []
    assert "a plugin's own error" in caplog.text
