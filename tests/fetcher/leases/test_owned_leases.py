"""E5, E9: what a worker stores for its shards, and what the lease table says of them."""

import pytest

from recordpublisher.fetcher.leases.lease_table import AloneOwner, Lease, LeaseTable, ShardEnd
from recordpublisher.fetcher.leases.owned_leases import OwnedLeases
from recordpublisher.fetcher.leases.position_documents import PositionKey, StoredPosition
from recordpublisher.fetcher.leases.position_store import CheckpointPositions
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.fetcher.sink import RevocationReason
from recordpublisher.publishers.errors import ImpossibleStateError
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition


def at(position, *, ended=False, children=()):
    state = ShardState(StartingPosition.trim_horizon(), SequenceNumber(str(position)), watermark=position, ended=ended)
    return StoredPosition(state, dict.fromkeys(children, ("t/a",)))


def table(version, **owners):
    """Leases by shard: the owner, and the epoch."""
    return LeaseTable(version, leases={f"t/{shard}": Lease(*each) for shard, each in owners.items()})


@pytest.fixture
def owned():
    """A worker that has shard a since epoch 5, at position 10."""
    leases = OwnedLeases("me")
    leases.prepare_take("t/a", 4, at(10))
    commit(leases, leases.positions_with_prepared())
    leases.apply(table(5, a=("me", 5)))
    return leases


def commit(leases, positions):
    leases.on_commit(positions)
    leases.on_published(positions)


def take_checkpoint(leases, **positions):
    current = {f"t/{shard}": each for shard, each in positions.items()}
    commit(leases, leases.positions(leases.checkpoint_scope(), CheckpointPositions(current)))


def test_a_prepared_shard_begins_when_the_table_says_so_whatever_the_answer_said():
    leases = OwnedLeases("me")
    leases.prepare_take("t/a", 4, at(10))
    assert leases.apply(table(4, a=("other", 2))).begun == {}
    assert leases.prepared_at(4) == {"t/a": 5}
    changes = leases.apply(table(7, a=("me", 5)))
    assert changes.begun == {"t/a": at(10)}
    assert set(leases.shards) == {"t/a"}
    assert leases.prepared_at(4) == {}


def test_what_was_prepared_is_dropped_only_when_a_later_version_says_otherwise():
    leases = OwnedLeases("me")
    leases.prepare_take("t/a", 4, at(10))
    leases.apply(table(4, a=("other", 2)))
    assert PositionKey("t/a", 5) in leases.positions_with_prepared()
    assert leases.apply(table(5, a=("other", 2))).begun == {}
    assert leases.positions_with_prepared() == {}


def test_a_take_that_follows_others_keeps_its_epoch():
    leases = OwnedLeases("me")
    leases.prepare_take("t/a", 4, at(10))
    leases.on_take({"t/a": 5}, 6)
    assert leases.apply(table(6, a=("other", 2))).begun == {}
    assert leases.prepared_at(6) == {"t/a": 5}
    assert leases.apply(table(7, a=("me", 5))).begun == {"t/a": at(10)}


def test_a_shard_that_the_table_gives_to_another_is_lost(owned):
    assert owned.apply(table(6, a=("other", 6))).revoked == {"t/a": RevocationReason.LOST}
    assert not owned.shards
    assert owned.positions_with_prepared() == {}


def test_a_shard_that_another_takes_before_its_last_position_is_stored_is_lost(owned):
    owned.stop({"t/a": 5})
    assert owned.apply(table(6, a=("other", 6))).revoked_for(RevocationReason.LOST) == ["t/a"]


def test_a_released_shard_that_another_takes_is_given(owned):
    owned.stop({"t/a": 5})
    take_checkpoint(owned, a=at(12))
    assert owned.apply(table(6, a=("other", 6))).revoked_for(RevocationReason.GIVEN) == ["t/a"]


@pytest.mark.parametrize("leases", [{"t/a": Lease(None, 5, True, children=("t/b",))}, {}])
def test_a_shard_whose_end_is_stored_has_ended_also_when_its_lease_is_removed(owned, leases):
    take_checkpoint(owned, a=at(15, ended=True, children=["t/b"]))
    assert owned.apply(LeaseTable(6, leases=leases)).revoked == {"t/a": RevocationReason.ENDED}


def test_a_shard_whose_end_another_worker_has_written_has_ended(owned):
    leases = {"t/a": Lease(None, 5, True, children=("t/b",))}
    assert owned.apply(LeaseTable(6, leases=leases)).revoked == {"t/a": RevocationReason.ENDED}


def test_a_shard_that_has_not_ended_and_has_no_lease_left_was_deleted(owned):
    assert owned.apply(table(6)).revoked == {"t/a": RevocationReason.DELETED}


def test_a_worker_that_a_job_without_a_group_has_replaced_has_lost_its_shards(owned):
    assert owned.apply(LeaseTable(6, alone=AloneOwner("other", 6))).revoked == {"t/a": RevocationReason.LOST}


