"""E2, E3: positions in parts: only parts that changed are written, and a taker seals all that the record names."""

from dataclasses import replace

import pytest

from recordpublisher.fetcher.leases.group_store import PARTS_PREFIX, GroupStore
from recordpublisher.fetcher.leases.position_documents import PositionKey, PositionPart, StoredPosition
from recordpublisher.fetcher.leases.position_store import PartPositionStore
from recordpublisher.fetcher.leases.worker_record import WorkerRecord
from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.errors import FencedError, StoreUnavailableError
from recordpublisher.publishers.positions import SequenceNumber, StartingPosition

from fakes.leases.faulty_store import FaultyStore


class Owner:
    """A worker that writes positions in parts of two shards, and names them."""

    def __init__(self, store, name="x"):
        self.named = []
        self.group = GroupStore(store, 5.0)
        self.positions = PartPositionStore(self.group, name, 2, self._name)

    async def _name(self):
        self.named.append(self.positions.parts)

    @property
    def record(self):
        return WorkerRecord("x", 1, parts=self.named[-1], is_sealed=True)


def positions(**numbers):
    start = StartingPosition.trim_horizon()
    return {
        PositionKey(f"t/{shard}", 3): StoredPosition(ShardState(start, SequenceNumber(str(number))))
        for shard, number in numbers.items()
    }


@pytest.fixture
def store():
    return FaultyStore()


@pytest.fixture
def owner(store):
    return Owner(store)


@pytest.fixture
def taker(store):
    return Owner(store, "y").positions


def written(store):
    return [name.removeprefix(PARTS_PREFIX) for kind, name in store.calls if kind == "write"]


async def test_only_parts_that_changed_are_written(store, owner):
    await owner.positions.commit(positions(a=1, b=1, c=1))
    assert written(store) == ["x/0", "x/1"]
    store.calls.clear()
    await owner.positions.commit(positions(a=1, b=1, c=2))
    assert written(store) == ["x/1"]
    await owner.positions.commit(positions(a=1, c=2, d=1))
    assert written(store) == ["x/1", "x/0"]
    assert await owner.positions.read(owner.record) == positions(a=1, c=2, d=1)
    assert owner.named == [2]


async def test_a_part_is_created_before_the_record_names_it(store, owner):
    async def check():
        owner.named.append(owner.positions.parts)
        assert f"{PARTS_PREFIX}x/0" in store.values

    owner.positions._name_parts = check

    await owner.positions.commit(positions(a=1))
    assert owner.named == [1]


async def test_a_commit_counts_only_when_the_record_names_its_parts(owner):
    name_parts = owner.positions._name_parts

    async def fail():
        raise StoreUnavailableError("no answer")

    owner.positions._name_parts = fail
    with pytest.raises(StoreUnavailableError):
        await owner.positions.commit(positions(a=1))
    owner.positions._name_parts = name_parts
    await owner.positions.commit(positions(a=1))
    assert owner.named == [1]


async def test_a_part_whose_write_got_no_answer_is_written_again(store, owner):
    await owner.positions.commit(positions(a=1))
    store.lose_answers.append(f"{PARTS_PREFIX}x/0")
    with pytest.raises(StoreUnavailableError):
        await owner.positions.commit(positions(a=2))
    await owner.positions.commit(positions(a=1))
    assert await owner.positions.read(owner.record) == positions(a=1)


async def test_a_sealed_worker_commits_nothing_more(owner, taker):
    await owner.positions.commit(positions(a=1, b=1, c=1))
    assert await taker.seal(owner.record) == positions(a=1, b=1, c=1)
    with pytest.raises(FencedError):
        await owner.positions.commit(positions(a=2, b=1, c=1))
    assert await taker.seal(owner.record) == positions(a=1, b=1, c=1)


async def test_a_commit_that_arrives_while_the_part_is_sealed_is_not_lost(store, owner, taker):
    await owner.positions.commit(positions(a=1))
    store.lose_requests.append(f"{PARTS_PREFIX}x/0")
    with pytest.raises(StoreUnavailableError):
        await owner.positions.commit(positions(a=7))

    def land(name):
        if store.late:
            store.late.pop()()

    store.before_write = land
    assert await taker.seal(owner.record) == positions(a=7)
    part = PositionPart.from_bytes(store.values[f"{PARTS_PREFIX}x/0"].value, "part")
    assert (part.is_sealed, part.positions) == (True, positions(a=7))


async def test_parts_that_the_record_does_not_name_are_not_read(owner, taker):
    await owner.positions.commit(positions(a=1, b=1, c=1))
    assert await taker.seal(WorkerRecord("x", 1, parts=1, is_sealed=True)) == positions(a=1, b=1)


@pytest.mark.parametrize(("later_ms", "is_written"), [(299_999, False), (300_000, True)])
async def test_a_shard_at_rest_is_stored_again_when_its_last_read_is_five_minutes_newer(
    owner, store, later_ms, is_written
):
    at_tip = {key: replace(each, state=replace(each.state, tip_ms=7)) for key, each in positions(a=1).items()}
    later = {key: replace(each, state=replace(each.state, tip_ms=7 + later_ms)) for key, each in at_tip.items()}
    for given in (positions(a=1), at_tip, later):  # the first read at the tip is stored at once
        before = store.writes
        await owner.positions.commit(given)
        wrote = store.writes > before
    assert wrote is is_written
    assert (await owner.group.read_part("x", 0)).document.positions == (later if is_written else at_tip)


async def test_a_read_at_the_tip_by_a_clock_that_was_set_back_is_stored(owner):  # S5
    """With the time in the future that was stored before, records that expire unread would not count as lost."""
    ahead = {key: replace(each, state=replace(each.state, tip_ms=10**12)) for key, each in positions(a=1).items()}
    right = {key: replace(each, state=replace(each.state, tip_ms=10**9)) for key, each in ahead.items()}
    await owner.positions.commit(ahead)
    assert await owner.positions.commit(right)
    assert await owner.positions.read(owner.record) == right


async def test_a_position_that_moves_is_stored_with_its_time(owner):
    await owner.positions.commit(positions(a=1))
    await owner.positions.commit(positions(a=2))
    assert (await owner.group.read_part("x", 0)).document.positions == positions(a=2)
