"""The one owner of per-shard state: lineage, queues, positions."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.shards.shard_entry import ShardStage
from recordpublisher.fetcher.shards.shard_table import ShardTable
from recordpublisher.publishers.positions import SequenceNumber

from fakes.shard_entries import START, entry, marker, shard, watermarked

FRESH = ShardState(START)


def table(*shards, finished=()):
    made = ShardTable(lambda key: key in finished)
    for each in made.learn(shards):
        made.add(each, FRESH)
    return made


@given(
    st.lists(st.lists(st.integers(0, 9), max_size=6), max_size=6), st.lists(st.integers(1, 4), min_size=60, max_size=60)
)
def test_whatever_is_pushed_is_popped_once_in_order_with_its_bytes(batches, counts):
    one, pushed, popped, freed = entry(), 0, [], 0
    for times in batches:
        batch = watermarked(*times, first=pushed)
        pushed += len(batch)
        one.push(batch)
    held = one.queued_bytes
    for count in counts:
        if one.queue:
            part, given_back = one.pop(min(count, len(one.queue[0]) - one.offset))
            popped += [int(record.sequence_number) for record in part.records]
            freed += given_back
            assert one.queued_records == pushed - len(popped)

    assert popped == list(range(pushed))
    assert (freed, one.queued_bytes, bool(one.queue)) == (held, 0, False)


def test_the_position_moves_behind_what_was_emitted():  # S1
    one = entry()
    one.push(watermarked(10, 20, 30))
    part, _ = one.pop(2)
    one.emitted(part, now_ms=5)

    assert (one.state.position, one.state.watermark, one.state.arrival_ms) == (SequenceNumber("1"), 20, 1000)
    assert (one.records, one.last_emit_ms) == (2, 5)
    assert one.next_watermark == 30


def test_a_marker_moves_the_continuation_only():  # F6
    one = entry()
    one.state = replace(one.state, position=SequenceNumber("3"), watermark=8)
    one.emitted(marker("7"), now_ms=5)

    assert (one.state.position, one.state.continuation, one.state.watermark) == (SequenceNumber("3"), "7", 8)
    assert one.last_emit_ms is None


def test_a_record_after_a_marker_makes_its_continuation_obsolete():  # F6
    one = entry()
    one.emitted(marker("7"), 5)
    one.emitted(watermarked(1, first=9), 5)

    assert one.state.continuation is None


def test_a_batch_that_became_nothing_still_moves_the_position():  # P1, S7
    one = entry()
    one.emitted(replace(watermarked(), read_position=SequenceNumber("4")), 5)

    assert one.state.position == SequenceNumber("4")


def test_a_shard_ends_with_its_last_emission():  # S2
    one = entry(stage=ShardStage.DRAINING)
    one.push(watermarked(1, 2))
    first, _ = one.pop(1)
    one.emitted(first, 5)
    assert (one.stage, one.state.ended) == (ShardStage.DRAINING, False)
    last, _ = one.pop(1)
    one.emitted(last, 5)

    assert (one.stage, one.state.ended) == (ShardStage.ENDED, True)


def test_an_idle_shard_counts_again_when_records_are_queued_but_not_for_a_marker():  # W4
    one = entry()
    one.idle = True
    one.push(marker())
    assert not one.is_active
    one.push(watermarked(1))

    assert one.is_active


def test_dropping_the_queue_gives_every_byte_back():
    one = entry()
    one.push(watermarked(1, 2))
    one.reserved_bytes = 100
    held = one.queued_bytes + 100

    assert one.drop_queue() == held
    assert (one.queued_bytes, one.queued_records, one.reserved_bytes, len(one.queue)) == (0, 0, 0, 0)


def test_a_tip_is_confirmed_beside_the_position():  # S5
    made = table(shard("a"))
    made["s/a"].tip_ms = 77

    assert made.states()["s/a"].tip_ms == 77
    assert made["s/a"].state.tip_ms is None


def test_children_wait_for_both_parents():  # S2
    made = table(shard("a"), shard("b"), shard("c", "a", "b"))
    assert [each.key for each in made.startable()] == ["s/a", "s/b"]
    made["s/a"].stage = ShardStage.ENDED
    assert not made.parents_finished(shard("c", "a", "b"))
    made["s/b"].stage = ShardStage.ENDED

    assert made.parents_finished(shard("c", "a", "b"))


def test_the_state_says_which_shards_wait():  # S5
    made = table(shard("a"), shard("b", "a"))
    made["s/a"].stage = ShardStage.READING

    assert {key: state.waiting for key, state in made.states().items()} == {"s/a": False, "s/b": True}


@pytest.mark.parametrize(("finished", "may_start"), [((), False), (("s/a",), True)])
def test_a_parent_elsewhere_is_finished_when_it_is_announced(finished, may_start):  # S2
    made = ShardTable(lambda key: key in finished)
    made.learn([shard("a")])

    assert made.parents_finished(shard("b", "a")) is may_start


def test_a_parent_that_a_listing_leaves_out_is_finished():  # past retention
    made = table(shard("b", "a"))
    made.expired("s", [shard("b", "a")])

    assert made.parents_finished(shard("b", "a"))


def test_a_parent_that_was_not_heard_of_yet_is_waited_for():  # S2: the other parent's end told of the child first
    made = table(shard("a"), shard("c", "a", "b"))
    made["s/a"].stage = ShardStage.ENDED
    made.expired("s", [shard("a")])
    assert made.startable() == []
    made.expired("s", [shard("a"), shard("c", "a", "b")])

    assert [each.key for each in made.startable()] == ["s/c"]


def test_a_child_begins_at_the_lowest_watermark_of_its_parents():  # W5
    made = table(shard("a"), shard("b"))
    for key, watermark in (("s/a", 50), ("s/b", 20)):
        made[key].state = replace(made[key].state, watermark=watermark)

    assert made.inherited_watermark(shard("c", "a", "b"), lambda key: None) == 20


def test_a_parent_of_another_subtask_counts_too():  # W5
    made = table(shard("a"))
    made["s/a"].state = replace(made["s/a"].state, watermark=50)
    made.learn([shard("b"), shard("c", "a", "b")])

    assert made.inherited_watermark(shard("c", "a", "b"), {"s/b": 20}.get) == 20
    assert made.inherited_watermark(shard("c", "x"), lambda key: 7) is None, "past retention: nobody can tell"


class TestExpired:  # S5
    @pytest.fixture
    def made(self):
        made = table(shard("a"), shard("b", "a"))
        assert made.expired("s", [shard("a"), shard("b", "a")]) == []
        return made

    def test_an_ended_shard_goes_when_its_child_has_started(self, made):
        made["s/a"].stage, made["s/b"].stage = ShardStage.ENDED, ShardStage.READING

        assert made.expired("s", [shard("b", "a")]) == ["s/a"]
        made.forget("s/a")
        assert set(made.states()) == {"s/b"}
        assert made.expired("s", [shard("b", "a")]) == []

    def test_it_stays_while_a_child_waits(self, made):
        made["s/a"].stage = ShardStage.ENDED
        assert made.expired("s", [shard("b", "a")]) == []
        made["s/b"].stage = ShardStage.READING

        assert made.expired("s", [shard("b", "a")]) == ["s/a"]

    def test_it_stays_while_it_is_listed(self, made):
        made["s/a"].stage, made["s/b"].stage = ShardStage.ENDED, ShardStage.READING

        assert made.expired("s", [shard("a"), shard("b", "a")]) == []

    def test_a_shard_with_records_to_come_stays(self, made):
        made["s/a"].stage, made["s/b"].stage = ShardStage.DRAINING, ShardStage.READING

        assert made.expired("s", [shard("b", "a")]) == []

    def test_other_streams_are_left_alone(self, made):
        made["s/a"].stage, made["s/b"].stage = ShardStage.ENDED, ShardStage.READING

        assert made.expired("t", []) == []

    def test_a_listing_older_than_the_one_before_takes_nothing_away(self):
        """ListShards is consistent only eventually; a forgotten shard would be new again, and read from its start."""
        old, young = shard("shardId-000000000000"), shard("shardId-000000000001", "shardId-000000000000")
        made = table(old, young)
        made.expired("s", [old, young])
        made["s/shardId-000000000001"].stage = ShardStage.ENDED

        assert made.expired("s", [old]) == []
        assert made.expired("s", [old, young]) == []


def test_markers_in_a_row_count_once():  # P6
    one = entry()
    one.push(watermarked(1))
    one.push(marker("7"))
    freed = one.push(marker("9"))

    assert freed == marker().held_bytes
    assert [len(batch) for batch in one.queue] == [1, 0]
    assert one.queue[-1] == marker("9")
    assert one.queued_bytes == watermarked(1).held_bytes + freed


def test_a_marker_behind_records_and_records_behind_a_marker_stay():  # F6
    one = entry()
    for batch in (marker("1"), watermarked(1), marker("2"), watermarked(2)):
        assert one.push(batch) == 0

    assert len(one.queue) == 4
