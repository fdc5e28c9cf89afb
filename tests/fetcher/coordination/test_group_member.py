"""W6, W7, W9a, W10: when a subtask sends what, and which responses it accepts."""

import msgspec
import pytest

from recordpublisher.fetcher.coordination.group_member import GroupMember, MemberConfig
from recordpublisher.fetcher.coordination.heartbeat_messages import HeartbeatRequest
from recordpublisher.fetcher.coordination.watermark_tracker import SubtaskReport, SubtaskStatus

from fakes.group_member import MemberHarness

ACTIVE, IDLE, LEFT = SubtaskStatus.ACTIVE, SubtaskStatus.IDLE, SubtaskStatus.LEFT


@pytest.fixture
def subtask():
    return MemberHarness.joined()


def test_the_first_report_joins():
    request = MemberHarness().reports(None)

    assert (request.generation, request.request_number, request.status, request.watermark) == (
        0,
        1_000_001,
        "ACTIVE",
        None,
    )


def test_nothing_is_sent_before_the_first_report():
    assert MemberHarness().member.prepare_request(10_000) is None


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


def test_news_waits_for_the_response_to_the_request_in_flight(subtask):
    request = subtask.reports(None, IDLE)
    assert subtask.reports(9) is None
    subtask.receives(request.request_number, 3)

    assert subtask.reports(9).watermark == 9


def test_a_leaving_subtask_reports_at_once(subtask):
    subtask.reports(None, IDLE)

    assert subtask.reports(None, LEFT).status == "LEFT"
    assert subtask.reports(None, LEFT) is None


def test_a_watermark_that_others_await_is_sent_when_it_is_reached(subtask):  # W9a
    subtask.receives(0, 3, lowest_awaited=10)
    assert subtask.reports(9) is None
    assert subtask.reports(11).watermark == 11


def test_a_held_subtask_sends_its_awaited_watermark_once(subtask):  # W9a
    subtask.member.await_watermark(8)
    assert subtask.reports(60, after=1).awaited_watermark == 8
    subtask.receives(1_000_002, 3)
    subtask.member.await_watermark(8)
    assert subtask.reports(60, after=1) is None
    assert subtask.receives(0, 8)
    subtask.member.await_watermark(8)

    assert subtask.reports(60, after=1_000).awaited_watermark is None


def test_the_global_watermark_never_falls(subtask):
    assert subtask.receives(0, 20)
    assert not subtask.receives(0, 10)
    assert not subtask.receives(0, 15, generation=60, coordinator_id=8)

    assert subtask.member.group.global_watermark == 20


@pytest.mark.parametrize("far", [2**62 + 1, 2**63 - 1, 2**100])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_request_with_any_watermark_can_be_decoded(far, sign):
    member = GroupMember(MemberConfig("g", 0, 2, timeout_ms=2**62, startup_timeout_ms=2**62), 1_000_000, 0)
    member.start_at(sign * far)
    member.await_watermark(sign * far)  # an event time less the longest lookahead
    member.report(SubtaskReport(0, ACTIVE, sign * far, sign * far))
    request = member.prepare_request(0)

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(request), type=HeartbeatRequest) == request


def test_an_awaited_watermark_too_large_for_a_message_is_sent_once(subtask):  # W9a
    subtask.member.await_watermark(2**70)
    assert subtask.reports(5) is not None
    subtask.receives(subtask.member._requests.last.request_number, 3)

    assert subtask.reports(5) is None


def test_after_a_suspension_a_request_is_sent_before_the_coordinator_counts_as_unreachable(subtask):  # W10
    subtask.reports(5, after=1_000)
    subtask.now = 100_000
    subtask.member.after_suspension(subtask.now)

    assert subtask.reports(5) is not None, "a request is due at once"
    assert subtask.member.is_reachable(109_000)
    assert not subtask.member.is_reachable(110_001)


def test_the_coordinator_is_reachable_while_its_last_response_is_recent(subtask):  # W10
    assert subtask.member.is_reachable(9_000)
    assert not subtask.member.is_reachable(10_001)
    assert not MemberHarness().member.is_reachable(0)
