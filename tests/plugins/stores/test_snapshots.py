"""Snapshots in every conditional store: each start fences the one before (S5, S6)."""

from contextlib import suppress

import pytest

from recordpublisher import ConfigurationError, FencedError, Properties, StateError
from recordpublisher.fetcher.checkpoints.snapshot_store import SnapshotStore
from recordpublisher.fetcher.leases.documents.group_store import LEASE_TABLE
from recordpublisher.fetcher.leases.documents.lease_table import LeaseTable
from recordpublisher.fetcher.leases.documents.lease_table_json import table_to_bytes
from recordpublisher.plugins.host.build_from_properties import build_store
from recordpublisher.plugins.host.manager import load_registry
from recordpublisher.plugins.stores.by_location import conditional_store_of

from fakes.memory_store import MemoryStore


@pytest.fixture
async def stores(state_properties):
    """Makes the snapshots of one job, as independent processes would see them."""
    made = []

    def make():
        made.append(build_store(load_registry(), state_properties))
        return SnapshotStore(made[-1])

    yield make
    for store in made:
        await store.close()


async def may_store(store, subtask, generation, state):
    try:
        await store.store(subtask, generation, state)
    except FencedError:
        return False
    return True


async def test_the_next_start_loads_the_stored_state(stores):
    store, following = stores(), stores()
    assert await store.load() == []
    generation = await store.open_generation(0)
    assert generation > 0
    for number in range(3):
        await store.store(0, generation, {"version": 1, "number": number})
    assert await following.open_generation(0) > generation
    assert await following.load() == [{"version": 1, "number": 2}]


async def test_a_replaced_start_cannot_store(stores):
    sleeper, successor = stores(), stores()
    old = await sleeper.open_generation(0)
    await sleeper.store(0, old, {"position": "old"})
    new = await successor.open_generation(0)
    for _ in range(2):
        with pytest.raises(FencedError, match=f"generation {new} of subtask 0 owns"):
            await sleeper.store(0, old, {"position": "too late"})
    assert await successor.load() == [{"position": "old"}]
    await successor.store(0, new, {"position": "new"})
    assert await successor.load() == [{"position": "new"}]


async def test_of_many_starts_the_last_may_store(stores):
    starts = [stores() for _ in range(4)]
    generations = [await store.open_generation(0) for store in starts]
    allowed = [
        generation
        for store, generation in zip(starts, generations, strict=True)
        if await may_store(store, 0, generation, {"generation": generation})
    ]
    assert generations == sorted(set(generations))
    assert allowed == generations[-1:]


async def test_subtasks_do_not_fence_each_other(stores):
    store = stores()
    generations = {subtask: await store.open_generation(subtask) for subtask in (10, 2, 0)}
    for subtask, generation in generations.items():
        await store.store(subtask, generation, {"subtask": subtask})
    assert await store.load() == [{"subtask": 0}, {"subtask": 2}, {"subtask": 10}]


async def test_a_start_with_fewer_subtasks_fences_the_others(stores):
    before, after = stores(), stores()
    generations = {subtask: await before.open_generation(subtask) for subtask in range(3)}
    for subtask, generation in generations.items():
        await before.store(subtask, generation, {"subtask": subtask})
    kept = await after.open_generation(0)
    await after.fence_subtasks_from(1)
    assert [subtask for subtask in (1, 2) if await may_store(before, subtask, generations[subtask], {})] == []
    assert await after.load() == [{"subtask": 0}, {"subtask": 1}, {"subtask": 2}]
    assert await may_store(after, 0, kept, {"subtask": 0})
    assert await may_store(before, 1, await before.open_generation(1), {"again": True})


async def test_the_generation_owns_the_state_and_not_the_object(stores):
    opener, user = stores(), stores()
    generation = await opener.open_generation(0)
    await user.store(0, generation, {"mine": True})
    assert not await may_store(user, 0, generation - 1, {"mine": False})
    assert await opener.load() == [{"mine": True}]


async def test_a_closed_store_opens_again(stores):
    store = stores()
    generation = await store.open_generation(0)
    await store.close()
    await store.store(0, generation, {"again": True})
    assert await store.load() == [{"again": True}]


async def test_a_fixed_number_of_subtasks_does_not_start_over_the_positions_of_a_group(stores, state_properties):  # E10
    uri = state_properties["flink.state.uri"]
    group = conditional_store_of(uri, "flink.state.uri", state_properties)
    await group.put_if_absent(LEASE_TABLE, table_to_bytes(LeaseTable()))
    await group.close()
    with pytest.raises(StateError, match="STATIC does not continue from these"):
        await stores().open_generation(0)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{half", "malformed"),
        (b"[]", "Expected `object`"),
        (b"{}", "it has format 1, this version reads format 2"),
    ],
)
async def test_a_state_that_cannot_be_read_is_a_clear_error_and_is_kept(stores, state_properties, content, said):  # S5
    store = stores()
    generation = await store.open_generation(0)
    await store.store(0, generation, {"version": 1})
    beside = conditional_store_of(state_properties["flink.state.uri"], "uri", state_properties)
    await beside.compare_and_set("subtask-0", content, (await beside.get("subtask-0")).version)
    await beside.close()

    for _ in range(2):
        with pytest.raises(StateError, match=rf"subtask-0.*cannot be read: .*{said}") as raised:
            await stores().load()
    assert "s3cr3t" not in str(raised.value)
    with pytest.raises(StateError, match=rf"subtask-0.*cannot be read: .*{said}"):
        await stores().open_generation(0)


class ForgetfulStore(MemoryStore):
    """Loses the response of every second write."""

    async def compare_and_set(self, name, value, expected):
        version = await super().compare_and_set(name, value, expected)
        if self.writes % 2:
            raise StateError("no response")
        return version


async def test_a_write_whose_response_was_lost_is_recognised_by_the_next_one():  # S6
    store = SnapshotStore(memory := ForgetfulStore())
    generation = await store.open_generation(0)
    for number in range(10):
        with suppress(StateError):
            await store.store(0, generation, {"number": number})
    assert await store.load() == [{"number": 9}]

    await SnapshotStore(memory).open_generation(0)
    with pytest.raises(FencedError):
        await store.store(0, generation, {"number": 10})


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("redis://host", "Valid: a folder, s3://bucket/prefix"),
        ("s3:///prefix", "s3://bucket/prefix"),
        ("dynamodb://table", "dynamodb://table/job"),
        ("postgresql://me:hunter2@", "the table keeps the state of each job under its name"),
    ],
)
def test_an_error_about_a_uri_says_what_is_valid_and_hides_the_password(uri, said):  # C2, C3
    with pytest.raises(ConfigurationError, match=said) as raised:
        build_store(load_registry(), Properties({"flink.state.uri": uri, "aws.region": "us-east-1"}))
    assert "hunter2" not in str(raised.value)


def test_without_a_uri_there_is_no_store():
    assert build_store(load_registry(), Properties()) is None