def test_a_shard_that_was_never_prepared_cannot_be_owned(owned):
    with pytest.raises(ImpossibleStateError, match="has not asked for it"):
        owned.apply(table(6, a=("me", 5), b=("me", 6)))


def test_a_stopped_shard_is_released_when_its_last_position_is_stored(owned):
    owned.stop({"t/a": 5})
    assert owned.released == {}
    positions = owned.positions(owned.checkpoint_scope(), CheckpointPositions({"t/a": at(12)}))
    owned.on_commit(positions)
    assert owned.released == {}
    owned.on_published(positions)
    assert owned.released == {"t/a": 5}
    assert owned.reading == set()


def test_a_shard_that_is_lost_while_its_reader_stops_is_not_stopped(owned):
    """Its end was stored, for example. If the worker has it again by then, that is another lease, whose reader goes on."""
    leases = owned.leases_of(["t/a", "t/other"])
    assert leases == {"t/a": 5}
    owned.apply(table(6, a=("other", 6)))
    owned.stop(leases)
    assert owned.released == {}
    owned.prepare_take("t/a", 8, at(20))
    owned.apply(table(9, a=("me", 9)))
    owned.stop(leases)
    assert owned.reading == {"t/a"}


def test_a_checkpoint_that_began_before_the_stop_does_not_have_the_last_position(owned):
    scope = owned.checkpoint_scope()
    owned.stop({"t/a": 5})
    commit(owned, owned.positions(scope, CheckpointPositions({"t/a": at(11)})))
    assert owned.released == {}
    take_checkpoint(owned, a=at(12))
    assert owned.released == {"t/a": 5}


def test_what_was_released_and_what_is_prepared_are_stored_beside_each_other(owned):
    """It takes back what it gave up. If another take wins, the released position is the only one of the shard."""
    owned.stop({"t/a": 5})
    take_checkpoint(owned, a=at(12))
    owned.prepare_take("t/a", 8, at(12))
    assert owned.positions_with_prepared().keys() == {PositionKey("t/a", 5), PositionKey("t/a", 9)}
    changes = owned.apply(table(9, a=("me", 9)))
    assert (changes.revoked, changes.begun) == ({"t/a": RevocationReason.GIVEN}, {"t/a": at(12)})
    assert owned.reading == {"t/a"}


def test_a_checkpoint_has_no_position_of_an_earlier_lease_of_the_shard(owned):
    scope = owned.checkpoint_scope()
    owned.apply(table(6, a=("other", 6)))
    owned.prepare_take("t/a", 8, at(20))
    commit(owned, owned.positions_with_prepared())
    owned.apply(table(9, a=("me", 9)))
    assert owned.positions(scope, CheckpointPositions({"t/a": at(11)})) == {PositionKey("t/a", 9): at(20)}
    assert owned.covered(scope, {"t/a"}) == set()


def test_nothing_older_is_stored_after_a_commit_whose_outcome_is_unknown(owned):
    owned.on_commit(owned.positions(owned.checkpoint_scope(), CheckpointPositions({"t/a": at(15)})))
    assert owned.positions_with_prepared() == {PositionKey("t/a", 5): at(15)}


def test_an_end_is_known_when_it_is_stored_with_its_children(owned):  # E7
    ended = at(15, ended=True, children=["t/b", "t/c"])
    positions = owned.positions(owned.checkpoint_scope(), CheckpointPositions({"t/a": ended}))
    owned.on_commit(positions)
    assert owned.ends == {}
    owned.on_published(positions)
    assert owned.ends == {"t/a": ShardEnd(15, {"t/b": ("t/a",), "t/c": ("t/a",)})}
    assert owned.reading == set()


def test_an_end_that_names_no_children_is_one_too(owned):
    """The source lists its shards: its children are found there (S3)."""
    take_checkpoint(owned, a=at(15, ended=True))
    assert owned.ends == {"t/a": ShardEnd(15, {})}


def test_a_stopped_shard_is_released_when_the_sink_is_done_with_it(owned):
    owned.stop({"t/a": 5})
    scope, key = owned.checkpoint_scope(), PositionKey("t/a", 5)
    assert owned.positions(scope, CheckpointPositions({"t/a": at(11)}, {"t/a"})) == {key: at(11)}
    commit(owned, owned.positions(scope, CheckpointPositions({"t/a": at(11)}, {"t/a"})))
    assert (owned.released, owned.unfinished) == ({}, {"t/a"})
    commit(owned, owned.positions(scope, CheckpointPositions({}, {"t/a"})))
    assert (owned.released, owned.unfinished) == ({}, {"t/a"})
    commit(owned, owned.positions(scope, CheckpointPositions({"t/a": at(12)})))
    assert (owned.released, owned.unfinished) == ({"t/a": 5}, set())


def test_a_stopped_shard_that_is_lost_is_waited_for_no_more(owned):
    owned.stop({"t/a": 5})
    commit(owned, owned.positions(owned.checkpoint_scope(), CheckpointPositions({}, {"t/a"})))
    owned.apply(table(6, a=("other", 6)))
    assert owned.unfinished == set()
