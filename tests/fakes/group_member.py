"""A group member without a coordinator: tests set its reports and the responses that it receives."""

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
