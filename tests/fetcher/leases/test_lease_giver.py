"""E5: what a worker gives up, also when the lease table changes meanwhile."""

import pytest

from recordpublisher.fetcher.leases.lease_table import Lease, LeaseTable
from recordpublisher.fetcher.leases.lease_transfers import LeaseGiver
from recordpublisher.fetcher.leases.owned_leases import OwnedLeases
from recordpublisher.fetcher.leases.position_documents import StoredPosition
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.testing import run_virtual


class Heartbeats:
    async def write(self):
        pass


class Readers:
    """While a reader stops, `meanwhile` happens."""

    def __init__(self, meanwhile):
        self._meanwhile = meanwhile

    async def stop(self, shards):
        self._meanwhile()


@pytest.fixture
def owned():
    """A worker that has shard a since version 5."""
    leases = OwnedLeases("me")
    leases.prepare_take("t/a", 4, StoredPosition(ShardState(StartingPosition.trim_horizon())))
    leases.apply(LeaseTable(5, leases={"t/a": Lease("me", 5)}))
    return leases


def give(owned, *, before=lambda: None, during=lambda: None, is_leaving):
    """One round of a giver. It is asked for shard a; `before` and `during` the round the table changes."""

    async def take_checkpoint():
        owned.released  # noqa: B018 - as every heartbeat does

    giver = LeaseGiver(owned, Readers(during), Heartbeats(), take_checkpoint)
    giver.leave() if is_leaving else giver.request({"t/a"})
    before()
    run_virtual(giver.give_once())
    return giver


@pytest.mark.parametrize("is_leaving", [True, False])
def test_a_shard_whose_end_is_stored_while_its_reader_stops_is_not_given(owned, is_leaving):
    giver = give(owned, during=lambda: owned.apply(LeaseTable(6)), is_leaving=is_leaving)
    assert owned.released == {}
    assert not giver.is_busy


def test_a_shard_that_was_lost_before_the_round_does_not_keep_the_worker_busy(owned):
    """It would look at its group five times a second for ever."""
    giver = give(owned, before=lambda: owned.apply(LeaseTable(6)), is_leaving=False)
    assert not giver.is_busy
