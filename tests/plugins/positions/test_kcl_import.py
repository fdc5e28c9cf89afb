"""The KCL's checkpoints as positions of a job: what each of its values means."""

import pytest

from recordpublisher.plugins.positions.job_positions import imported_states
from recordpublisher.plugins.positions.kcl_transfer import (
    WHOLE_AGGREGATE,
    KclLease,
    leases_by_stream,
    positions_from_leases,
)
from recordpublisher.publishers.errors import ConfigurationError, StateError
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition
from recordpublisher.publishers.shards import HashRange, Shard

NOW = 1_700_000_000_000
PARENT, CHILD = Shard("orders", "shard-1", closed=True), Shard("orders", "shard-2", ("shard-1",))


def imported(*leases, listed=(PARENT,), start=None):
    return positions_from_leases(leases, listed, "orders", start or StartingPosition.trim_horizon(), NOW)


def state_of(lease, **options):
    return imported(lease, **options)[0].state


@pytest.mark.parametrize(
    ("lease", "position"),
    [
        (KclLease("shard-1", "17"), SequenceNumber("17", 0)),
        (KclLease("shard-1", "17", 3), SequenceNumber("17", 3)),
        (KclLease("shard-1", "17", WHOLE_AGGREGATE), SequenceNumber("17")),
    ],
)
def test_a_sequence_number_is_the_last_record_that_was_processed(lease, position):
    assert state_of(lease).position == position


def test_trim_horizon_latest_and_shard_end():
    assert state_of(KclLease("shard-1", "TRIM_HORIZON")).start == StartingPosition.trim_horizon()
    assert state_of(KclLease("shard-1", "LATEST")).start == StartingPosition.at_timestamp(NOW)
    assert state_of(KclLease("shard-1", "SHARD_END")).ended


def test_a_timestamp_is_that_of_the_jobs_properties():
    start = StartingPosition.at_timestamp(5)
    assert state_of(KclLease("shard-1", "AT_TIMESTAMP"), start=start).start == start
    with pytest.raises(ConfigurationError, match="initpos"):
        state_of(KclLease("shard-1", "AT_TIMESTAMP"))


@pytest.mark.parametrize(("checkpoint", "waits"), [("17", True), ("TRIM_HORIZON", True), ("SHARD_END", False)])
def test_a_child_waits_for_a_parent_that_has_not_ended(checkpoint, waits):
    child = imported(KclLease("shard-1", checkpoint), KclLease("shard-2", "TRIM_HORIZON"), listed=(PARENT, CHILD))[1]
    assert (child.shard, child.state.waiting, child.state.parents) == ("orders/shard-2", waits, ("shard-1",))


def test_a_parent_without_a_lease_has_ended_and_is_not_stored():
    found = imported(KclLease("shard-2", "TRIM_HORIZON"), listed=(PARENT, CHILD))
    assert [(each.shard, each.state.ended, each.note) for each in found] == [
        ("orders/shard-1", True, "no lease: it ended before"),
        ("orders/shard-2", False, ""),
    ]
    assert list(imported_states(found)) == ["orders/shard-2"]


def test_a_child_that_the_kcl_has_not_seen_is_new():
    found = imported(KclLease("shard-1", "17"), listed=(PARENT, CHILD))[1]
    assert (found.found, found.state.start, found.note) == (
        "-",
        StartingPosition.trim_horizon(),
        "no lease: a new shard",
    )


def test_a_pending_checkpoint_is_told_and_not_used():
    found = imported(KclLease("shard-1", "17", has_pending=True))[0]
    assert found.state.position == SequenceNumber("17", 0)
    assert "prepared checkpoint" in found.note


def test_a_shard_that_the_stream_no_longer_lists_is_told():
    assert "no longer lists it" in imported(KclLease("shard-0", "17"))[0].note
    assert imported(KclLease("shard-0", "SHARD_END"))[0].note == ""


def test_other_hash_keys_mean_another_stream():
    with pytest.raises(StateError, match="another stream"):
        imported(KclLease("shard-1", "17", hash_range=HashRange(0, 1)))


def test_leases_that_name_their_stream_are_told_apart():
    mine, other = (KclLease("shard-1", "17", stream_id=f"1:{name}:2") for name in ("orders", "clicks"))
    assert leases_by_stream([mine, other], ["orders"], "kcl:app") == {"orders": [mine]}


@pytest.mark.parametrize(
    ("leases", "streams", "message"),
    [
        ([KclLease("shard-1", "17")], ["orders", "clicks"], "do not name their stream"),
        ([KclLease("shard-1", "17", stream_id="1:orders:2")], ["clicks"], "no lease of clicks"),
        (
            [KclLease("shard-1", "17", stream_id=name) for name in ("1:orders:2", "1:orders:3")],
            ["orders"],
            "1:orders:2, 1:orders:3",
        ),
    ],
)
def test_leases_that_do_not_fit_the_job_are_refused(leases, streams, message):
    with pytest.raises(StateError, match=message):
        leases_by_stream(leases, streams, "kcl:app")
