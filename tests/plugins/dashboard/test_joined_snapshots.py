"""The streams of one job in one snapshot."""

from recordpublisher.plugins.dashboard.stored_snapshots import JoinedSnapshots
from recordpublisher.plugins.lag.job_snapshot import JobSnapshot, ShardSnapshot, SubtaskSnapshot

from fakes.shard_entries import StoppedClock


class Source:
    def __init__(self, snapshot):
        self.given = snapshot

    async def snapshot(self):
        return self.given


async def joined(*snapshots):
    return await JoinedSnapshots([Source(each) for each in snapshots], StoppedClock(100.0), 5).snapshot()


def of_stream(name, *subtasks):
    return JobSnapshot(time_ms=1, shards=[ShardSnapshot(stream=name, shard="a")], subtasks=[*subtasks] or None)


async def test_a_subtask_of_several_streams_is_shown_once_with_its_newest_checkpoint():
    found = await joined(
        of_stream("orders", SubtaskSnapshot(1), SubtaskSnapshot(0, checkpoint_age_ms=900)),
        of_stream("returns", SubtaskSnapshot(0, checkpoint_age_ms=700), SubtaskSnapshot(1, checkpoint_age_ms=50)),
    )

    assert [(each.subtask, each.checkpoint_age_ms) for each in found.subtasks] == [(0, 700), (1, 50)]
    assert [each.stream for each in found.shards] == ["orders", "returns"]


async def test_without_positions_no_subtask_is_known():
    assert (await joined(of_stream("orders"))).subtasks is None


async def test_the_job_has_its_name():
    source = Source(of_stream("orders"))
    assert (
        await JoinedSnapshots([source], StoppedClock(100.0), 5, "orders-to-lake").snapshot()
    ).job == "orders-to-lake"
