"""Checkpoints of a worker whose sink commits: rows are staged and committed only with positions that cover them (S6)."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from recordpublisher.fetcher.checkpoints.checkpoint_schedule import CheckpointAge
from recordpublisher.fetcher.leases.lease_table import Lease, LeaseTable
from recordpublisher.fetcher.leases.owned_leases import OwnedLeases
from recordpublisher.fetcher.leases.position_commits import PositionCommits
from recordpublisher.fetcher.leases.position_documents import PositionKey, StoredPosition
from recordpublisher.fetcher.leases.position_store import CheckpointPositions, PositionStore
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import FencedError, StoreUnavailableError
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition


def at(sequence):
    return StoredPosition(ShardState(StartingPosition.trim_horizon(), SequenceNumber(str(sequence))))


class Readers:
    """Both shards are at 7. `on_checkpoint` happens while the checkpoint waits for the sink, before its positions are read."""

    def __init__(self):
        self.on_checkpoint = lambda: None
        self.is_held = False

    @asynccontextmanager
    async def checkpoint(self, *, may_be_partial):
        await asyncio.sleep(0)
        self.on_checkpoint()
        self.is_held = True
        yield CheckpointPositions({"t/a": at(7), "t/b": at(7)}, is_before_commit=True)
        self.is_held = False


class Positions(PositionStore):
    """Remembers what is called, commits with their positions, and whether the sink was held back meanwhile."""

    def __init__(self, readers):
        self._readers = readers
        self.calls = []
        self.is_staging, self.on_stage = asyncio.Event(), asyncio.Event()
        self.on_stage.set()

    async def settle(self):
        self.calls.append("settle")

    async def stage(self):
        self.calls.append(("stage", self._readers.is_held))
        self.is_staging.set()
        await self.on_stage.wait()

    async def commit(self, positions, *, is_checkpoint=False):
        self.calls.append((dict(positions), is_checkpoint, self._readers.is_held))

    async def publish(self):
        self.calls.append(("publish", self._readers.is_held))

    @property
    def commits(self):
        return [call for call in self.calls if isinstance(call[0], dict)]

    async def read(self, record):
        raise NotImplementedError

    seal = read


def worker():
    """It has shard a, and has prepared shard b."""
    owned, readers = OwnedLeases("me"), Readers()
    owned.prepare_take("t/a", 1, at(1))
    owned.apply(LeaseTable(2, leases={"t/a": Lease("me", 2), "t/b": Lease("other", 1)}))
    owned.prepare_take("t/b", 2, at(2))
    positions = Positions(readers)
    return owned, readers, positions, PositionCommits(owned, readers, positions, CheckpointAge(SystemClock()))


A, B = PositionKey("t/a", 2), PositionKey("t/b", 3)


async def test_a_checkpoint_stages_and_commits_while_nothing_is_written_and_publishes_after_it():
    _, _, positions, checkpoints = worker()
    await checkpoints.take_checkpoint(may_be_partial=False)
    committed = ({A: at(7), B: at(2)}, True, True)
    assert positions.calls == ["settle", ("stage", True), "settle", committed, ("publish", False)]


async def test_what_is_prepared_is_committed_without_rows():
    _, _, positions, checkpoints = worker()
    await checkpoints.store_prepared()
    assert positions.calls == ["settle", ({B: at(2)}, False, False)]


async def test_what_is_prepared_does_not_wait_for_what_is_being_staged():
    _, _, positions, checkpoints = worker()
    positions.on_stage.clear()
    checkpoint = asyncio.ensure_future(checkpoints.take_checkpoint(may_be_partial=False))
    await positions.is_staging.wait()
    await checkpoints.store_prepared()
    assert positions.commits == [
        ({B: at(2)}, False, True)
    ]  # rows that are staged are not in it, nor the position behind them
    positions.on_stage.set()
    await checkpoint
    assert positions.commits[1:] == [({A: at(7), B: at(2)}, True, True)]


async def test_a_shard_that_began_while_the_checkpoint_waited_for_the_sink_is_part_of_it():
    """Its rows may be written already, and are staged: a position that is missing would let them come twice."""
    owned, readers, positions, checkpoints = worker()
    taken = LeaseTable(3, leases={"t/a": Lease("me", 2), "t/b": Lease("me", 3)})
    readers.on_checkpoint = lambda: owned.apply(taken)
    await checkpoints.store_prepared()
    await checkpoints.take_checkpoint(may_be_partial=False)
    assert positions.commits[-1] == ({A: at(7), B: at(7)}, True, True)


async def test_a_checkpoint_whose_worker_has_ended_stores_no_positions():
    """Its rows are dropped when the worker ends: the positions before them are kept (E1)."""
    _, _, positions, checkpoints = worker()
    positions.on_stage.clear()
    checkpoint = asyncio.ensure_future(checkpoints.take_checkpoint(may_be_partial=False))
    await positions.is_staging.wait()
    checkpoints.end()
    positions.on_stage.set()
    with pytest.raises(FencedError):
        await checkpoint
    assert positions.commits == []


async def test_a_shard_is_released_and_its_end_written_only_when_its_rows_are_published():
    """Else a commit that is taken back has rows of shards that other workers have read on."""
    owned, _, positions, checkpoints = worker()
    owned.stop({"t/a": 2})
    publish = positions.publish

    async def away():
        raise StoreUnavailableError("away")

    positions.publish = away
    with pytest.raises(StoreUnavailableError):
        await checkpoints.take_checkpoint(may_be_partial=False)
    await checkpoints.store_prepared()
    assert owned.released == {}
    positions.publish = publish
    await checkpoints.take_checkpoint(may_be_partial=False)
    assert owned.released == {"t/a": 2}
