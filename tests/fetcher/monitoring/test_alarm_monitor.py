"""A2 in a running fetcher, on virtual time: which alarms are raised, for which shard, with which reason."""

import asyncio

from recordpublisher.fetcher.alarms import AlarmKind
from recordpublisher.fetcher.sink import Unfinished
from recordpublisher.publishers.errors import TransientError

from fakes.scripted_source import RecordingSink, ScriptedSource
from fakes.watched_fetcher import ALIGNED, Tips, alarms_of, unread


def test_a_job_that_reads_raises_no_alarm():
    source = ScriptedSource(per_read=1)
    source.add("a", *range(150))

    assert alarms_of(source) == []


def test_shards_at_their_tips_raise_no_alarm_and_cost_no_call():
    source, tips = ScriptedSource(), Tips()
    source.add("a", 1)
    source.add("b")

    assert alarms_of(source, seconds=200, tip=tips) == []
    assert tips.requested == []


def test_the_alarm_of_a_held_shard_names_the_blocking_shard_and_ends_when_that_has_records():
    source = ScriptedSource()
    source.add("late", 100)
    quiet = source.add("quiet")
    source.silent.add("s/quiet")

    async def has_records_later(fetcher):
        await asyncio.sleep(30)
        assert fetcher.metrics()["shards"]["s/late"]["alarm"] is True
        assert fetcher.metrics()["worker"]["alarms"] == 2
        source.silent.clear()
        quiet.put(200)

    alarms = alarms_of(source, properties=ALIGNED, during=has_records_later, seconds=5)

    assert unread(alarms) == [("s/late", "held back by alignment, which waits for shard s/quiet")]
    stalled = [alarm for alarm in alarms if alarm.kind is AlarmKind.STALLED and not alarm.is_over]
    assert [alarm.reason for alarm in stalled] == ["it is not known, and waits for shard s/quiet"]
    assert {alarm.subject for alarm in alarms if alarm.is_over} == {"s/late", "global watermark"}


def test_an_alarm_is_raised_soon_after_the_interval():
    source = ScriptedSource()
    source.add("late", 100)
    source.add("quiet")
    first = min(alarm.lasting_ms for alarm in alarms_of(source, properties=ALIGNED))

    assert 10_000 <= first <= 12_000


def test_without_an_interval_there_are_no_checks():
    source = ScriptedSource()
    source.add("late", 100)
    source.add("quiet")

    assert alarms_of(source, properties={**ALIGNED, "flink.alarm.interval": -1}, seconds=900) == []


def test_a_sink_that_does_not_return_raises_an_alarm():
    source = ScriptedSource()
    source.add("a", 1)

    alarms = alarms_of(source, sink=RecordingSink(cost=30))

    assert unread(alarms) == [("s/a", "the sink's write does not return")]


class HandlerSink(RecordingSink):
    """Its writes return at once, and it calls user code; `call` stands for the oldest call."""

    call = None

    def unfinished(self):
        return Unfinished(1, "a handler runs with record 7", self.call)


def test_a_call_of_user_code_that_does_not_return_raises_an_alarm_and_makes_the_worker_not_ready():
    source, sink, reasons = ScriptedSource(), HandlerSink(), []
    source.add("a", *range(150))

    async def returns_later(fetcher):
        sink.call = "first"
        await asyncio.sleep(5)
        reasons.append(fetcher.reasons_not_ready())
        await asyncio.sleep(10)
        reasons.append(fetcher.reasons_not_ready())
        sink.call = "second"
        await asyncio.sleep(5)
        reasons.append(fetcher.reasons_not_ready())
        sink.call = None

    alarms = alarms_of(source, sink=sink, during=returns_later)

    assert [(alarm.kind, alarm.subject, alarm.is_over) for alarm in alarms] == [
        (AlarmKind.HANGING, "sink", False),
        (AlarmKind.HANGING, "sink", True),
    ]
    assert alarms[0].reason == "a handler runs with record 7"
    assert [len(found) for found in reasons] == [0, 1, 0]


def test_calls_of_user_code_that_each_return_in_time_raise_no_alarm():
    source, sink = ScriptedSource(), HandlerSink()
    source.add("a", 1)

    async def returns(fetcher):
        for sink.call in (*range(10), None):
            await asyncio.sleep(8)

    assert alarms_of(source, sink=sink, during=returns) == []


def test_a_stuck_reader_is_detected_by_requesting_the_tip():
    source, tips = ScriptedSource(), Tips("a")
    source.add("a")
    source.add("b")
    source.silent |= {"s/a", "s/b"}

    assert unread(alarms_of(source, tip=tips)) == [("s/a", "its reads return nothing")]
    assert set(tips.requested) == {"a", "b"}


def test_a_stuck_reader_without_unread_records_or_with_an_unknown_tip_raises_no_alarm():
    source, tips = ScriptedSource(), Tips("a")
    source.add("a")
    source.silent.add("s/a")
    tips.failure = TransientError("GetRecords", "Slow", "down")

    assert alarms_of(source, tip=Tips()) == alarms_of(source, tip=tips) == alarms_of(source) == []


def test_a_process_that_was_suspended_raises_no_alarm():  # as in W3: time without checks does not count
    source = ScriptedSource(per_read=1)
    source.add("a", *range(2_000))

    async def is_suspended(fetcher):
        await asyncio.sleep(5)
        asyncio.get_running_loop().suspend(600)

    assert alarms_of(source, during=is_suspended, seconds=60) == []


def test_a_failed_check_does_not_end_the_job(caplog):
    source = ScriptedSource()
    source.add("a")
    source.silent.add("s/a")

    async def fails(shard, position):
        raise ValueError("a plugin's own error")

    assert alarms_of(source, tip=fails) == []
    assert "a plugin's own error" in caplog.text
