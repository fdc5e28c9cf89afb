"""ShardTable: parents before children, inherited watermarks, shards that expire."""

from dataclasses import replace

import pytest

from recordpublisher.fetcher.shards.shard_entry import ShardStage
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.shards.shard_table import ShardTable

from fakes.shard_entries import START, in_stage, shard

FRESH = ShardState(START)


def table(*shards):
    made = ShardTable()
    for each in made.add_listed(shards):
        made.add(each, FRESH)
    return made


def test_a_tip_is_confirmed_beside_the_position():  # S5
    made = table(shard("a"))
    made["s/a"].reading.tip_ms = 77

    assert made.states()["s/a"].tip_ms == 77
    assert made["s/a"].state.tip_ms is None


def test_children_wait_for_both_parents():  # S2
    made = table(shard("a"), shard("b"), shard("c", "a", "b"))
    assert [entry.key for entry in made if made.may_start(entry)] == ["s/a", "s/b"]
    in_stage(made["s/a"], ShardStage.ENDED)
    assert not made.parents_finished(shard("c", "a", "b"))
    in_stage(made["s/b"], ShardStage.ENDED)

    assert made.parents_finished(shard("c", "a", "b"))


def test_the_state_has_which_shards_wait():  # S5
    made = table(shard("a"), shard("b", "a"))
    in_stage(made["s/a"], ShardStage.READING)

    assert {key: state.waiting for key, state in made.states().items()} == {"s/a": False, "s/b": True}


@pytest.mark.parametrize("has_others", [False, True])
def test_a_parent_of_another_worker_has_ended_when_its_child_has_a_lease(has_others):  # S2, E7
    made = ShardTable(has_others)
    made.add_listed([shard("a")])

    assert made.parents_finished(shard("b", "a")) is has_others


def test_a_parent_that_a_listing_leaves_out_is_finished():  # past retention
    made = table(shard("b", "a"))
    made.update_listing("s", [shard("b", "a")])

    assert made.parents_finished(shard("b", "a"))


@pytest.mark.parametrize(("is_endless", "is_exhausted"), [(False, True), (True, False)])
def test_only_a_finite_source_is_exhausted_when_every_listed_shard_is_closed(is_endless, is_exhausted):  # S8
    made = ShardTable(is_endless=lambda stream: is_endless)
    made.add_listed([shard("a", closed=True)])

    assert made.is_exhausted({"s"}) is is_exhausted
    assert not made.is_exhausted({"s", "t"}), "a stream without shards"


def test_an_open_shard_of_an_archive_ends_for_one_run_only():  # S5, S8
    made = table(shard("a", is_unlisted=True))
    assert not made.is_exhausted({"s"})
    in_stage(made["s/a"], ShardStage.READING).end_of_reading(())
    assert made.is_exhausted({"s"})
    assert not made.states()["s/a"].ended

    for each in made.add_listed([shard("b", "a", is_unlisted=True), shard("c", "b", is_unlisted=True)]):
        made.add(each, FRESH)
    assert not made.parents_finished(shard("b", "a")), "the rest of the parent comes first"
    assert made.is_exhausted({"s"}), "a later run reads the rest of the parent, and then the children"

    made["s/a"].end_run()
    assert made["s/a"].is_reading
    assert not made.is_exhausted({"s"})


def test_a_shard_that_ended_before_stays_ended_although_its_archive_lacks_the_end():  # S5
    made = ShardTable()
    [ended] = made.add_listed([shard("a", is_unlisted=True)])
    made.add(ended, replace(FRESH, ended=True))

    assert made.states()["s/a"].ended
    assert made.parents_finished(shard("b", "a"))


def test_a_shard_that_a_later_listing_shows_as_closed_stays_closed():  # S8
    made = table(shard("a"), shard("b", "a"))
    for entry in made:
        in_stage(entry, ShardStage.ENDED)
    assert not made.is_exhausted({"s"})

    made.update_listing("s", [shard("a", closed=True), shard("b", "a", closed=True)])
    made.update_listing("s", [shard("a"), shard("b", "a")])

    assert made.is_exhausted({"s"})
    assert made.children_of("s/a") == [shard("b", "a", closed=True)]


def test_a_child_waits_for_a_parent_that_was_not_listed_yet():  # S2: the other parent's end named the child first
    made = table(shard("a"), shard("c", "a", "b"))
    in_stage(made["s/a"], ShardStage.ENDED)
    made.update_listing("s", [shard("a")])
    assert not any(map(made.may_start, made))
    made.update_listing("s", [shard("a"), shard("c", "a", "b")])

    assert [entry.key for entry in made if made.may_start(entry)] == ["s/c"]


