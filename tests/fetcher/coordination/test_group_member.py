"""W6, W7, W9a, W10: when a subtask sends what, and what a response changes."""

import msgspec
import pytest

from recordpublisher.fetcher.coordination.coordinator import Coordinator
from recordpublisher.fetcher.coordination.group_member import GroupMember, MemberConfig
from recordpublisher.fetcher.coordination.heartbeat_messages import (
    MAX_KEY_CHARACTERS,
    HeartbeatRequest,
    HeartbeatResponse,
)
from recordpublisher.fetcher.coordination.heartbeat_requests import PREDECESSOR_LEAD
from recordpublisher.fetcher.coordination.watermark_tracker import SubtaskReport, SubtaskStatus

ACTIVE, IDLE, LEFT = SubtaskStatus.ACTIVE, SubtaskStatus.IDLE, SubtaskStatus.LEFT


class Subtask:
    """A group member; the test plays the coordinator."""

    def __init__(self):
        self.member = GroupMember(MemberConfig("g", 0, 2), 1_000_000, 0)
        self.now = 0

    def reports(self, watermark, status=ACTIVE, after=0):
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

    def joins(self, watermark=5):
        request = self.reports(watermark)
        self.receives(request.request_number, 3)
        return request


@pytest.fixture
def subtask():
    made = Subtask()
    made.joins()
    return made


def test_the_first_report_joins():
    request = Subtask().reports(None)

    assert (request.generation, request.request_number, request.status, request.watermark) == (
        0,
        1_000_001,
        "ACTIVE",
        None,
    )


def test_nothing_is_sent_before_the_first_report():
    assert Subtask().member.prepare_request(10_000) is None


def test_a_higher_watermark_waits_for_the_heartbeat(subtask):  # W7
    assert subtask.reports(6) is None
    request = subtask.reports(7, after=1_000)

    assert (request.watermark, request.global_watermark, request.generation) == (7, 3, 50)


def test_an_idle_subtask_sends_heartbeats_too(subtask):  # FLINK-29099
    assert subtask.reports(None, IDLE).status == "IDLE"
    assert subtask.reports(None, IDLE, after=1_000) is not None
    assert subtask.reports(None, IDLE, after=1_000) is not None


@pytest.mark.parametrize(("watermark", "status"), [(None, IDLE), (None, ACTIVE), (4, ACTIVE)])
def test_what_lowers_or_frees_the_minimum_is_sent_at_once(subtask, watermark, status):
    assert subtask.reports(watermark, status) is not None


def test_news_wait_for_the_response_to_the_request_in_flight(subtask):
    request = subtask.reports(None, IDLE)
    assert subtask.reports(9) is None
    subtask.receives(request.request_number, 3)

    assert subtask.reports(9).watermark == 9


def test_leaving_does_not_wait(subtask):
    subtask.reports(None, IDLE)

    assert subtask.reports(None, LEFT).status == "LEFT"
    assert subtask.reports(None, LEFT) is None


def test_a_watermark_that_others_await_is_sent_when_it_is_reached(subtask):  # W9a
    subtask.receives(0, 3, lowest_awaited=10)
    assert subtask.reports(9) is None
    assert subtask.reports(11).watermark == 11


def test_a_held_subtask_sends_what_it_awaits_once(subtask):  # W9a
    subtask.member.await_watermark(8)
    assert subtask.reports(60, after=1).awaited_watermark == 8
    subtask.receives(1_000_002, 3)
    subtask.member.await_watermark(8)
    assert subtask.reports(60, after=1) is None
    assert subtask.receives(0, 8)
    subtask.member.await_watermark(8)

    assert subtask.reports(60, after=1_000).awaited_watermark is None


def test_the_value_never_goes_back(subtask):
    assert subtask.receives(0, 20)
    assert not subtask.receives(0, 10)
    assert not subtask.receives(0, 15, generation=60, coordinator_id=8)

    assert subtask.member.view.global_watermark == 20


def test_a_response_of_an_older_generation_is_ignored(subtask):
    assert not subtask.receives(0, 99, generation=49)

    assert subtask.member.view.global_watermark == 3


