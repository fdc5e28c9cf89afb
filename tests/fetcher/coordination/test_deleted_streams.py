"""Announcements about a stream that is deleted count no more: children in a new one of its name wait for their parents (S2)."""

import pytest

from recordpublisher.fetcher.coordination.coordinator import Coordinator
from recordpublisher.fetcher.coordination.group_member import GroupMember, MemberConfig
from recordpublisher.fetcher.coordination.in_process_tracker import InProcessTracker
from recordpublisher.fetcher.coordination.watermark_tracker import SubtaskReport, SubtaskStatus
from recordpublisher.fetcher.shards.discovery import ShardDiscovery
from recordpublisher.fetcher.shards.missing_shards import MissingShards
from recordpublisher.fetcher.shards.owned_shards import OwnedShards
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.shards.shard_table import ShardTable
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.shards import Shard

PARENT, CHILD = Shard("t", "shardId-000000000000"), Shard("t", "shardId-000000000001", ("shardId-000000000000",))
FRESH = ShardState(StartingPosition.trim_horizon())


def subtask_with(tracker, own):
    missing = MissingShards()
    table, discovery = ShardTable(tracker.is_finished, missing.is_expired), ShardDiscovery(None, ("t",), 1000)
    is_ours = lambda shard: shard.key == own.key  # noqa: E731
    return table, discovery, OwnedShards(table, discovery, missing, is_ours, SystemClock(), tracker.forget_stream)


def test_a_child_waits_for_its_parent_in_a_new_stream_of_the_same_name():
    tracker = InProcessTracker(parallelism=2)
    subtasks = [subtask_with(tracker, shard) for shard in (PARENT, CHILD)]
    (_, _, _), (table, _, _) = subtasks
    states = {PARENT.key: FRESH, CHILD.key: FRESH}
    for _, _, owned in subtasks:
        owned.add_stream([PARENT, CHILD], states, {})
    tracker.announce_finished({PARENT.key: 1_000})  # the other subtask has stored its end
    assert table.may_start(table[CHILD.key])

    for _, discovery, owned in subtasks:
        discovery.deleted.add("t")
        owned.remove_stream("t")
        owned.add_stream([PARENT, CHILD], states, {})

    assert not table.may_start(table[CHILD.key])
    assert tracker.final_watermark(PARENT.key) is None


class Group:
    """Two members and their coordinator; each exchange carries a request and its response."""

    def __init__(self):
        self.coordinator, self.now = Coordinator(1), 0.0
        self.members = [GroupMember(MemberConfig("job", subtask, 2), 1, 0.0) for subtask in (0, 1)]
        self.exchange(0, 1, 0, 1)  # each is known to be alive after the start of the other

    def exchange(self, *subtasks, is_answered=True):
        for subtask in subtasks:
            self.now += 2_000
            member = self.members[subtask]
            member.report(SubtaskReport(subtask, SubtaskStatus.ACTIVE, 1))
            response = self.coordinator.handle_heartbeat(member.prepare_request(self.now), self.now)
            if is_answered:
                member.handle_response(response, self.now)

    def is_finished(self, subtask):
        """Whether the subtask knows that the parent is finished, once it has asked."""
        self.members[subtask].shards.query(PARENT.key)
        self.exchange(subtask)
        return self.members[subtask].shards.is_finished(PARENT.key)

    def announce(self):
        self.members[0].shards.announce([PARENT.key])


@pytest.mark.parametrize("is_answered", [True, False])
def test_an_announcement_over_the_network_is_withdrawn_and_may_be_made_anew(is_answered):
    group = Group()
    group.announce()
    group.exchange(0)
    assert group.is_finished(1)

    for member in group.members:
        member.shards.forget_stream("t", [PARENT.key] if member is group.members[0] else [CHILD.key])
    group.exchange(0, is_answered=is_answered)
    assert not group.is_finished(1)
    group.announce()  # of the new stream; what was not answered is sent again before it
    group.exchange(0)
    assert group.is_finished(1)


def test_a_subtask_that_learns_late_of_a_deletion_withdraws_its_own_shards_only():
    group = Group()
    group.announce()  # subtask 0 has learned of it, and has finished the shard of the new stream
    group.exchange(0)
    group.members[1].shards.forget_stream("t", [CHILD.key])
    assert group.is_finished(1)
