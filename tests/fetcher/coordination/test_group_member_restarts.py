"""W6: a new generation, a predecessor with a higher request number, and a process that was replaced."""

import pytest

from recordpublisher.fetcher.coordination.coordinator import Coordinator
from recordpublisher.fetcher.coordination.group_member import GroupMember, MemberConfig
from recordpublisher.fetcher.coordination.heartbeat_requests import PREDECESSOR_LEAD
from recordpublisher.fetcher.coordination.watermark_tracker import SubtaskReport, SubtaskStatus

from fakes.group_member import MemberHarness


@pytest.fixture
def subtask():
    return MemberHarness.joined()


def test_a_newer_generation_is_joined_at_once(subtask):
    request = subtask.reports(5, after=1_000)
    subtask.receives(request.request_number, None, generation=60, rejection="STALE_GENERATION")

    assert subtask.reports(5).generation == 60


def test_a_response_of_an_older_generation_is_ignored(subtask):
    assert not subtask.receives(0, 99, generation=49)

    assert subtask.member.group.global_watermark == 3


def test_a_replaced_subtask_keeps_the_last_global_watermark(subtask):
    request = subtask.reports(5, after=1_000)
    subtask.receives(request.request_number, None, rejection="STALE_REQUEST", last_accepted=request.request_number + 5)

    assert subtask.member.is_replaced
    assert subtask.member.group.global_watermark == 3


def test_a_request_that_a_later_one_overtook_is_ignored(subtask):
    request = subtask.reports(5, after=1_000)
    subtask.receives(request.request_number, None, rejection="STALE_REQUEST", last_accepted=request.request_number)

    assert not subtask.member.is_replaced


def test_a_start_continues_the_numbers_of_a_predecessor_whose_clock_was_ahead():
    subtask = MemberHarness()
    subtask.reports(5)
    subtask.receives(1_000_001, None, rejection="STALE_REQUEST", last_accepted=9_000_000)

    assert subtask.reports(5).request_number == 9_000_001 + PREDECESSOR_LEAD


def test_a_start_whose_first_request_was_delayed_does_not_count_as_replaced():
    subtask = MemberHarness()
    subtask.now = 60_000
    request = subtask.reports(5)
    subtask.receives(request.request_number, None, rejection="STALE_REQUEST", last_accepted=4_000_000)

    assert not subtask.member.is_replaced
    assert subtask.reports(5).request_number == 4_000_001 + PREDECESSOR_LEAD


def test_a_restart_with_a_slow_clock_is_accepted_although_it_reaches_the_tracker_late():
    coordinator, config = Coordinator(7), MemberConfig("g", 0, 1)
    predecessor, restarted = GroupMember(config, 11_000_000, 0), GroupMember(config, 1_000_000, 100_000)
    for member, now in ((predecessor, 1_000), (restarted, 160_000), (restarted, 161_000)):
        member.report(SubtaskReport(0, SubtaskStatus.ACTIVE, 5))
        member.handle_response(coordinator.handle_heartbeat(member.prepare_request(now), now), now)

    assert not restarted.is_replaced
    assert restarted.rejection is None


def rejected_after_a_minute(last_accepted, **more):
    """A subtask whose first request reaches the tracker after a minute and is rejected."""
    subtask = MemberHarness()
    subtask.now = 60_000
    request = subtask.reports(5)
    subtask.receives(request.request_number, None, rejection="STALE_REQUEST", last_accepted=last_accepted, **more)
    return subtask


@pytest.mark.parametrize("seconds_ahead", [1, 6, 30, 59, 61, 86_400])
def test_a_process_that_joined_before_this_start_is_a_predecessor_at_any_clock_difference(seconds_ahead):
    number = 1_000_000 + seconds_ahead * 1_000_000
    subtask = rejected_after_a_minute(number, joined_ms_ago=61_000)

    assert not subtask.member.is_replaced
    assert subtask.reports(5).request_number > number


@pytest.mark.parametrize("seconds_ahead", [1, 6, 30, 59, 61, 86_400])
def test_a_process_that_joined_after_this_start_is_the_replacement_at_any_clock_difference(seconds_ahead):
    subtask = rejected_after_a_minute(1_000_000 + seconds_ahead * 1_000_000, joined_ms_ago=30_000)

    assert subtask.member.is_replaced


def test_a_replaced_start_continues_when_the_other_process_is_gone():
    number = 31_000_000
    subtask = rejected_after_a_minute(number, joined_ms_ago=30_000)
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


def test_last_requests_of_a_predecessor_that_are_handled_after_the_join_replace_nobody():  # the tracker was suspended
    subtask = MemberHarness()
    request = subtask.reports(5)
    subtask.receives(request.request_number, 3)  # joined: it has a generation
    request = subtask.reports(6, after=1_000)
    subtask.receives(
        request.request_number,
        None,
        rejection="STALE_REQUEST",
        last_accepted=9_000_000,
        joined_ms_ago=1_000,
        is_gone=True,
    )

    assert subtask.reports(6).request_number > 9_000_000
    assert not subtask.member.is_replaced


def test_a_process_suspended_since_its_start_does_not_displace_its_replacement():
    subtask = MemberHarness()
    subtask.reports(5)
    subtask.now = 60_000
    subtask.receives(1_000_001, None, rejection="STALE_REQUEST", last_accepted=9_000_000)

    assert subtask.member.is_replaced
