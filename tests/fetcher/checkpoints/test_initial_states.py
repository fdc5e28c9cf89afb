"""Where each listed shard starts, and which records are lost (P3, S3, S5)."""

import pytest

from recordpublisher.fetcher.checkpoints.shard_starts import (
    Starts,
    data_loss_error,
    initial_states,
    shards_no_longer_listed,
    shards_past_retention,
    shards_read_long_ago,
)
from recordpublisher.fetcher.checkpoints.snapshot_format import RestoredState
from recordpublisher.fetcher.shards.retention_check import RetentionGap
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.shards import HashRange, Shard

from fakes.shard_entries import START, shard

PINNED = StartingPosition.at_timestamp(1_000)
KNOWN = ShardState(START, SequenceNumber("5"))


def test_a_fresh_job_starts_every_shard_at_its_start():
    assert initial_states([shard("a"), shard("b", "a")], RestoredState(), Starts(PINNED)) == {
        "s/a": ShardState(PINNED),
        "s/b": ShardState(PINNED),
    }


def test_a_shard_with_state_resumes():
    assert initial_states([shard("a")], RestoredState({"s/a": KNOWN}), Starts(PINNED))["s/a"] is KNOWN


def test_a_descendant_starts_at_trim_horizon():
    states = initial_states(
        [shard("a"), shard("b", "a"), shard("c", "b")], RestoredState({"s/a": KNOWN}), Starts(PINNED)
    )

    assert states["s/b"] == states["s/c"] == ShardState(StartingPosition.trim_horizon())


def test_an_ancestor_that_the_state_dropped_is_finished():
    listed = [shard("g"), shard("p", "g"), shard("q"), shard("a", "p", "q")]
    states = initial_states(listed, RestoredState({"s/a": KNOWN}), Starts(PINNED))

    assert [states[f"s/{each}"].ended for each in "gpqa"] == [True, True, True, False]


def test_an_archived_ancestor_is_finished_although_the_shards_between_are_not_archived():
    old = Shard("s", "shardId-000000000000", closed=True, is_unlisted=True)
    young = Shard("s", "shardId-000000000005", ("shardId-000000000003",), HashRange(0, 9))
    states = initial_states([old, young], RestoredState({young.key: KNOWN}), Starts(PINNED))

    assert [states[each.key].ended for each in (old, young)] == [True, False]


def test_a_waiting_shard_does_not_mean_that_its_parents_are_finished():
    """The owner of `q` had not discovered it yet when the owner of their child had: counted as finished, `q` would be lost."""
    listed = [shard("p"), shard("q"), shard("c", "p", "q")]
    ended, waiting = ShardState(START, KNOWN.position, ended=True), ShardState(START, waiting=True)
    states = initial_states(listed, RestoredState({"s/p": ended, "s/c": waiting}), Starts(PINNED))

    assert states["s/q"] == ShardState(StartingPosition.trim_horizon())


def test_a_new_stream_starts_at_the_pinned_start():
    states = initial_states([shard("a"), Shard("t", "a")], RestoredState({"s/a": KNOWN}), Starts(PINNED))

    assert states["t/a"] == ShardState(PINNED)


def test_a_shard_that_vanished_unread_is_a_gap():
    restored = RestoredState({"s/a": KNOWN, "s/b": ShardState(START, ended=True), "t/a": KNOWN})

    assert shards_no_longer_listed([], restored, ["s"]) == ["s/a"]


DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("arrival", "tip", "is_old"),
    [(5, None, True), (5, 9, True), (5, DAY_MS, False), (DAY_MS, 3, False), (None, 9, True), (None, None, False)],
)
def test_only_where_position_and_tip_are_almost_a_day_old_anything_is_asked(arrival, tip, is_old):
    restored = RestoredState({"s/a": ShardState(START, SequenceNumber("5"), arrival_ms=arrival, tip_ms=tip)})

    assert shards_read_long_ago(restored, DAY_MS) == ({"s/a"} if is_old else set())


class Asked:
    """A check that finds the same everywhere."""

    def __init__(self, gap):
        self.gap, self.positions = gap, []

    async def gap_after(self, shard, position, seen_ms):
        self.positions.append((shard.key, position, seen_ms))
        return self.gap


@pytest.mark.parametrize("gap", list(RetentionGap))
async def test_only_what_was_surely_lost_is_past_retention(gap):
    asked, old = Asked(gap), ShardState(START, SequenceNumber("5"), arrival_ms=1, tip_ms=3)

    lost = await shards_past_retention([shard("a")], RestoredState({"s/a": old}), asked)

    assert lost == (["s/a"] if gap is RetentionGap.LOST else [])
    assert asked.positions == [("s/a", SequenceNumber("5"), 3)]


async def test_an_ended_shard_has_no_gap():
    ended = RestoredState({"s/a": ShardState(START, ended=True, arrival_ms=1)})

    assert await shards_past_retention([shard("a")], ended, Asked(RetentionGap.LOST)) == []


def test_the_error_names_the_gap_and_the_way_out():
    error = data_loss_error(["s/a"], RestoredState({"s/a": KNOWN}))

    assert "s/a after 5" in str(error)
    assert "flink.state.dataloss=CONTINUE" in str(error)


def test_an_ancestor_of_a_shard_that_only_waits_is_not_finished():  # S5: its owner may have stored nothing yet
    waiting = ShardState(StartingPosition.trim_horizon(), parents=("p",), waiting=True)
    states = initial_states([shard("p"), shard("a", "p")], RestoredState({"s/a": waiting}), Starts(PINNED))

    assert not states["s/p"].ended


def test_an_ancestor_of_an_empty_shard_that_was_read_is_finished():  # S5
    read = ShardState(StartingPosition.trim_horizon(), continuation="5", parents=("p",))
    states = initial_states([shard("p"), shard("a", "p")], RestoredState({"s/a": read}), Starts(PINNED))

    assert states["s/p"].ended


def test_a_child_begins_at_the_lowest_watermark_of_its_ended_parents():  # W5
    ended = [ShardState(START, SequenceNumber("5"), watermark=at, ended=True) for at in (30, 20)]
    states = initial_states(
        [shard("p"), shard("q"), shard("a", "p", "q")], RestoredState({"s/p": ended[0], "s/q": ended[1]}), PINNED
    )

    assert states["s/a"].watermark == 20


@pytest.mark.parametrize("is_listed", [True, False])
def test_a_child_that_was_never_read_began_after_its_parents_were_known_to_be_open(is_listed):  # S5
    ended = {f"s/{name}": ShardState(START, ended=True, seen_ms=seen_ms) for name, seen_ms in (("a", 7), ("b", 5))}
    listed = [shard("c", "a", "b"), *([shard("a"), shard("b")] if is_listed else [])]
    states = initial_states(listed, RestoredState({**ended, "s/c": ShardState(START, waiting=True)}), Starts(PINNED))

    assert states["s/c"].seen_ms == 7


def test_a_shard_that_was_never_read_and_is_old_is_asked_about():
    states = RestoredState({"s/a": ShardState(START, seen_ms=1), "s/b": ShardState(START)})

    assert shards_read_long_ago(states, 10**12) == {"s/a"}
