"""A2: which shards have unread records, decided from observations."""

import time
from dataclasses import replace

import pytest

from recordpublisher.fetcher.monitoring.stuck_shards import (
    LineageProgress,
    StuckShardDetector,
    UnreadFinding,
    check_own_shard,
)
from recordpublisher.fetcher.pipeline.memory_budget import why_blocked
from recordpublisher.fetcher.settings import BudgetLimits
from recordpublisher.fetcher.shards.shard_entry import ShardStage
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.positions import SequenceNumber

from fakes.shard_entries import START, entry, shard, watermarked


def watched(*sights, seconds=1.0):
    """Durations (s) of the alarms after checks one second apart, at an alarm interval of 3 s; an observation is (progress, unread)."""
    detector = StuckShardDetector(3_000, 2.0)
    found = []
    for number, (emitted, unread) in enumerate(sights):
        alarms = detector.update([UnreadFinding("s/a", emitted, unread, "why")], number * seconds)
        found.append([alarm.lasting_ms / 1000 for alarm in alarms])
    return found


def test_a_shard_whose_tip_moved_while_its_position_did_not_is_an_alarm_after_the_interval():
    assert watched(*[("p", True)] * 5) == [[], [], [], [3], [4]]


def test_a_position_that_moves_is_none_however_far_behind():
    assert watched(*[(number, True) for number in range(9)]) == [[]] * 9


def test_a_shard_read_to_its_tip_is_none():
    assert watched(*[("p", False)] * 9) == [[]] * 9


def test_reaching_the_tip_begins_anew():
    assert watched(*[("p", True)] * 3, ("p", False), *[("p", True)] * 3) == [[]] * 7


def test_an_inconclusive_check_neither_counts_nor_clears():
    looks = [("p", True)] * 3 + [("p", None)] * 2 + [("p", True)] * 2
    assert watched(*looks) == [[], [], [], [], [], [3], [4]]


def test_a_watcher_that_was_asleep_has_not_watched():
    detector = StuckShardDetector(3_000, 2.0)
    sight = UnreadFinding("s/a", "p", True, "why")
    assert detector.update([sight], 0.0) == detector.update([sight], 900.0) == []


def test_a_shard_without_an_observation_is_dropped():
    detector = StuckShardDetector(3_000, 2.0)
    sight = UnreadFinding("s/a", "p", True, "why")
    for second in range(3):
        detector.update([sight], float(second))
    detector.update([], 3.0)
    assert detector.update([sight], 4.0) == []


LIMITS = BudgetLimits(10**6, 10**6, 100)


def seen(made, now_ms=1_000):
    sight = check_own_shard(made, "mark", now_ms, 500, why_blocked(made, LIMITS), "worker 3")
    return sight.unread, sight.reason


def queued():
    made = entry()
    made.reading.queue.push(watermarked(1))
    return made


def test_queued_records_are_unread():
    assert seen(queued()) == (True, "its queued records wait for the sink")


def test_a_held_shard_names_what_it_waits_for():
    made = queued()
    made.status.held_since = 0.0
    assert seen(made) == (True, "held back by alignment, which waits for worker 3")


def test_a_write_that_does_not_return_is_named():
    made = entry()
    made.emission.is_writing = True
    assert seen(made) == (True, "the sink's write does not return")


@pytest.mark.parametrize(("last_read_ms", "unread"), [(None, None), (499, None), (500, False), (1_000, False)])
def test_only_a_fresh_read_at_the_tip_means_that_nothing_is_unread(last_read_ms, unread):
    made = entry()
    made.reading.last_read_ms, made.reading.at_tip = last_read_ms, True
    assert seen(made)[0] is unread


def test_a_read_behind_the_tip_means_that_something_is():
    made = entry()
    made.reading.last_read_ms = 900
    assert seen(made) == (True, "its reads return nothing")


def test_the_tip_of_a_waiting_child_is_requested_with_its_reason():
    assert seen(entry("c", "a", stage=ShardStage.WAITING)) == (None, "it waits for the end of its parents: a")


def test_an_ended_shard_has_nothing_unread():
    assert seen(entry(stage=ShardStage.ENDED))[0] is False


def test_a_shard_that_a_bounded_run_is_done_with_has_nothing_unread():
    made = entry()
    made.reading.is_finished, made.reading.last_read_ms = True, 0

    assert seen(made, now_ms=10_000)[0] is False


def test_a_child_that_waits_is_well_while_its_parent_or_grandparent_is_read():  # S2
    states = {
        "s/a": ShardState(START),
        "s/b": ShardState(START, parents=("a",)),
        "s/c": ShardState(START, parents=("b",)),
    }
    child = shard("c", "b")
    moved = {**states, "s/a": replace(states["s/a"], position=SequenceNumber("1"))}

    assert LineageProgress(moved).of(child) != LineageProgress(states).of(child)


def test_elders_of_a_parent_that_ended_do_not_count():
    states = {
        "s/a": ShardState(START),
        "s/b": ShardState(START, parents=("a",), ended=True),
    }
    moved = {**states, "s/a": replace(states["s/a"], position=SequenceNumber("1"))}

    child = shard("c", "b")
    assert LineageProgress(moved).of(child) == LineageProgress(states).of(child)


def test_a_child_of_merged_parents_is_well_while_either_is_read():
    states = {
        "s/a": ShardState(START),
        "s/b": ShardState(START),
        "s/c": ShardState(START, parents=("a", "b")),
    }
    child = shard("c", "a", "b")
    for parent in ("s/a", "s/b"):
        moved = {**states, parent: replace(states[parent], position=SequenceNumber("1"))}
        assert LineageProgress(moved).of(child) != LineageProgress(states).of(child)


def test_parents_that_stand_in_a_circle_in_a_stored_document_end_the_walk():
    states = {"s/a": ShardState(START, parents=("b",)), "s/b": ShardState(START, parents=("a",))}

    assert LineageProgress(states).of(shard("c", "b")) == LineageProgress(states).of(shard("c", "b"))


@pytest.mark.usefixtures("no_garbage_collection")
def test_300_splits_and_merges_are_looked_at_in_a_fraction_of_a_second():
    states = {"s/0": ShardState(START)}
    shards, open_id = [shard("0")], "0"
    for cycle in range(300):
        left, right, merged = f"{cycle}l", f"{cycle}r", str(cycle + 1)
        for shard_id, parents in ((left, (open_id,)), (right, (open_id,)), (merged, (left, right))):
            states[f"s/{shard_id}"] = ShardState(START, parents=parents)
            shards.append(shard(shard_id, *parents))
        open_id = merged

    began, progress = time.thread_time(), LineageProgress(states)
    seen = [progress.of(one) for one in shards]

    assert time.thread_time() - began < 0.2
    moved = {**states, "s/0": replace(states["s/0"], position=SequenceNumber("1"))}
    assert LineageProgress(moved).of(shards[-1]) != seen[-1]
