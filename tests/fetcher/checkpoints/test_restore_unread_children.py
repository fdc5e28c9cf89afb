"""Children that came and went unread are data loss, as far as it can be judged (S5)."""

import pytest

from recordpublisher.fetcher.checkpoints.shard_starts import shards_with_unread_children
from recordpublisher.fetcher.checkpoints.snapshot_format import RestoredState
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.positions import SequenceNumber

from fakes.shard_entries import START, shard

ENDED = ShardState(START, SequenceNumber("5"), ended=True, arrival_ms=5)


def test_children_that_came_and_went_unread_are_a_gap():
    later = shard("z", "y")

    assert shards_with_unread_children([later], RestoredState({"s/a": ENDED}), {"s": 10}) == ["s/a"]


@pytest.mark.parametrize(
    ("listed", "more"),
    [
        ([shard("b", "a")], {}),
        ([shard("a")], {}),
        ([], {"s/b": ShardState(START, parents=("a",))}),
        ([], {"s/c": ShardState(START, tip_ms=10)}),
    ],
    ids=["child listed", "still listed", "child in the state", "the state is young"],
)
def test_children_are_not_lost_while_anything_contradicts_it(listed, more):
    assert shards_with_unread_children(listed, RestoredState({"s/a": ENDED, **more}), {"s": 10}) == []


def test_without_a_known_retention_or_any_time_children_are_not_judged():
    assert (
        shards_with_unread_children(
            [], RestoredState({"s/a": ENDED, "s/b": ShardState(START, ended=True)}), {"s": None}
        )
        == []
    )
    assert shards_with_unread_children([], RestoredState({"s/a": ShardState(START, ended=True)}), {"s": 10}) == []
