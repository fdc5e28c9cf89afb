"""E1: a worker's documents are written under its own last version, and never after they were sealed or deleted."""

import asyncio

import pytest

from recordpublisher.fetcher.conditional_store import ConflictError
from recordpublisher.fetcher.leases.group_store import WORKERS, GroupStore
from recordpublisher.fetcher.leases.worker_record import WorkerRecord
from recordpublisher.publishers.errors import FencedError, StoreUnavailableError
from recordpublisher.testing import run_virtual

from fakes.leases.faulty_store import FaultyStore

NAME = f"{WORKERS}x"


@pytest.fixture
def store():
    return FaultyStore()


@pytest.fixture
def group(store):
    return GroupStore(store, 5.0)


async def stored(group):
    return (await group.read_records())["x"].document


async def test_a_record_follows_the_one_before(group):
    document = group.own_record("x")
    for beat in (1, 2, 3):
        await document.write(WorkerRecord("x", beat))
    assert await stored(group) == WorkerRecord("x", 3)


async def test_a_write_whose_answer_was_lost_is_followed_by_the_next(store, group):
    document = group.own_record("x")
    await document.write(WorkerRecord("x", 1))
    store.lose_answers.append(NAME)
    with pytest.raises(StoreUnavailableError):
        await document.write(WorkerRecord("x", 2))
    assert (await stored(group)).beat == 2
    await document.write(WorkerRecord("x", 3))
    assert (await stored(group)).beat == 3


async def test_a_first_write_whose_answer_was_lost_is_followed_by_the_next(store, group):
    document = group.own_record("x")
    store.lose_answers.append(NAME)
    with pytest.raises(StoreUnavailableError):
        await document.write(WorkerRecord("x", 1))
    await document.write(WorkerRecord("x", 2))
    assert (await stored(group)).beat == 2


async def test_a_write_that_arrives_late_does_not_replace_a_later_one(store, group):
    document = group.own_record("x")
    await document.write(WorkerRecord("x", 1))
    store.lose_requests.append(NAME)
    with pytest.raises(StoreUnavailableError):
        await document.write(WorkerRecord("x", 2))
    await document.write(WorkerRecord("x", 3))
    with pytest.raises(ConflictError):
        store.late.pop()()
    assert (await stored(group)).beat == 3


async def test_a_sealed_record_is_never_written_again(group):
    document = group.own_record("x")
    await document.write(WorkerRecord("x", 1))
    await group.seal_record((await group.read_records())["x"])
    with pytest.raises(FencedError, match=r"workers/x was sealed"):
        await document.write(WorkerRecord("x", 2))
    assert await stored(group) == WorkerRecord("x", 1, is_sealed=True)


async def test_a_deleted_record_does_not_come_back(group):
    document = group.own_record("x")
    await document.write(WorkerRecord("x", 1))
    await group.delete_worker("x")
    with pytest.raises(FencedError):
        await document.write(WorkerRecord("x", 2))
    assert await group.read_records() == {}


async def test_a_worker_is_sealed_only_if_its_heartbeat_is_still_the_one_that_was_read(group):
    document = group.own_record("x")
    await document.write(WorkerRecord("x", 1))
    seen = (await group.read_records())["x"]
    await document.write(WorkerRecord("x", 2))
    with pytest.raises(ConflictError):
        await group.seal_record(seen)
    assert await stored(group) == WorkerRecord("x", 2)
    sealed = await group.seal_record((await group.read_records())["x"])
    assert sealed == WorkerRecord("x", 2, is_sealed=True) == await stored(group)


def test_a_store_that_does_not_answer_is_unavailable():
    class SilentStore(FaultyStore):
        async def list(self, prefix, *, consistent=True):
            await asyncio.Event().wait()

    with pytest.raises(StoreUnavailableError, match="memory did not answer for 5 s"):
        run_virtual(GroupStore(SilentStore(), 5.0).read_records())