def test_children_are_those_of_listed_shards_whoever_owns_them():
    made = table(shard("a"), shard("c", "a", "b"))
    made.add_listed([shard("d", "a"), shard("e", "c")])
    assert [child.shard_id for child in made.children_of("s/a")] == ["c", "d"]
    assert made.own_children_of("s/a") == [made["s/c"]]
    made.remove("s/d")
    assert [child.shard_id for child in made.children_of("s/a")] == ["c"]
    made.remove_stream("s")

    assert made.children_of("s/a") == made.children_of("s/b") == made.children_of("s/c") == []


def test_a_child_begins_at_the_lowest_watermark_of_its_parents():  # W5
    made = table(shard("a"), shard("b"))
    for key, watermark in (("s/a", 50), ("s/b", 20)):
        made[key].emission.start_at(watermark)

    assert made.inherited_watermark(shard("c", "a", "b")) == 20
    assert made.inherited_watermark(shard("c", "x")) is None, "past retention: unknown"


def removable(made, stream, listed):
    made.update_listing(stream, listed)
    return made.removable_shards()


class TestExpired:  # S5
    @pytest.fixture
    def made(self):
        made = table(shard("a"), shard("b", "a"))
        assert removable(made, "s", [shard("a"), shard("b", "a")]) == []
        return made

    def test_an_ended_shard_is_removable_when_its_child_has_started(self, made):
        in_stage(made["s/a"], ShardStage.ENDED)
        in_stage(made["s/b"], ShardStage.READING)

        assert removable(made, "s", [shard("b", "a")]) == ["s/a"]
        made.remove("s/a")
        assert set(made.states()) == {"s/b"}
        assert removable(made, "s", [shard("b", "a")]) == []

    def test_it_stays_while_a_child_waits(self, made):
        in_stage(made["s/a"], ShardStage.ENDED)
        assert removable(made, "s", [shard("b", "a")]) == []
        in_stage(made["s/b"], ShardStage.READING)

        assert removable(made, "s", [shard("b", "a")]) == ["s/a"]

    def test_it_stays_while_it_is_listed(self, made):
        in_stage(made["s/a"], ShardStage.ENDED)
        in_stage(made["s/b"], ShardStage.READING)

        assert removable(made, "s", [shard("a"), shard("b", "a")]) == []

    def test_a_shard_with_records_to_come_stays(self, made):
        in_stage(made["s/a"], ShardStage.DRAINING)
        in_stage(made["s/b"], ShardStage.READING)

        assert removable(made, "s", [shard("b", "a")]) == []

    def test_other_streams_are_not_affected(self, made):
        in_stage(made["s/a"], ShardStage.ENDED)
        in_stage(made["s/b"], ShardStage.READING)

        assert removable(made, "t", []) == []

    def test_a_listing_older_than_the_previous_one_removes_nothing(self):
        """ListShards is eventually consistent. A shard removed too early would be found again and read from its start."""
        old, young = shard("shardId-000000000000"), shard("shardId-000000000001", "shardId-000000000000")
        made = table(old, young)
        made.update_listing("s", [old, young])
        in_stage(made["s/shardId-000000000001"], ShardStage.ENDED)

        assert removable(made, "s", [old]) == []
        assert removable(made, "s", [old, young]) == []


def test_a_total_has_what_shards_counted_that_were_removed_and_what_is_counted_after_that():
    made = table(shard("a"), shard("b"))
    made["s/a"].metrics.add("dead_letters", 2)
    made["s/a"].metrics.late_after_idle = 3
    made.count("s/b", "dead_letters")
    made.remove("s/a")
    made.count("s/a", "dead_letters")

    assert made.total("dead_letters") == 4
    assert made.total("late_after_idle") == 3
    assert made.total("skipped_records") == 0


def test_an_ended_shard_that_only_the_publisher_has_is_removable_when_all_its_children_have_started():
    """It stays in each listing, so it is never missing there."""
    archived = replace(shard("a"), closed=True, is_unlisted=True)
    listed = [archived, shard("b", "a"), shard("c", "a")]
    made = table(*listed)
    in_stage(made["s/a"], ShardStage.ENDED)
    in_stage(made["s/b"], ShardStage.READING)
    assert removable(made, "s", listed) == []
    in_stage(made["s/c"], ShardStage.READING)
    assert removable(made, "s", listed) == ["s/a"]
    made.remove("s/a")
    assert made.add_listed(listed) == []
    assert made.parents_finished(shard("b", "a"))


def test_an_ended_shard_of_an_archive_stays_while_a_child_is_read_elsewhere_or_is_unknown():
    archived = replace(shard("a"), closed=True, is_unlisted=True)
    made = table(archived)
    in_stage(made["s/a"], ShardStage.ENDED)
    assert removable(made, "s", [archived]) == []
    made.add_listed([shard("b", "a")])
    assert removable(made, "s", [archived, shard("b", "a")]) == []
