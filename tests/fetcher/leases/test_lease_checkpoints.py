"""Checkpoints of a worker whose sink keeps the positions: rows are committed only with positions that cover them (S6)."""

import asyncio
from contextlib import asynccontextmanager

from recordpublisher.fetcher.leases.documents.lease_table import Lease, LeaseTable
from recordpublisher.fetcher.leases.documents.position_part import PositionKey, StoredPosition
from recordpublisher.fetcher.leases.lease_checkpoints import LeaseCheckpoints
from recordpublisher.fetcher.leases.owned_leases import OwnedLeases
from recordpublisher.fetcher.leases.position_store import PositionStore
from recordpublisher.fetcher.leases.shard_readers import ReadPositions
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition


def at(sequence):
    return StoredPosition(ShardState(StartingPosition.trim_horizon(), SequenceNumber(str(sequence))))


class Readers:
    """Both shards are at 7. `on_checkpoint` happens after the checkpoint has begun, and before its positions are read."""

    def __init__(self):
        self.on_checkpoint = lambda: None
        self.is_held = False

    @asynccontextmanager
    async def checkpoint(self, *, may_be_partial):
        await asyncio.sleep(0)
        self.on_checkpoint()
        self.is_held = True
        yield ReadPositions({"t/a": at(7), "t/b": at(7)})
        self.is_held = False


class Positions(PositionStore):
    """Remembers the commits, and whether the sink was held back meanwhile."""

    def __init__(self, readers):
        self._readers = readers
        self.commits = []

    async def commit(self, positions, shards=()):
        self.commits.append((dict(positions), set(shards), self._readers.is_held))

    async def read(self, record):
        raise NotImplementedError

    seal = read


def worker():
    """It has shard a, and has prepared shard b."""
    owned, readers = OwnedLeases("me"), Readers()
    owned.prepare("t/a", 1, at(1))
    owned.apply(LeaseTable(2, leases={"t/a": Lease("me", 2), "t/b": Lease("other", 1)}))
    owned.prepare("t/b", 2, at(2))
    positions = Positions(readers)
    return owned, readers, positions, LeaseCheckpoints(owned, readers, positions)


A, B = PositionKey("t/a", 2), PositionKey("t/b", 3)


async def test_a_checkpoint_commits_the_rows_of_its_leases_while_the_sink_is_held_back():
    _, _, positions, checkpoints = worker()
    await checkpoints.take_checkpoint(may_be_partial=False)
    assert positions.commits == [({A: at(7), B: at(2)}, {"t/a"}, True)]


async def test_what_is_prepared_is_committed_without_rows():
    _, _, positions, checkpoints = worker()
    await checkpoints.store_prepared()
    assert positions.commits == [({B: at(2)}, set(), False)]


async def test_rows_of_a_shard_that_began_after_the_checkpoint_wait_for_the_next_one():
    owned, readers, positions, checkpoints = worker()
    taken = LeaseTable(3, leases={"t/a": Lease("me", 2), "t/b": Lease("me", 3)})
    readers.on_checkpoint = lambda: owned.apply(taken)
    await checkpoints.store_prepared()
    await checkpoints.take_checkpoint(may_be_partial=False)
    assert positions.commits[-1] == ({A: at(7), B: at(2)}, {"t/a"}, True)
    await checkpoints.take_checkpoint(may_be_partial=False)
    assert positions.commits[-1] == ({A: at(7), B: at(7)}, {"t/a", "t/b"}, True)
