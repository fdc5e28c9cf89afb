"""The positions of a worker that runs alone become the leases of a group."""

from recordpublisher.fetcher.leases.lease_table import AloneOwner, Lease, LeaseTable, table_from_bytes, table_to_bytes
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition

START = StartingPosition.trim_horizon()
ALONE = LeaseTable(3, "w1", alone=AloneOwner("w1", 3))


def test_shards_that_ended_wait_or_are_read_become_leases():
    states = {
        "s/0": ShardState(START, ended=True, watermark=7),
        "s/1": ShardState(START, parents=("0",)),
        "s/2": ShardState(START, parents=("1",), waiting=True),
    }
    assert ALONE.with_alone_leases(states).leases == {
        "s/0": Lease(None, 3, True, 7, ("s/1",)),
        "s/1": Lease("w1", 3),
        "s/2": Lease(parents=("s/1",)),
    }


def test_a_shard_with_a_position_is_owned_although_its_parents_were_not_looked_at_yet():
    state = ShardState(START, SequenceNumber("5"), parents=("0",), waiting=True)
    assert ALONE.with_alone_leases({"s/1": state}).leases == {"s/1": Lease("w1", 3)}


def test_a_shard_with_a_watermark_is_owned_although_its_parents_were_not_looked_at_yet():
    """It has inherited the watermark when it began, and the lease of a waiting shard has none (W5)."""
    state = ShardState(START, watermark=7, parents=("0",), waiting=True)
    assert ALONE.with_alone_leases({"s/1": state}).leases == {"s/1": Lease("w1", 3)}


def test_a_shard_that_waits_keeps_its_start():
    """The job began at a time, when the stream had been resharded: what is older in the child was not asked for."""
    at = StartingPosition.at_timestamp(1_000)
    states = {"s/0": ShardState(at), "s/1": ShardState(at, parents=("0",), waiting=True, seen_ms=900)}
    folded = table_from_bytes(table_to_bytes(ALONE.with_alone_leases(states)), "here")
    assert folded.initial_state("s/1") == ShardState(at, parents=("0",), seen_ms=900)


def test_a_start_of_its_own_is_not_taken_for_the_time_that_replaced_latest():
    states = {"s/1": ShardState(StartingPosition.at_timestamp(500), parents=("0",), waiting=True)}
    assert ALONE.with_alone_leases(states, pinned_ms=1_000).initial_state("s/1").seen_ms is None


def test_the_time_that_replaced_latest_is_the_start_of_the_group():
    folded = ALONE.with_alone_leases({}, pinned_ms=1_000)
    assert (folded.start, folded.is_latest) == (StartingPosition.at_timestamp(1_000), True)


def test_a_table_of_a_group_stays_as_it_is():
    table = LeaseTable(1, leases={"s/0": Lease("w1", 1)})
    assert table.with_alone_leases({"s/0": ShardState(START)}) is table


def test_who_runs_alone_is_stored():
    assert table_from_bytes(table_to_bytes(ALONE), "here") == ALONE
