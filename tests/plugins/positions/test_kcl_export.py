"""The positions of a job as leases of the KCL."""

import pytest

from recordpublisher.fetcher.checkpoints.snapshot_format import RestoredState
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.plugins.positions.kcl_transfer import WHOLE_AGGREGATE, KclLease, leases_from_states
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.positions import PositionType, SequenceNumber, StartingPosition
from recordpublisher.publishers.shards import HashRange, Shard

TRIM_HORIZON = StartingPosition.trim_horizon()
PARENT = Shard("orders", "shard-1", closed=True)
CHILDREN = [Shard("orders", f"shard-{number}", ("shard-1",), HashRange(number, number)) for number in (2, 3)]


def exported(states, listed=(PARENT,), rows=(), streams=("orders",), pinned_ms=None, start=TRIM_HORIZON):
    return leases_from_states(RestoredState(states, pinned_ms), listed, start, rows, streams)


def checkpoints(*arguments, **options):
    return {each.written.key: str(each.written) for each in exported(*arguments, **options)}


@pytest.mark.parametrize(
    ("state", "checkpoint"),
    [
        (ShardState(TRIM_HORIZON, SequenceNumber("17")), f"17/{WHOLE_AGGREGATE}"),
        (ShardState(TRIM_HORIZON, SequenceNumber("17", 3)), "17/3"),
        (ShardState(TRIM_HORIZON), "TRIM_HORIZON"),
        (ShardState(StartingPosition.latest()), "LATEST"),
        (ShardState(TRIM_HORIZON, SequenceNumber("17"), ended=True), "SHARD_END"),
    ],
)
def test_the_checkpoint_of_each_state(state, checkpoint):
    assert checkpoints({"orders/shard-1": state}) == {"shard-1": checkpoint}


def test_a_time_is_told_since_the_table_cannot_hold_it():
    states = {"orders/shard-1": ShardState(StartingPosition.at_timestamp(1_700_000_000_123))}
    (found,) = exported(states)
    assert str(found.written) == "AT_TIMESTAMP"
    assert "2023-11-14T22:13:20.123Z" in found.note


@pytest.mark.parametrize("ago_ms", [0, 3])
def test_a_shard_without_state_of_a_job_that_began_at_the_tip_or_at_an_age_begins_at_its_time(ago_ms):
    found = exported({}, pinned_ms=5, start=StartingPosition(PositionType.LATEST, ago_ms=ago_ms))
    assert [(str(each.written), "1970-01-01T00:00:00.005" in each.note) for each in found] == [("AT_TIMESTAMP", True)]


def test_an_end_names_the_children_and_they_have_leases_too():
    found = exported({"orders/shard-1": ShardState(TRIM_HORIZON, ended=True)}, [PARENT, *CHILDREN])
    assert [(each.written.key, str(each.written), each.written.parents, each.written.children) for each in found] == [
        ("shard-1", "SHARD_END", (), ("shard-2", "shard-3")),
        ("shard-2", "TRIM_HORIZON", ("shard-1",), ()),
        ("shard-3", "TRIM_HORIZON", ("shard-1",), ()),
    ]
    assert [each.written.hash_range for each in found[1:]] == [child.hash_range for child in CHILDREN]


@pytest.mark.parametrize(("checkpoint", "written"), [("17", ["SHARD_END"]), ("SHARD_END", [])])
def test_a_lease_whose_shard_the_job_has_ended_and_forgotten_gets_its_end(checkpoint, written):
    states = {"orders/shard-2": ShardState(TRIM_HORIZON, SequenceNumber("18"), parents=("shard-1",))}
    found = exported(states, [PARENT, *CHILDREN], rows=[KclLease("shard-1", checkpoint, 3)])
    assert [str(each.written) for each in found if each.written.key == "shard-1"] == written


def test_an_ancestor_that_ended_long_ago_gets_no_lease():
    states = {child.key: ShardState(TRIM_HORIZON, SequenceNumber("17")) for child in CHILDREN}
    assert sorted(checkpoints(states, [PARENT, *CHILDREN])) == ["shard-2", "shard-3"]


@pytest.mark.parametrize(("row", "goes_back"), [("16", False), ("18", True), ("SHARD_END", True), ("LATEST", False)])
def test_a_row_that_is_ahead_of_the_job_is_seen(row, goes_back):
    state = ShardState(TRIM_HORIZON, SequenceNumber("17"))
    (found,) = exported({"orders/shard-1": state}, rows=[KclLease("shard-1", row)])
    assert found.goes_back == goes_back


def test_several_streams_are_named_as_the_table_names_them():
    listed = [Shard("orders", "shard-1"), Shard("clicks", "shard-1")]
    states = {shard.key: ShardState(TRIM_HORIZON, SequenceNumber("17")) for shard in listed}
    rows = [KclLease("shard-1", "3", stream_id=f"1:{shard.stream}:2") for shard in listed]
    found = exported(states, listed, rows, ["orders", "clicks"])
    assert [each.written.key for each in found] == ["1:clicks:2:shard-1", "1:orders:2:shard-1"]
    assert all(each.replaced is not None for each in found)


def test_several_streams_need_rows_that_name_them():
    listed = [Shard("orders", "shard-1"), Shard("clicks", "shard-1")]
    with pytest.raises(StateError, match="account:stream:epoch"):
        exported({}, listed, streams=["orders", "clicks"])


def test_a_stream_that_a_table_of_others_does_not_name_is_refused():
    """Its rows would have keys without a stream, which the KCL does not read in such a table."""
    state = ShardState(TRIM_HORIZON, SequenceNumber("17"))
    with pytest.raises(StateError, match=r"of orders .* is not known: .* exactly one, and name none"):
        exported({"orders/shard-1": state}, rows=[KclLease("shard-1", "3", stream_id="1:clicks:2")])


def test_a_lease_of_another_stream_is_not_replaced():
    """The shards of two streams have the same ids: somebody else's positions would be gone."""
    state = ShardState(TRIM_HORIZON, SequenceNumber("17"))
    row = KclLease("shard-2", "3", hash_range=HashRange(0, 9))
    with pytest.raises(
        StateError, match="has the hash keys 0 to 9, but the shard of orders has 2 to 2: the table belongs"
    ):
        exported({"orders/shard-2": state}, CHILDREN, rows=[row])


def test_a_start_that_the_kcl_does_not_know_is_refused():
    start = StartingPosition(PositionType.AFTER_SEQUENCE_NUMBER, "17")
    with pytest.raises(StateError, match="AFTER_SEQUENCE_NUMBER"):
        exported({"orders/shard-1": ShardState(start)})
