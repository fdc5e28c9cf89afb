"""S2: which finished shards a subtask announces, which it queries, and until when."""

import pytest

from recordpublisher.fetcher.coordination.heartbeat_messages import MAX_KEY_CHARACTERS

from fakes.group_member import MemberHarness


@pytest.fixture
def subtask():
    return MemberHarness.joined()


def test_a_restarted_coordinator_gets_all_announcements_again(subtask):  # S2
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
    assert subtask.reports(5, after=1_000).finished_shards == ("s/a", "s/b"), "the first request may be lost"
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


def test_a_key_that_is_too_long_for_a_message_is_ignored(subtask):
    subtask.member.shards.announce(["x" * MAX_KEY_CHARACTERS, "s/a"])
    subtask.member.shards.query("y" * MAX_KEY_CHARACTERS)
    request = subtask.reports(5, after=1_000)

    assert (request.finished_shards, request.queried_shards) == (("s/a",), ())
