"""E6: a plan settles within two steps, moves a shard at most once for a change, and none without one."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.fetcher.leases.planning import (
    MAX_LEVEL,
    MIN_DIFFERENCE,
    StatedLoadLevels,
    balanced_owners,
    next_load_level,
    weight,
)

WORKERS = ["a", "b", "c", "d", "e", "f"]


@st.composite
def groups(draw):
    """Weights by shard, and the workers."""
    levels = draw(st.lists(st.integers(0, MAX_LEVEL) | st.just(0) | st.integers(0, 3), max_size=30))
    return {f"s{number:02}": weight(level) for number, level in enumerate(levels)}, WORKERS[: draw(st.integers(1, 6))]


def shares_of(owners, weights, workers):
    return {worker: sum(weights[shard] for shard, owner in owners.items() if owner == worker) for worker in workers}


def moves(before, after):
    return {shard for shard, owner in before.items() if owner is not None and after[shard] != owner}


@given(groups())
def test_free_shards_are_all_given_to_somebody(group):
    weights, workers = group
    planned = balanced_owners(dict.fromkeys(weights), weights, workers)
    assert planned.keys() == weights.keys()
    assert set(planned.values()) <= set(workers)


@given(groups(), st.integers(0, 2**32).map(Random))
def test_a_plan_for_its_own_result_moves_nothing(group, random):
    weights, workers = group
    owners = {shard: random.choice([None, *workers]) for shard in weights}
    planned = balanced_owners(owners, weights, workers)
    assert balanced_owners(planned, weights, workers) == planned


@given(groups(), st.integers(0, 2**32).map(Random))
def test_no_shard_is_left_whose_move_would_be_worth_it(group, random):
    weights, workers = group
    owners = {shard: random.choice(workers) for shard in weights}
    planned = balanced_owners(owners, weights, workers)
    shares = shares_of(planned, weights, workers)
    low = min(shares.values())
    for shard, owner in planned.items():
        difference = shares[owner] - low
        gain = min(weights[shard], difference - weights[shard])
        assert difference <= MIN_DIFFERENCE * shares[owner] or gain * 2 <= weights[shard]


@given(groups(), st.integers(0, 2**32).map(Random))
def test_a_change_moves_each_shard_at_most_once_whatever_the_order_of_the_moves(group, random):
    """Somebody joins or leaves. Then the planned shards move one at a time, and everybody plans anew after each of them."""
    weights, workers = group
    owners = balanced_owners(dict.fromkeys(weights), weights, workers)
    if len(workers) > 1 and random.random() < 0.5:
        workers = workers[:-1]
        owners = {shard: owner if owner in workers else None for shard, owner in owners.items()}
    else:
        workers = [*workers, "new"]
    moved, released = set(), set()
    for _ in range(200):
        current = {shard: None if shard in released else owner for shard, owner in owners.items()}
        planned = balanced_owners(current, weights, workers)
        to_release = sorted(moves(current, planned))
        to_take = sorted(shard for shard, owner in current.items() if owner is None)
        if not to_release and not to_take:
            break
        shard = random.choice(to_release + to_take)
        if shard in to_release:
            released.add(shard)
        else:
            if owners[shard] is not None:
                assert shard not in moved
                moved.add(shard)
            released.discard(shard)
            owners = {**owners, shard: planned[shard]}
    else:
        raise AssertionError("shards still move")


def test_equal_shards_are_shared_by_number():
    weights = {f"s{number:03}": weight(0) for number in range(100)}
    owners = dict.fromkeys(weights)
    for count in range(1, 7):
        owners = balanced_owners(owners, weights, WORKERS[:count])
        shares = shares_of(owners, weights, WORKERS[:count]).values()
        assert max(shares) - min(shares) <= max(weight(0), MIN_DIFFERENCE * max(shares))


def test_a_worker_that_joins_gets_its_share():
    weights = {f"s{number:03}": weight(0) for number in range(100)}
    workers = [f"w{number}" for number in range(10)]
    owners = balanced_owners(dict.fromkeys(weights), weights, workers)
    joined = balanced_owners(owners, weights, [*workers, "new"])
    assert shares_of(joined, weights, ["new"])["new"] >= 8 * weight(0)
    assert all(joined[shard] == "new" for shard in moves(owners, joined))


def test_one_heavy_shard_does_not_make_the_others_move_to_and_fro():
    weights = {"heavy": weight(30), **{f"s{number}": weight(0) for number in range(4)}}
    owners = {"heavy": "a", "s0": "a", "s1": "b", "s2": "c", "s3": "b"}
    planned = balanced_owners(owners, weights, ["a", "b", "c"])
    assert planned == {**owners, "s0": "c"}


def test_without_workers_there_is_no_plan():
    assert balanced_owners({"s": None}, {"s": 1}, []) == {}


@given(st.floats(0, 1e12), st.integers(0, MAX_LEVEL))
def test_a_load_level_is_stated_anew_only_when_it_is_off_by_more_than_a_quarter(load, stated):
    level = next_load_level(stated, load)
    assert next_load_level(level, load) == level
    if level != stated:
        bytes_stated = weight(stated)
        assert not bytes_stated / 1.24 < max(load, 1_000) < bytes_stated * 1.24


def test_small_changes_of_the_load_do_not_change_its_level():
    level = next_load_level(0, 50_000)
    assert next_load_level(level, 60_000) == next_load_level(level, 46_000) == level
    assert next_load_level(level, 80_000) > level > next_load_level(level, 30_000)


def test_the_level_of_a_shard_that_falls_silent_is_the_lowest_again():
    load, level = 200_000.0, next_load_level(0, 200_000.0)
    while load > 100:
        load *= 0.98
        level = next_load_level(level, load)
    assert level == 0


def test_a_shard_keeps_the_level_of_its_owner_before_until_it_was_measured():
    levels = StatedLoadLevels()
    levels.inherit("heavy", 18)
    assert levels.state(["heavy", "light"], {}) == {"heavy": 18}
    assert levels.state(["heavy", "light"], {"heavy": 60_000.0, "light": 500.0}) == {"heavy": 18}
    assert levels.state(["light"], {"light": 50_000.0}) == {"light": 18}
