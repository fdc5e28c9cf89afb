"""Snapshots of a running job from its metrics."""

import asyncio

import msgspec
import pytest

from recordpublisher.plugins.dashboard.live_snapshots import LiveSnapshots
from recordpublisher.plugins.lag.job_snapshot import CommitSnapshot, JobSnapshot
from recordpublisher.plugins.metrics.export import FetchersHere
from recordpublisher.publishers.errors import RecordPublisherError

from fakes.monitoring.measured_fetcher import METRICS, MeasuredFetcher
from fakes.shard_entries import StoppedClock


def metrics(**values):
    """Of a subtask with one shard, `s/a`, that has these metrics."""
    return {"subtask": METRICS["subtask"], "shards": {"s/a": {**METRICS["shards"]["s/a"], **values}}}


class CountingSource(FetchersHere):
    """Counts how often metrics were asked for."""

    asked = 0

    async def metrics(self):
        self.asked += 1
        return await super().metrics()


@pytest.fixture
def clock():
    return StoppedClock(100.0)


async def test_a_shard_has_what_its_metrics_say(clock):
    given = metrics(watermark=7, silentMs=60_000, held=False, lagMs=40, timeToRetentionLossMs=9, stage="READING")
    snapshot = await LiveSnapshots(FetchersHere([MeasuredFetcher(0, given)]), clock, 60_000).snapshot()

    (shard,) = snapshot.shards
    assert (shard.stream, shard.shard, shard.subtask, shard.stage) == ("s", "a", 0, "READING")
    assert (shard.watermark, shard.lag_ms, shard.loss_ms) == (7, 40, 9)
    assert (shard.is_idle, shard.is_held, shard.has_alarm, shard.alarm) == (True, False, False, None)
    assert snapshot.time_ms == 100_000


async def test_the_name_of_the_job_and_what_it_left_out_are_shown(clock):
    given = metrics(skippedRecords=2, deadLetters=1, unacknowledged=3, alarm=True)
    given["subtask"] = {**given["subtask"], "skippedRecords": 5, "deadLetters": 4}
    snapshot = await LiveSnapshots(
        FetchersHere([MeasuredFetcher(0, given)]), clock, 60_000, "orders-to-lake"
    ).snapshot()

    assert snapshot.job == "orders-to-lake"
    (subtask,) = snapshot.subtasks
    assert (subtask.skipped_records, subtask.dead_letters) == (5, 4)
    shard = snapshot.shards[0]
    assert (shard.skipped_records, shard.dead_letters, shard.in_flight) == (2, 1, 3)
    assert snapshot.shards[0].has_alarm is True


@pytest.mark.parametrize(("metric", "parents"), [("p", ["p"]), ("p q", ["p", "q"]), (None, [])])
async def test_a_shard_has_the_parents_of_its_metric(clock, metric, parents):
    snapshot = await LiveSnapshots(
        FetchersHere([MeasuredFetcher(0, metrics(parents=metric))]), clock, 60_000
    ).snapshot()

    assert snapshot.shards[0].parents == parents


async def test_the_lag_before_the_first_read_is_not_known(clock):
    snapshot = await LiveSnapshots(FetchersHere([MeasuredFetcher(0, metrics(lagMs=None))]), clock, 60_000).snapshot()

    assert snapshot.shards[0].lag_ms is None


async def test_rates_come_from_two_snapshots(clock):
    fetcher = MeasuredFetcher(0, metrics(records=10, bytes=100))
    snapshots = LiveSnapshots(FetchersHere([fetcher]), clock, 60_000)
    first = await snapshots.snapshot()
    clock.seconds += 2
    fetcher.given = metrics(records=16, bytes=400)
    second = await snapshots.snapshot()

    assert first.shards[0].records_per_second is None
    assert (second.shards[0].records_per_second, second.shards[0].bytes_per_second) == (3.0, 150.0)


async def test_many_readers_cost_one_computation_a_second(clock):
    source = CountingSource([MeasuredFetcher()])
    snapshots = LiveSnapshots(source, clock, 60_000)
    assert source.asked == 0, "nothing is computed before somebody asks"

    found = await asyncio.gather(*(snapshots.snapshot() for _ in range(5)))
    assert source.asked == 1
    assert all(each is found[0] for each in found)
    clock.seconds += 1
    await snapshots.snapshot()
    assert source.asked == 2


async def test_subtasks_are_shown_with_what_they_lack(clock):
    ready, waiting = MeasuredFetcher(0), MeasuredFetcher(1, reasons=["no checkpoint is stored"])
    snapshot = await LiveSnapshots(FetchersHere([ready, waiting]), clock, 60_000).snapshot()

    assert {each.subtask: each.not_ready for each in snapshot.subtasks} == {0: [], 1: ["no checkpoint is stored"]}
    assert [shard.subtask for shard in snapshot.shards] == [0, 0, 1, 1]


async def test_a_worker_of_a_group_has_its_name_and_each_subtask_the_age_of_its_checkpoint(clock):
    given = metrics()
    given["subtask"] = {**given["subtask"], "worker": "0f3a", "checkpointAgeMs": 900}
    snapshot = await LiveSnapshots(FetchersHere([MeasuredFetcher(0, given)]), clock, 60_000).snapshot()

    assert [(each.worker, each.checkpoint_age_ms) for each in snapshot.subtasks] == [("0f3a", 900)]
    assert [each.worker for each in snapshot.shards] == ["0f3a"]


async def test_a_job_whose_sink_commits_has_its_last_commit(clock):
    given = metrics()
    commit = {"committedFiles": 3, "committedBytes": 900, "committedAgeMs": 42, "uncommittedRecords": 7}
    given["subtask"] = {**given["subtask"], **commit}
    snapshot = await LiveSnapshots(FetchersHere([MeasuredFetcher(0, given)]), clock, 60_000).snapshot()

    assert [each.commit for each in snapshot.subtasks] == [CommitSnapshot(3, 900, 42, 7)]


async def test_a_job_without_a_subtask_that_responds_cannot_be_read(clock):
    with pytest.raises(RecordPublisherError, match="no subtask of the job responds"):
        await LiveSnapshots(FetchersHere([]), clock, 60_000).snapshot()


async def test_a_snapshot_is_sent_as_json(clock):
    snapshot = await LiveSnapshots(FetchersHere([MeasuredFetcher()]), clock, 60_000).snapshot()

    assert msgspec.json.decode(msgspec.json.encode(snapshot), type=JobSnapshot) == snapshot


@pytest.mark.parametrize(
    ("silent_ms", "stage", "is_idle"), [(59_999, "READING", False), (60_000, "READING", True), (60_000, "ENDED", False)]
)
async def test_a_shard_that_is_read_and_was_silent_for_the_interval_is_idle_whatever_watermarks_wait_for(
    clock, silent_ms, stage, is_idle
):
    given = metrics(silentMs=silent_ms, stage=stage, idle=False)
    snapshot = await LiveSnapshots(FetchersHere([MeasuredFetcher(0, given)]), clock, 60_000).snapshot()

    assert snapshot.shards[0].is_idle is is_idle
