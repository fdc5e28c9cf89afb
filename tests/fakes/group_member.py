"""Group members: one without a coordinator, and those of a whole job. Tests set what they report."""

from recordpublisher.fetcher.coordination.coordinator import Coordinator
from recordpublisher.fetcher.coordination.group_member import GroupMember, MemberConfig
from recordpublisher.fetcher.coordination.heartbeat_messages import HeartbeatResponse
from recordpublisher.fetcher.coordination.watermark_tracker import SubtaskReport, SubtaskStatus


class MemberHarness:
    """A group member; a test sends the coordinator's responses."""

    def __init__(self):
        self.member = GroupMember(MemberConfig("g", 0, 2), 1_000_000, 0)
        self.now = 0

    def reports(self, watermark, status=SubtaskStatus.ACTIVE, after=0):
        self.now += after
        self.member.report(SubtaskReport(0, status, watermark))
        return self.member.prepare_request(self.now)

    def receives(self, number=0, value=None, **more):
        return self.member.handle_response(
            HeartbeatResponse(
                **{"coordinator_id": 7, "generation": 50, "request_number": number, "global_watermark": value, **more}
            ),
            self.now,
        )

    @classmethod
    def joined(cls):
        """One whose first request was accepted."""
        made = cls()
        made.receives(made.reports(5).request_number, 3)
        return made


class CoordinatedJob:
    """Subtasks over one coordinator; each message arrives at once. A process that is not called sends nothing."""

    def __init__(self, parallelism=2):
        self.parallelism = parallelism
        self.coordinator = Coordinator(7)
        self.now = 0.0
        self.starts = 0
        self.members = {}

    def start(self, subtask, restored=None, watermark=5):
        self.starts += 1
        config = MemberConfig("g", subtask, self.parallelism)
        self.members[subtask] = GroupMember(config, self.starts * 1_000_000, self.now)
        self.members[subtask].start_at(restored)
        self.report(subtask, watermark)
        self.beat(subtask)

    def report(self, subtask, watermark):
        self.members[subtask].report(SubtaskReport(subtask, SubtaskStatus.ACTIVE, watermark))

    def beat(self, *subtasks, after=1_000):
        self.now += after
        for subtask in subtasks:
            member = self.members[subtask]
            response = self.coordinator.handle_heartbeat(member.prepare_request(self.now), self.now)
            member.handle_response(response, self.now)

    def known_watermark(self, subtask):
        return self.members[subtask].group.global_watermark

    def is_finished(self, subtask, shard):
        self.members[subtask].shards.query(shard)
        self.beat(subtask)
        return self.members[subtask].shards.is_finished(shard)