def test_another_coordinator_gets_all_shards_again(subtask):  # S2
    subtask.member.shards.announce(["s/a"])
    assert subtask.reports(5).finished_shards == ("s/a",)
    subtask.receives(1_000_002, 3)
    assert subtask.reports(5, after=1_000).finished_shards == ()
    subtask.receives(1_000_003, 3, coordinator_id=8)

    assert subtask.reports(5).finished_shards == ("s/a",)


def test_shards_are_announced_until_a_request_with_them_is_confirmed(subtask):  # S2
    subtask.member.shards.announce(["s/a"])
    first = subtask.reports(5)
    subtask.member.shards.announce(["s/b"])
    assert subtask.reports(5, after=1_000).finished_shards == ("s/a", "s/b"), "the first may be lost"
    subtask.receives(first.request_number, 3)

    assert subtask.reports(5, after=1_000).finished_shards == ("s/b",)


def test_many_shards_are_split_over_several_requests(subtask):
    keys = [f"orders/shardId-{number:012}" for number in range(3_000)]
    subtask.member.shards.announce(keys)
    sent = []
    while (request := subtask.reports(5)) is not None:
        assert sum(map(len, request.finished_shards)) <= MAX_KEY_CHARACTERS
        sent += request.finished_shards
        subtask.receives(request.request_number, 3)

    assert sent == keys


def test_a_shard_is_queried_until_it_is_finished(subtask):
    subtask.member.shards.query("s/a")
    assert not subtask.member.shards.is_finished("s/a")
    request = subtask.reports(5, after=1_000)
    assert request.queried_shards == ("s/a",)
    assert subtask.receives(request.request_number, 3, finished_shards=("s/a",))

    assert subtask.member.shards.is_finished("s/a")
    assert subtask.reports(5, after=1_000).queried_shards == ()


def test_a_newer_generation_is_joined_at_once(subtask):
    request = subtask.reports(5, after=1_000)
    subtask.receives(request.request_number, None, generation=60, rejection="STALE_GENERATION")

    assert subtask.reports(5).generation == 60


def test_a_replaced_subtask_keeps_its_value(subtask):
    request = subtask.reports(5, after=1_000)
    subtask.receives(request.request_number, None, rejection="STALE_REQUEST", last_accepted=request.request_number + 5)

    assert subtask.member.is_replaced
    assert subtask.member.view.global_watermark == 3


def test_a_request_that_a_later_one_overtook_is_ignored(subtask):
    request = subtask.reports(5, after=1_000)
    subtask.receives(request.request_number, None, rejection="STALE_REQUEST", last_accepted=request.request_number)

    assert not subtask.member.is_replaced


def test_a_start_counts_on_from_a_predecessor_whose_clock_was_ahead():
    subtask = Subtask()
    subtask.reports(5)
    subtask.receives(1_000_001, None, rejection="STALE_REQUEST", last_accepted=9_000_000)

    assert subtask.reports(5).request_number == 9_000_001 + PREDECESSOR_LEAD


def test_a_start_whose_first_request_was_delayed_does_not_count_as_replaced():
    subtask = Subtask()
    subtask.now = 60_000
    request = subtask.reports(5)
    subtask.receives(request.request_number, None, rejection="STALE_REQUEST", last_accepted=4_000_000)

    assert not subtask.member.is_replaced
    assert subtask.reports(5).request_number == 4_000_001 + PREDECESSOR_LEAD


def test_a_restart_whose_clock_is_behind_and_that_reaches_the_tracker_late_is_accepted():
    coordinator, config = Coordinator(7), MemberConfig("g", 0, 1)
    predecessor, restarted = GroupMember(config, 11_000_000, 0), GroupMember(config, 1_000_000, 100_000)
    for member, now in ((predecessor, 1_000), (restarted, 160_000), (restarted, 161_000)):
        member.report(SubtaskReport(0, ACTIVE, 5))
        member.handle_response(coordinator.handle_heartbeat(member.prepare_request(now), now), now)

    assert not restarted.is_replaced
    assert restarted.rejection is None


