"""The state of each shard of a group, as a job that runs alone would go on from it."""

from recordpublisher.fetcher.leases.group_store import states_of
from recordpublisher.fetcher.leases.lease_table import Lease, LeaseTable
from recordpublisher.fetcher.leases.position_documents import PositionKey, StoredPosition
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition

FIRST = StartingPosition.trim_horizon()
READ = ShardState(FIRST, SequenceNumber("7"), watermark=7)


def test_a_child_waits_until_each_parent_has_ended():
    table = LeaseTable(
        leases={
            "s/ended": Lease(epoch=1, ended=True, watermark=5, children=("s/first", "s/second")),
            "s/read": Lease("w", 2),
            "s/first": Lease(parents=("s/ended",)),
            "s/second": Lease(parents=("s/ended", "s/read")),
            "s/third": Lease(parents=("s/unknown",)),
        }
    )
    states, missing = states_of(table, {"w": {PositionKey("s/read", 2): StoredPosition(READ)}})

    assert missing == []
    assert {shard: state.waiting for shard, state in states.items()} == {
        "s/ended": False,
        "s/read": False,
        "s/first": False,
        "s/second": True,
        "s/third": True,
    }
    assert (states["s/ended"].ended, states["s/read"], states["s/first"].watermark) == (True, READ, 5)


def test_a_position_of_another_epoch_is_missing():
    table = LeaseTable(leases={"s/read": Lease("w", 2)})
    assert states_of(table, {"w": {PositionKey("s/read", 1): StoredPosition(READ)}}) == ({}, ["s/read"])
