"""E1, E7: transitions of the lease table."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.fetcher.leases.lease_table import Lease, LeaseTable, ShardEnd
from recordpublisher.publishers.errors import ImpossibleStateError
from recordpublisher.publishers.positions import StartingPosition


def table_of(**leases):
    return LeaseTable(
        7, "somebody", StartingPosition.at_timestamp(5), {f"t/{name}": each for name, each in leases.items()}
    )


def end(*children, watermark=90, parents=("t/a",)):
    return ShardEnd(watermark, {f"t/{child}": parents for child in children})


def test_a_take_gives_the_shards_to_the_writer():
    table = table_of(a=Lease("x", 3), b=Lease(), c=Lease("x", 4))
    taken = table.with_changes("me", taken={"t/a": 8, "t/b": 7})
    assert (taken.version, taken.writer, taken.start) == (8, "me", table.start)
    assert taken.leases == {"t/a": Lease("me", 8), "t/b": Lease("me", 7), "t/c": Lease("x", 4)}
    assert taken.owners == {"me", "x"}
    assert taken.is_owned("t/a", "me", 8)
    assert not taken.is_owned("t/a", "x", 3)
    assert not taken.is_owned("t/z", "me", 8)


def test_who_was_asked_to_leave_is_kept_until_it_is_cleaned():
    table = table_of(a=Lease("x", 3)).with_changes("command", drained=["x"]).with_changes("me", taken={"t/a": 9})
    assert table.drained == {"x"}
    assert not table.with_changes("me", cleaned={"x", "y"}).drained


def test_an_end_adds_the_children_without_owner_in_the_same_version():
    ended = table_of(a=Lease("x", 3)).with_changes("x", ended={"t/a": end("b", "c")})
    assert ended.leases["t/a"] == Lease(None, 3, True, 90, ("t/b", "t/c"))
    assert ended.leases["t/b"] == ended.leases["t/c"] == Lease(parents=("t/a",))


def test_a_child_can_be_read_when_both_parents_have_ended():  # S2
    both = ("t/a", "t/b")
    table = table_of(a=Lease("x", 3), b=Lease("x", 3))
    one = table.with_changes("x", ended={"t/a": end("c", parents=both)})
    assert not one.can_be_read("t/c")
    two = one.with_changes("x", ended={"t/b": end("c", watermark=70, parents=both)})
    assert two.can_be_read("t/c")
    assert not two.can_be_read("t/a")
    assert two.inherited_watermark("t/c") == 70
    assert two.initial_state("t/c").watermark == 70
    assert two.initial_state("t/c").start == StartingPosition.trim_horizon()


def test_a_child_waits_for_a_parent_that_is_not_known_yet_and_not_for_one_that_has_expired():
    table = table_of(a=Lease("x", 3)).with_changes("x", ended={"t/a": end("c", parents=("t/a", "t/late"))})
    assert not table.can_be_read("t/c")
    assert table.with_changes("x", expired=["t/late"]).can_be_read("t/c")
    found = table.with_changes("x", expired=["t/late"], found={"t/late": Lease()})
    assert not found.can_be_read("t/c")


def test_a_shard_that_ended_goes_when_each_child_had_an_owner():
    table = table_of(a=Lease("x", 3)).with_changes("x", ended={"t/a": end("b", "c")})
    first = table.with_changes("y", taken={"t/b": 9})
    assert "t/a" in first.leases
    assert first.initial_state("t/c").watermark == 90
    assert set(first.with_changes("z", taken={"t/c": 10}).leases) == {"t/b", "t/c"}


def test_an_end_without_known_children_stays_until_they_are_listed_or_it_has_expired():
    ended = table_of(a=Lease("x", 3)).with_changes("x", ended={"t/a": end()})
    assert ended.with_changes("x").leases["t/a"].ended
    assert ended.with_changes("x", expired=["t/a"]).leases == {}
    listed = ended.with_changes("x", found={"t/b": Lease(parents=("t/a",))}, children={"t/a": ("t/b",)})
    assert listed.can_be_read("t/b")
    assert listed.with_changes("x", expired=["t/a"]).initial_state("t/b").watermark == 90
    assert set(listed.with_changes("x", taken={"t/b": 9}).leases) == {"t/b"}


def test_an_end_stays_while_a_child_waits_that_the_listing_at_the_end_did_not_show():
    both = {f"t/{child}": Lease(parents=("t/a",)) for child in "bc"}
    ended = table_of(a=Lease("x", 3)).with_changes("x", found=both).with_changes("x", ended={"t/a": end("b")})
    one = ended.with_changes("y", taken={"t/b": 10})
    assert one.can_be_read("t/c")
    assert set(one.with_changes("y", taken={"t/c": 11}).leases) == {"t/b", "t/c"}


def test_a_child_begins_after_the_last_of_its_parents_was_known_to_be_open():  # S5
    both = {"t/c": ("t/a", "t/b")}
    ends = {"t/a": ShardEnd(90, both, 700), "t/b": ShardEnd(70, both, 400)}
    assert table_of(a=Lease("x", 3), b=Lease("x", 3)).with_changes("x", ended=ends).initial_state("t/c").seen_ms == 700


def test_a_shard_of_a_group_that_began_at_latest_counts_as_seen_then():  # P3, S5
    by_time = table_of(a=Lease(is_first=True), b=Lease())
    assert by_time.initial_state("t/a").seen_ms is None
    latest = replace(by_time, is_latest=True)
    assert latest.initial_state("t/a").seen_ms == 5
    assert latest.initial_state("t/b").seen_ms is None


def test_a_first_shard_begins_at_the_start_of_the_group():
    table = table_of(a=Lease(is_first=True), b=Lease())
    assert table.initial_state("t/a").start == StartingPosition.at_timestamp(5)
    assert table.initial_state("t/b").start == StartingPosition.trim_horizon()


def test_a_shard_that_ended_cannot_be_taken():
    table = table_of(a=Lease("x", 3)).with_changes("x", ended={"t/a": end("b")})
    with pytest.raises(ImpossibleStateError, match=r"me acquires t/a in epoch 9.*ended=True"):
        table.with_changes("me", taken={"t/a": 9})


@pytest.mark.parametrize("epoch", [3, 9])
def test_an_epoch_is_later_than_the_one_before_and_not_later_than_the_table(epoch):
    with pytest.raises(ImpossibleStateError, match=f"me acquires t/a in epoch {epoch}"):
        table_of(a=Lease("x", 3)).with_changes("me", taken={"t/a": epoch})


@given(st.integers(0, 2**32).map(Random))
def test_every_shard_can_be_read_once_its_ancestors_ended_and_is_never_lost(random):
    """Splits and merges in any order: each shard that was ever added is in the table, or ended and followed by its children."""
    table = table_of(**{f"s{number}": Lease(is_first=True) for number in range(3)})
    read, parents_of = set(), {}
    for step in range(30):
        owned = [shard for shard, lease in table.leases.items() if lease.owner is not None]
        free = [shard for shard, lease in table.leases.items() if lease.owner is None and table.can_be_read(shard)]
        for shard in free:
            assert all(parent in read for parent in parents_of.get(shard, ()))
        before = table
        if free and random.random() < 0.5:
            table = table.with_changes(
                f"w{step}", taken=dict.fromkeys(random.sample(free, random.randint(1, len(free))), table.version + 1)
            )
        elif owned and step < 20:
            shard = random.choice(owned)
            planned = {child: each for child, each in parents_of.items() if shard in each}
            if not planned and len(owned) > 1 and random.random() < 0.5:
                other = random.choice([each for each in owned if each != shard])
                if not any(other in each for each in parents_of.values()):
                    planned = {f"t/m{step}": (shard, other)}
            planned = planned or {f"t/{step}a": (shard,), f"t/{step}b": (shard,)}
            parents_of |= planned
            table = table.with_changes("w", ended={shard: ShardEnd(step, planned)})
            read.add(shard)
        assert before.version <= table.version
        for shard in before.leases.keys() - table.leases.keys():
            assert shard in read
            assert all(
                child not in table.leases or table.leases[child].was_owned for child in before.leases[shard].children
            )
    while True:
        free = [shard for shard, lease in table.leases.items() if lease.owner is None and table.can_be_read(shard)]
        if not free:
            break
        table = table.with_changes("last", taken=dict.fromkeys(free, table.version + 1))
    waiting = {shard for shard, lease in table.leases.items() if not lease.ended and lease.owner is None}
    assert all(
        any(parent in table.leases and not table.leases[parent].ended for parent in parents_of[shard])
        for shard in waiting
    )
