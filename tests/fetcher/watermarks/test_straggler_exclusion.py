"""W12: a shard far behind that blocks the whole job is shown by metrics, and excluded if the job is configured so."""

import asyncio
import logging

from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.fetcher.shards.shard_entry import ShardStage
from recordpublisher.fetcher.shards.shard_table import ShardTable
from recordpublisher.fetcher.watermarks import StragglerDetector
from recordpublisher.testing.virtual_time import run_virtual

from fakes.other_workers import OtherWorkers
from fakes.scripted_source import RecordingSink, ScriptedSource, make_fetcher
from fakes.shard_entries import entry, in_stage, watermarked

HOUR = 3_600_000
DAYS_BEHIND = range(0, 100 * HOUR, 60_000)
NOW = range(120 * HOUR, 121 * HOUR, 10_000)
ALIGNED = {"flink.watermark.lookahead.millis": 60_000}


class Changed:
    """A listener that counts the changes of entries."""

    def __init__(self):
        self.count = 0

    def on_added(self, entry):
        pass

    def on_changed(self, entry):
        self.count += 1

    def on_ended(self, entry):
        pass

    def on_removed(self, key):
        pass

    def on_listed(self, shard, is_in_listing):
        pass


class Scene:
    def __init__(self, max_lag_ms, **watermarks):
        self.changed = Changed()
        self.table, self.tracker = ShardTable(), OtherWorkers()
        self.table.set_listener(self.changed)
        for name, watermark in watermarks.items():
            made = entry(name, watermark=watermark)
            in_stage(self.table.add(made.shard, made.state), ShardStage.READING)
        self.stragglers = StragglerDetector(self.table, self.tracker, max_lag_ms)
        self.stragglers.update()

    @property
    def excluded(self):
        return [each.shard.shard_id for each in self.table if each.status.is_straggler]


def test_a_shard_further_behind_than_the_lag_is_excluded():
    scene = Scene(100, late=9, close=100, ahead=110)

    assert scene.excluded == ["late"]
    assert not scene.table["s/late"].is_active
    assert scene.stragglers.max_watermark == 110


def test_a_shard_counts_again_once_it_has_caught_up():
    scene = Scene(100, late=9, ahead=110)
    scene.table["s/late"].reading.queue.push(watermarked(10))
    changes = scene.changed.count
    scene.stragglers.update()

    assert scene.excluded == []
    assert scene.changed.count == changes + 1


def test_without_a_maximum_lag_no_shard_is_excluded():
    assert Scene(None, late=0, ahead=10**12).excluded == []


def test_a_shard_without_a_watermark_is_not_far_behind():  # W2
    assert Scene(100, silent=None, ahead=1_000).excluded == []


def test_lag_is_not_measured_against_an_idle_shard():
    scene = Scene(100, late=9, ahead=1_000)
    scene.table["s/ahead"].reading.is_idle = True
    scene.stragglers.update()

    assert scene.excluded == []


def test_the_highest_watermark_may_be_in_another_worker():
    scene = Scene(100, late=9)
    scene.tracker.highest = 500
    scene.stragglers.update()

    assert scene.excluded == ["late"]


def one_shard_behind():
    source = ScriptedSource(per_read=20)
    source.add("behind", *DAYS_BEHIND)
    source.add("now", *NOW)
    return source


def run_for(seconds, properties, sink, source=None):
    async def job():
        fetcher = make_fetcher(source or one_shard_behind(), sink, {**ALIGNED, **properties})
        await fetcher.open()
        await fetcher.run_bounded(Bounds(max_time=seconds))
        return fetcher.metrics()

    return run_virtual(job())


def written(sink, shard):
    return sum(name == shard for name, _ in sink.rows)


def test_without_max_lag_one_shard_holds_the_job_and_the_metric_shows_it():
    sink = RecordingSink()
    metrics = run_for(30, {}, sink)

    assert written(sink, "now") == 0
    assert metrics["worker"]["alignmentLagMs"] > 20 * HOUR


def test_slow_alignment_is_logged_once_a_minute(caplog):
    caplog.set_level(logging.WARNING)
    slow = ScriptedSource(per_read=1)
    slow.add("behind", *DAYS_BEHIND)
    slow.add("now", *NOW)
    run_for(130, {}, RecordingSink(), slow)

    warnings = [record.message for record in caplog.records if "alignment is slow" in record.message]
    assert len(warnings) == 2
    assert "waiting for shard s/behind; set flink.watermark.alignment.max.lag to exclude" in warnings[0]


def test_max_lag_lets_the_others_continue_and_the_straggler_is_read_to_its_end():
    sink = RecordingSink()
    metrics = run_for(100, {"flink.watermark.alignment.max.lag": HOUR}, sink)

    assert written(sink, "now") == len(NOW)
    assert written(sink, "behind") > 4_000
    assert metrics["worker"]["excludedShards"] == 1
    assert metrics["shards"]["s/behind"]["lateAfterIdle"] > 0
    first_now = next(index for index, (name, _) in enumerate(sink.rows) if name == "now")
    assert first_now < 300, "the others continue at once"


def test_an_excluded_shard_takes_turns_with_the_others():  # P7
    source, sink = ScriptedSource(per_read=1_000), RecordingSink(cost=0.5)
    source.add("behind", *DAYS_BEHIND)
    source.add("now", *range(120 * HOUR, 121 * HOUR, 500))
    run_for(30, {"flink.watermark.alignment.max.lag": HOUR, "flink.watermark.lookahead.millis": 1_000}, sink, source)

    writes = [what[0] for kind, what in sink.events if kind == "write"]
    assert 4 <= writes[:12].count("now") <= 8


def test_stragglers_are_measured_against_other_workers():
    source, sink, others = ScriptedSource(), RecordingSink(), OtherWorkers(120 * HOUR, 120 * HOUR)
    source.add("behind", *DAYS_BEHIND)

    async def job():
        fetcher = make_fetcher(source, sink, {**ALIGNED, "flink.watermark.alignment.max.lag": HOUR}, tracker=others)
        await fetcher.open()
        await asyncio.sleep(0)
        running = asyncio.create_task(fetcher.run_bounded(Bounds(max_time=100)))
        await asyncio.sleep(50)
        excluded = fetcher.metrics()["shards"]["s/behind"]["excluded"]
        await running
        return excluded

    assert run_virtual(job())
    assert written(sink, "behind") > 4_000


def test_a_straggler_is_written_while_the_others_of_its_worker_are_held():  # W9, W12
    source, sink = ScriptedSource(), RecordingSink()
    source.add("late", *range(0, 300 * 1_000, 1_000))
    source.add("held", 100 * HOUR)
    others = OtherWorkers(99 * HOUR + HOUR // 2, 99 * HOUR + HOUR // 2)

    async def job():
        properties = {**ALIGNED, "flink.watermark.alignment.max.lag": HOUR, "flink.shard.idle.interval": -1}
        fetcher = make_fetcher(source, sink, properties, tracker=others)
        await fetcher.open()
        await fetcher.run_bounded(Bounds(max_time=60))

    run_virtual(job())

    assert written(sink, "late") == 300
    assert written(sink, "held") == 0, "it waits for the shard of the other worker"
