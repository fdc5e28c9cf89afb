"""From the checkpoints of async-kinesis to shard states and back: what a row means, and what cannot be held."""

import pytest

import recordpublisher as rp
from recordpublisher.fetcher.checkpoints.snapshot import RestoredState
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.positions.async_kinesis_checkpoints import (
    ShardCheckpoint,
    checkpoint_from_item,
    checkpoint_to_item,
)
from recordpublisher.plugins.positions.async_kinesis_moves import (
    checkpoints_from_states,
    ends_without_position,
    positions_from_checkpoints,
)
from recordpublisher.publishers.positions import PositionType, SequenceNumber, StartingPosition
from recordpublisher.publishers.shards import Shard

from fakes.async_kinesis.rows import row

OLDEST, LATEST = StartingPosition.trim_horizon(), StartingPosition(PositionType.LATEST)
PARENT = Shard("orders", "shard-0", closed=True)
CHILD = Shard("orders", "shard-1", ("shard-0",))
OTHER = Shard("orders", "shard-2")
NOW = 5_000


def imported(*rows, listed=(PARENT, CHILD, OTHER), start=OLDEST):
    found = positions_from_checkpoints(rows, listed, "orders", start, NOW)
    return {each.shard.removeprefix("orders/"): each for each in found}


def exported(states, listed=(PARENT, CHILD, OTHER), rows=(), start=OLDEST, pinned_ms=None, empty=()):
    restored = RestoredState({f"orders/{key}": state for key, state in states.items()}, pinned_ms)
    found = checkpoints_from_states(restored, listed, start, rows, empty)
    return {each.shard.removeprefix("orders/"): each for each in found}


def test_rows_are_read_as_the_package_writes_them():
    rows = [row("shard-0", "17"), row("shard-1"), row("shard-2", "18", "app/4711", 1_795_430_007)]
    assert [checkpoint_from_item(each, "t") for each in rows] == [
        ShardCheckpoint("shard-0", "17"),
        ShardCheckpoint("shard-1"),
        ShardCheckpoint("shard-2", "18", "app/4711", 1_795_430_007),
    ]


def test_a_row_is_written_as_the_package_gives_a_shard_up():
    for checkpoint in (ShardCheckpoint("shard-0", "17"), ShardCheckpoint("shard-1")):
        assert checkpoint_to_item(checkpoint, 1_795_516_407 - 86_400) == row(checkpoint.shard_id, checkpoint.sequence)


@pytest.mark.parametrize(
    "item", [{"leaseKey": {"S": "a"}}, row("shard-0", "SHARD_END"), {**row("a"), "ts": {"S": "x"}}]
)
def test_a_row_of_another_table_is_refused(item):
    with pytest.raises(rp.StateError, match="async-kinesis:t"):
        checkpoint_from_item(item, "async-kinesis:t")


def test_a_shard_is_read_after_its_checkpoint_and_one_without_from_the_start():
    found = imported(ShardCheckpoint("shard-0", "17"), ShardCheckpoint("shard-2"))
    assert found["shard-0"].state.position == SequenceNumber("17")
    assert found["shard-2"].state == ShardState(OLDEST)
    assert (found["shard-1"].is_stored, found["shard-1"].note) == (False, "no row: a new shard")


def test_a_child_without_checkpoint_is_read_whole_after_its_parent():
    found = imported(ShardCheckpoint("shard-0", "17"), ShardCheckpoint("shard-1"), start=LATEST)
    assert found["shard-1"].state == ShardState(OLDEST, parents=("shard-0",), waiting=True)


def test_latest_without_a_checkpoint_is_the_moment_of_the_import():
    found = imported(ShardCheckpoint("shard-2"), start=LATEST)["shard-2"]
    assert found.state.start == StartingPosition.at_timestamp(NOW)
    assert "is not read" in found.note


def test_a_parent_whose_row_has_expired_is_not_read_again():
    found = imported(ShardCheckpoint("shard-1", "17"))["shard-0"]
    assert (found.state.ended, found.is_stored) == (True, False)


def test_a_shard_that_is_no_longer_listed_is_not_taken_over():
    found = imported(ShardCheckpoint("gone", "3"), ShardCheckpoint("shard-2", "4"))["gone"]
    assert not found.is_stored
    assert "what was unread is lost" in found.note


def test_a_consumer_that_was_not_closed_is_named():
    found = imported(ShardCheckpoint("shard-2", "4", "app/1", 7))["shard-2"]
    assert found.note.startswith("app/1 was not closed")


def test_a_table_without_any_shard_of_the_stream_is_refused():
    with pytest.raises(rp.StateError, match="orders has none of the shards"):
        imported(ShardCheckpoint("gone", "3"))


def test_positions_become_rows_also_those_of_shards_that_have_ended():
    states = {
        "shard-0": ShardState(OLDEST, SequenceNumber("17"), ended=True),
        "shard-2": ShardState(OLDEST, SequenceNumber("18")),
    }
    found = exported(states, rows=[ShardCheckpoint("shard-2", "11")])
    assert {key: each.written.sequence for key, each in found.items()} == {
        "shard-0": "17",
        "shard-1": None,
        "shard-2": "18",
    }
    assert found["shard-2"].replaced == ShardCheckpoint("shard-2", "11")
    assert not found["shard-2"].goes_back
    assert found["shard-1"].note == 'give the consumer iterator_type="TRIM_HORIZON"'


def test_a_start_at_a_time_is_said_to_whoever_starts_the_consumer():
    found = exported({"shard-0": ShardState(OLDEST, SequenceNumber("1"))}, (PARENT, OTHER), start=LATEST, pinned_ms=5)
    assert found["shard-2"].note == 'give the consumer iterator_type="TRIM_HORIZON"', "a shard that came later"
    states = {"shard-2": ShardState(StartingPosition.at_timestamp(5))}
    note = exported(states, (OTHER,), start=LATEST, pinned_ms=5)["shard-2"].note
    assert note == 'give the consumer iterator_type="AT_TIMESTAMP" and the timestamp 1970-01-01T00:00:00.005+00:00'


def test_a_row_that_is_ahead_is_seen():
    states = {"shard-2": ShardState(OLDEST, SequenceNumber("18"))}
    assert exported(states, rows=[ShardCheckpoint("shard-2", "100")])["shard-2"].goes_back


def test_a_position_inside_an_aggregate_cannot_be_held():
    states = {"shard-2": ShardState(OLDEST, SequenceNumber("18", 3))}
    with pytest.raises(rp.StateError, match=r"inside an aggregate, orders/shard-2 after 18-3"):
        exported(states)


def test_the_end_of_a_shard_without_records_needs_no_position():
    states = {"shard-0": ShardState(OLDEST, ended=True), "shard-2": ShardState(OLDEST, SequenceNumber("18"))}
    restored = RestoredState({f"orders/{key}": state for key, state in states.items()})
    assert ends_without_position(restored, (PARENT, CHILD, OTHER), OLDEST) == [PARENT]
    assert exported(states, empty={"orders/shard-0"})["shard-0"].written.sequence is None
    with pytest.raises(rp.StateError, match=r"orders/shard-0 was read to its end"):
        exported(states)


def test_what_is_exported_is_imported_as_it_was():
    states = {
        "shard-0": ShardState(OLDEST, SequenceNumber("17")),
        "shard-1": ShardState(OLDEST, SequenceNumber("19"), parents=("shard-0",)),
        "shard-2": ShardState(OLDEST, SequenceNumber("18")),
    }
    rows = [each.written for each in exported(states).values()]
    assert {key: each.state for key, each in imported(*rows).items()} == states
