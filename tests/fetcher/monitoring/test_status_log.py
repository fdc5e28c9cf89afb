"""A1, W10: one line a minute; a warning names what a stalled alignment waits for; subtasks that never join are an error (W6)."""

import logging

import pytest

from recordpublisher.fetcher.watermarks.watermark_tracker import OwnWatermark
from recordpublisher.fetcher.watermarks.watermark_tracker import SubtaskReport, SubtaskStatus
from recordpublisher.fetcher.monitoring.status_log import StatusLogger
from recordpublisher.fetcher.settings import AlignmentTimes
from recordpublisher.fetcher.shards.shard_entry import ShardStage
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.shards.shard_table import ShardTable
from recordpublisher.fetcher.watermarks.alignment import Alignment
from recordpublisher.fetcher.watermarks.local_watermark import LocalWatermark
from recordpublisher.publishers.errors import ConfigurationError

from fakes.shard_entries import START, AlwaysRunning, StoppedClock, in_stage, shard, watermarked


class Scene:
    """Shard `late` is held back by the silent shard `quiet`."""

    def __init__(self, parallelism=1):
        self.clock, self.tracker, self.table = StoppedClock(), OwnWatermark(parallelism=parallelism), ShardTable()
        self.alignment = Alignment(self.tracker, 0, AlignmentTimes(0, 30_000), self.clock, AlwaysRunning(self.clock))
        self.logger = StatusLogger(0, self.table, self.alignment, LocalWatermark(), self.tracker, self.clock)
        for name in ("late", "quiet"):
            in_stage(self.table.add(shard(name), ShardState(START)), ShardStage.READING)
        self.table["s/late"].reading.queue.push(watermarked(9))
        for each in self.table:
            self.alignment.update(each)
        self.alignment.report()

    def run_for(self, seconds):
        for _ in range(seconds):
            self.clock.seconds += 1
            self.logger.check()

    def heartbeats(self, seconds):
        for _ in range(seconds):
            self.alignment.report()
            self.run_for(1)


@pytest.fixture
def scene():
    made = Scene()
    made.tracker._group.join(0, 0)
    return made


def test_the_status_is_logged_once_a_minute(scene, caplog):
    caplog.set_level(logging.INFO)
    scene.run_for(179)

    lines = [record.message for record in caplog.records if record.levelno == logging.INFO]
    assert lines == ["subtask 0: local watermark None, global watermark None, 2 open shards, 0 idle, 1 held back"] * 2


def test_a_stalled_alignment_names_the_shard_and_for_how_long(scene, caplog):
    scene.run_for(125)

    warnings = [record.message for record in caplog.records if record.levelno == logging.WARNING]
    assert len(warnings) == 2
    assert "has been None for 120 s" in warnings[1]
    assert "waiting for shard s/quiet" in warnings[1]


def test_another_subtask_is_named(scene, caplog):
    scene.tracker.report(SubtaskReport(1, SubtaskStatus.ACTIVE, -5))
    scene.tracker.report(SubtaskReport(0, SubtaskStatus.ACTIVE, 9))
    scene.run_for(70)

    assert "waiting for subtask 1" in caplog.text


def test_a_timed_out_subtask_is_named_once(caplog):  # W6
    scene = Scene(parallelism=2)
    scene.tracker._clock = scene.clock
    scene.tracker.report(SubtaskReport(1, SubtaskStatus.ACTIVE, 5))
    for _ in range(40):
        scene.alignment.report()
        scene.run_for(1)

    assert caplog.text.count("subtasks 1 timed out") == 1


def test_a_subtask_without_a_tracker_is_logged(scene, caplog):  # W10
    class NeverReached(OwnWatermark):
        is_reachable = False
        response_age_ms = None

        def missing_subtasks(self):
            return []

    alone = scene.tracker = scene.logger._tracker = NeverReached(parallelism=2)
    scene.alignment = scene.logger._alignment = Alignment(
        alone, 0, AlignmentTimes(0, 30_000), scene.clock, AlwaysRunning(scene.clock)
    )
    scene.heartbeats(30)
    assert "not aligned" not in caplog.text
    scene.heartbeats(60)
    assert caplog.text.count("subtask 0 is not aligned: the tracker was never reached") == 1
    alone.is_reachable = True
    scene.heartbeats(1)

    assert "subtask 0 is aligned again" in caplog.text


def test_nothing_held_is_nothing_stalled(scene, caplog):
    scene.table["s/late"].status.held_since = None
    scene.run_for(200)

    assert [record for record in caplog.records if record.levelno == logging.WARNING] == []


def test_subtasks_that_never_join_are_an_error():  # W6
    scene = Scene(parallelism=2)
    scene.tracker._group.join(0, 0)
    scene.run_for(29)
    with pytest.raises(ConfigurationError, match=r"subtasks \[1\] have not joined"):
        scene.run_for(2)
