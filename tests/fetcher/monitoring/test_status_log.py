"""A1: one line a minute; a warning names what a stalled alignment waits for."""

import logging

import pytest

from recordpublisher.fetcher.monitoring.status_and_warnings import StatusLogger
from recordpublisher.fetcher.settings import AlignmentTimes
from recordpublisher.fetcher.shards.shard_entry import ShardStage
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.shards.shard_table import ShardTable
from recordpublisher.fetcher.sink import Unfinished, UnfinishedShard
from recordpublisher.fetcher.watermarks import Alignment, LocalWatermark, OwnWatermark

from fakes.shard_entries import START, AlwaysRunning, StoppedClock, in_stage, shard, watermarked


class Scene:
    """Shard `late` is held back by the silent shard `quiet`."""

    def __init__(self):
        self.clock, self.table = StoppedClock(), ShardTable()
        self.alignment = Alignment(OwnWatermark(), AlignmentTimes(0), self.clock, AlwaysRunning(self.clock))
        self.logger = StatusLogger(self.table, self.alignment, LocalWatermark(), self.clock)
        self.unfinished = None
        for name in ("late", "quiet"):
            in_stage(self.table.add(shard(name), ShardState(START)), ShardStage.READING)
        self.table["s/late"].reading.queue.push(watermarked(9))
        for each in self.table:
            self.alignment.update(each)
        self.alignment.report()

    def run_for(self, seconds):
        for _ in range(seconds):
            self.clock.seconds += 1
            self.logger.check(self.unfinished)

    def heartbeats(self, seconds):
        for _ in range(seconds):
            self.alignment.report()
            self.run_for(1)


@pytest.fixture
def scene():
    return Scene()


def test_the_status_is_logged_once_a_minute(scene, caplog):
    caplog.set_level(logging.INFO)
    scene.run_for(179)

    lines = [record.message for record in caplog.records if record.levelno == logging.INFO]
    words = "2 open shards read, 0 records written since the last status line, lag {}, watermark unknown"
    words = f"{words}, global watermark unknown, 0 idle, 1 held back"
    assert lines == [words.format("59 s"), words.format("119 s")]


def test_an_operator_sees_what_was_written_and_the_lag(scene, caplog):
    """Reads count for the lag, and so do records that wait for the sink (of `late`, since second 1) and in it."""
    caplog.set_level(logging.INFO)
    written = iter([120, 200, 200])
    alignment = Alignment(OwnWatermark(), AlignmentTimes(None), scene.clock, AlwaysRunning(scene.clock))
    logger = StatusLogger(scene.table, alignment, LocalWatermark(), scene.clock, written=lambda: next(written))
    scene.logger, quiet = logger, scene.table["s/quiet"]
    quiet.metrics.millis_behind_latest = 90_000
    scene.run_for(60)
    quiet.metrics.millis_behind_latest = 0
    scene.run_for(60)
    scene.unfinished = Unfinished(1, "a call runs", shards={"s/quiet": UnfinishedShard(1, -20_000)})
    scene.run_for(60)

    lines = [record.message for record in caplog.records if record.levelno == logging.INFO]
    assert lines == [
        "2 open shards read, 120 records written since the last status line, lag 90 s, watermark unknown",
        "2 open shards read, 80 records written since the last status line, lag 119 s, watermark unknown",
        "2 open shards read, 0 records written since the last status line, lag 3.3 min, watermark unknown",
    ]


def test_the_lag_counts_a_shard_that_has_ended_while_the_sink_has_records_of_it(scene, caplog):
    caplog.set_level(logging.INFO)
    ended = in_stage(scene.table.add(shard("ended"), ShardState(START)), ShardStage.ENDED)
    ended.metrics.millis_behind_latest = 10_000_000  # of its last batch, which counts no longer
    ended.reading.last_read_ms = 0
    scene.unfinished = Unfinished(1, "a call runs", shards={"s/ended": UnfinishedShard(1, -840_000)})
    scene.run_for(60)

    assert ", lag 15 min, " in caplog.text


def test_watermarks_are_logged_as_times(scene, caplog, monkeypatch):
    caplog.set_level(logging.INFO)
    time = property(lambda _: 1_790_000_000_123)
    monkeypatch.setattr(LocalWatermark, "value", time, raising=False)
    monkeypatch.setattr(Alignment, "global_watermark", time, raising=False)
    scene.logger.check(None)
    scene.run_for(60)

    (line,) = [record.message for record in caplog.records if record.levelno == logging.INFO]
    assert "watermark 2026-09-21T14:13:20.123Z, global watermark 2026-09-21T14:13:20.123Z, 0 idle" in line


def test_a_stalled_alignment_names_the_shard_and_for_how_long(scene, caplog):
    scene.run_for(125)

    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 2
    assert "has not changed from unknown for 120 s" in warnings[1]
    assert "waiting for shard s/quiet" in warnings[1]


def test_nothing_held_is_nothing_stalled(scene, caplog):
    scene.table["s/late"].status.held_since = None
    scene.run_for(200)

    assert [record for record in caplog.records if record.levelno == logging.WARNING] == []