def rejected_late(last_accepted, **more):
    """A start that reaches the tracker after a minute, and that has not been accepted."""
    subtask = Subtask()
    subtask.now = 60_000
    request = subtask.reports(5)
    subtask.receives(request.request_number, None, rejection="STALE_REQUEST", last_accepted=last_accepted, **more)
    return subtask


@pytest.mark.parametrize("seconds_ahead", [1, 6, 30, 59, 61, 86_400])
def test_one_that_joined_before_this_start_is_a_predecessor_whatever_the_clocks_say(seconds_ahead):
    number = 1_000_000 + seconds_ahead * 1_000_000
    subtask = rejected_late(number, joined_ms_ago=61_000)

    assert not subtask.member.is_replaced
    assert subtask.reports(5).request_number > number


@pytest.mark.parametrize("seconds_ahead", [1, 6, 30, 59, 61, 86_400])
def test_one_that_joined_after_this_start_is_the_replacement_whatever_the_clocks_say(seconds_ahead):
    subtask = rejected_late(1_000_000 + seconds_ahead * 1_000_000, joined_ms_ago=30_000)

    assert subtask.member.is_replaced


def test_a_start_that_counts_as_replaced_goes_on_when_the_other_process_is_gone():
    number = 31_000_000
    subtask = rejected_late(number, joined_ms_ago=30_000)
    request = subtask.reports(5, after=1_000)
    subtask.receives(
        request.request_number,
        None,
        rejection="STALE_REQUEST",
        last_accepted=number,
        joined_ms_ago=31_000,
        is_gone=True,
    )
    request = subtask.reports(5)
    subtask.receives(request.request_number, 3)

    assert request.request_number > number
    assert not subtask.member.is_replaced


@pytest.mark.parametrize("far", [2**62 + 1, 2**63 - 1, 2**100])
@pytest.mark.parametrize("sign", [1, -1])
def test_whatever_is_set_a_request_can_be_read(far, sign):
    member = GroupMember(MemberConfig("g", 0, 2, timeout_ms=2**62, startup_timeout_ms=2**62), 1_000_000, 0)
    member.start_at(sign * far)
    member.await_watermark(sign * far)  # an event time less the longest lookahead
    member.report(SubtaskReport(0, ACTIVE, sign * far, sign * far))
    request = member.prepare_request(0)

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=HeartbeatRequest) == request


def test_an_awaited_watermark_beyond_every_message_is_sent_once(subtask):  # W9a
    subtask.member.await_watermark(2**70)
    assert subtask.reports(5) is not None
    subtask.receives(subtask.member._requests.last.request_number, 3)

    assert subtask.reports(5) is None


def test_a_key_that_is_too_long_for_a_message_is_ignored(subtask):
    subtask.member.shards.announce(["x" * MAX_KEY_CHARACTERS, "s/a"])
    subtask.member.shards.query("y" * MAX_KEY_CHARACTERS)
    request = subtask.reports(5, after=1_000)

    assert (request.finished_shards, request.queried_shards) == (("s/a",), ())


def test_one_that_was_suspended_since_its_start_does_not_displace_its_replacement():
    subtask = Subtask()
    subtask.reports(5)
    subtask.now = 60_000
    subtask.receives(1_000_001, None, rejection="STALE_REQUEST", last_accepted=9_000_000)

    assert subtask.member.is_replaced


def test_after_a_suspension_the_coordinator_is_asked_before_it_counts_as_unreachable(subtask):  # W10
    subtask.reports(5, after=1_000)
    subtask.now = 100_000
    subtask.member.after_suspension(subtask.now)

    assert subtask.reports(5) is not None, "it asks at once"
    assert subtask.member.is_reachable(109_000)
    assert not subtask.member.is_reachable(110_001)


def test_it_is_answering_while_it_was_heard_of_lately(subtask):  # W10
    assert subtask.member.is_reachable(9_000)
    assert not subtask.member.is_reachable(10_001)
    assert not Subtask().member.is_reachable(0)
