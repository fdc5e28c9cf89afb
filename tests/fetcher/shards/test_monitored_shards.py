"""A2: which subtask monitors which shards of others, and how they are judged."""

import pytest

from recordpublisher.fetcher.shards.assignment import missing_reader_reason, monitor_of, monitored_shards

from fakes.shard_entries import shard

SHARDS = [shard(str(number)) for number in range(4)]


def monitored_by(subtask, parallelism, own=()):
    return sorted(monitored_shards(SHARDS, own, lambda each, _: int(each.shard_id), subtask, parallelism))


def test_subtask_0_monitors_those_of_all_others_and_subtask_1_those_of_subtask_0():
    assert monitored_by(0, 4, own={"s/0"}) == ["s/1", "s/2", "s/3"]
    assert monitored_by(1, 4, own={"s/1"}) == ["s/0"]
    assert monitored_by(2, 4, own={"s/2"}) == []


@pytest.mark.parametrize("parallelism", range(1, 6))
def test_every_shard_is_monitored_by_one_existing_subtask(parallelism):
    assert all(0 <= monitor_of(owner, parallelism) < parallelism for owner in range(-2, 9))


def test_a_single_subtask_monitors_all_shards_that_it_does_not_own():
    assert monitored_by(0, 1, own={"s/0"}) == ["s/1", "s/2", "s/3"]


def test_a_shard_without_an_owner_is_judged_with_and_without_a_store():
    for has_store in (True, False):
        assert missing_reader_reason(7, 4, (), (), has_store) == "no subtask owns it: it was assigned to subtask 7 of 4"
        assert missing_reader_reason(2, 4, [2], (), has_store) == "its owner, subtask 2, has not joined"


def test_a_shard_with_an_owner_is_judged_by_what_that_one_stores():
    assert missing_reader_reason(2, 4, (), (), True) == "its owner, subtask 2, stores no progress"
    assert missing_reader_reason(2, 4, (), (2,), True) == "its owner, subtask 2, has timed out"
    assert missing_reader_reason(2, 4, (), (2,), False) is None
