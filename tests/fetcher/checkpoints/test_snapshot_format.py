"""S5: any number of snapshots, are merged into one state of every shard."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.fetcher.checkpoints.snapshot_format import (
    RestoredState,
    merge_snapshots,
    overlay,
    snapshot_to_json,
)
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.positions import SequenceNumber

from fakes.shard_entries import START


def at(sequence: int | None, sub: int = -1, ended: bool = False) -> ShardState:
    return ShardState(START, None if sequence is None else SequenceNumber(str(sequence), sub), ended=ended)


def snapshot(shards, generation=1, pinned=None):
    return snapshot_to_json(shards, pinned, generation)


POSITIONS = st.builds(at, st.none() | st.integers(0, 30), st.integers(-1, 3))
PLACED = st.dictionaries(st.sampled_from(["s/a", "s/b", "s/c", "t/a"]), POSITIONS)


def rank(state: ShardState):
    if state.position is None:
        return (-1, 0)
    sub = state.position.sub_sequence
    return (int(state.position.sequence), 1000 if sub < 0 else sub)


@given(st.lists(st.tuples(st.integers(1, 3), PLACED), max_size=6), st.randoms(use_true_random=False))
def test_the_newest_generation_takes_precedence_then_the_furthest_position_in_any_order(parts, random):
    snapshots = [snapshot(shards, generation) for generation, shards in parts]
    random.shuffle(snapshots)
    restored = merge_snapshots(snapshots)

    for key in {key for _, shards in parts for key in shards}:
        newest = max(generation for generation, shards in parts if key in shards)
        states = [shards[key] for generation, shards in parts if key in shards and generation == newest]
        assert rank(restored.shards[key]) == max(map(rank, states))
    assert set(restored.shards) == {key for _, shards in parts for key in shards}


@given(PLACED, st.integers(1, 7), st.integers(0, 1000))
def test_any_split_over_snapshots_gives_the_same_state(shards, parallelism, seed):
    parts = [
        snapshot(
            {key: state for key, state in shards.items() if (len(key) + seed + ord(key[-1])) % parallelism == n},
        )
        for n in range(parallelism)
    ]

    assert merge_snapshots(parts).shards == shards


def test_an_ended_shard_is_further_than_any_position():
    assert merge_snapshots([snapshot({"s/a": at(9)}), snapshot({"s/a": at(3, ended=True)})]).shards["s/a"].ended


def test_an_older_generation_does_not_count_even_with_a_further_position():
    assert merge_snapshots([snapshot({"s/a": at(90)}, 1), snapshot({"s/a": at(5)}, 2)]).shards["s/a"] == at(5)


def test_the_earliest_pinned_start_is_kept():  # P3
    assert merge_snapshots([snapshot({}, pinned=9), snapshot({}), snapshot({}, pinned=5)]).pinned_ms == 5


def test_no_snapshots_merge_into_an_empty_state():
    assert merge_snapshots([]) == RestoredState()


def test_sequence_numbers_that_are_not_numbers_are_ordered_by_the_factory():
    parts = [snapshot({"s/a": ShardState(START, SequenceNumber(each))}) for each in ("x-10", "x-9")]

    assert merge_snapshots(parts, lambda each: int(each[2:])).shards["s/a"].position.sequence == "x-10"


def test_the_state_of_a_sink_takes_precedence_shard_by_shard():
    below, above = (
        merge_snapshots([snapshot({"s/a": at(9), "s/b": at(1)}, 3)]),
        merge_snapshots([snapshot({"s/a": at(2)}, 1, pinned=7)]),
    )

    assert overlay(below, above) == RestoredState({"s/a": at(2), "s/b": at(1)}, 7, 3)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({}, "not a snapshot"),
        ({"version": "x", "generation": 1, "shards": {}}, "not a snapshot"),
        (
            {"version": 1, "generation": 1, "shards": {}},
            "version 1, this release reads version 2 only: start the job without",
        ),
        ({"version": 3, "generation": 1, "shards": {}}, "version 3, this release reads version 2 only: upgrade"),
        ({"version": 2, "generation": 1, "shards": []}, "Expected `object`, got `array` - at `\\$.shards`"),
        ({"version": 2, "generation": 1, "shards": {"s/a": {}}}, "cannot be read"),
        (snapshot({"s/a": ShardState(START, SequenceNumber("x"))}), "cannot order"),
        *[(snapshot({key: ShardState(START, SequenceNumber("1"))}), "cannot be read") for key in ("a", "/a", "s/", "")],
    ],
)
def test_an_unreadable_snapshot_is_a_state_error(wrong, message):
    with pytest.raises(StateError, match=message):
        merge_snapshots([wrong, wrong])
