"""The positions of a job that runs alone, in every conditional store: each start fences the one before (S5, S6)."""

from contextlib import suppress

import pytest

from recordpublisher import ConfigurationError, FencedError, Properties, StateError
from recordpublisher.fetcher.leases.group_store import LEASE_TABLE
from recordpublisher.plugins.host.build_from_properties import build_store
from recordpublisher.plugins.host.plugin_loading import load_registry
from recordpublisher.plugins.stores.by_location import conditional_store_of

from fakes.memory_store import MemoryStore
from fakes.stored_job import SHARD, alone_worker, snapshot_at, states_in


@pytest.fixture
async def starts(state_properties):
    """Makes the starts of one job, as independent processes; the last store that was opened is `starts.store`."""
    made = []

    def make():
        made.append(build_store(load_registry(), state_properties))
        make.store = made[-1]
        return alone_worker(made[-1])

    yield make
    for store in made:
        await store.close()


async def stored_position(store):
    return (await states_in(store))[SHARD]["position"]


async def may_store(start, sequence):
    try:
        await start.store(snapshot_at(sequence))
    except FencedError:
        return False
    return True


async def test_the_next_start_loads_the_stored_state(starts):
    first, following = starts(), starts()
    epoch, states = await first.open()
    assert states == []
    for number in range(3):
        await first.store(snapshot_at(number))
    later, (snapshot,) = await following.open()
    assert later > epoch
    assert snapshot["shards"][SHARD]["position"] == "2"


async def test_a_replaced_start_cannot_store(starts):
    sleeper, successor = starts(), starts()
    await sleeper.open()
    await sleeper.store(snapshot_at(1))
    await successor.open()
    for _ in range(2):
        with pytest.raises(FencedError, match=f"worker {sleeper.name} was replaced"):
            await sleeper.store(snapshot_at(7))
    assert await stored_position(starts.store) == "1"
    await successor.store(snapshot_at(2))
    assert await stored_position(starts.store) == "2"


async def test_of_many_starts_the_last_may_store(starts):
    several = [starts() for _ in range(4)]
    epochs = [(await start.open())[0] for start in several]
    allowed = [epoch for epoch, start in zip(epochs, several, strict=True) if await may_store(start, epoch)]
    assert epochs == sorted(set(epochs))
    assert allowed == epochs[-1:]


async def test_a_closed_store_opens_again(starts):
    start = starts()
    await start.open()
    await starts.store.close()
    await start.store(snapshot_at(5))
    assert await stored_position(starts.store) == "5"


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{half", "malformed"),
        (b"[]", "Expected `object`"),
        (b"{}", "Object missing required field"),
    ],
)
async def test_a_state_that_cannot_be_read_is_a_clear_error_and_is_kept(starts, state_properties, content, said):  # S5
    await starts().open()
    beside = conditional_store_of(state_properties["flink.state.uri"], "uri", state_properties)
    await beside.compare_and_set(LEASE_TABLE, content, (await beside.get(LEASE_TABLE)).version)
    await beside.close()

    for _ in range(2):
        with pytest.raises(StateError, match=rf"group/leases.*cannot be read: .*{said}") as raised:
            await states_in(starts.store)
    assert "s3cr3t" not in str(raised.value)
    with pytest.raises(StateError, match=rf"group/leases.*cannot be read: .*{said}"):
        await starts().open()


class ForgetfulStore(MemoryStore):
    """Loses the response of every second write."""

    async def compare_and_set(self, name, value, expected):
        version = await super().compare_and_set(name, value, expected)
        if self.writes % 2:
            raise StateError("no response")
        return version


async def test_a_write_whose_response_was_lost_is_recognised_by_the_next_one():  # S6
    memory = ForgetfulStore()
    start = alone_worker(memory)
    with suppress(StateError):
        await start.open()
    await start.open()
    for number in range(10):
        with suppress(StateError):
            await start.store(snapshot_at(number))
    assert await stored_position(memory) == "9"

    later = alone_worker(memory)
    for _ in range(5):
        with suppress(StateError):
            await later.open()
    with pytest.raises(FencedError):
        await start.store(snapshot_at(10))


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("pigeon://host", "Valid: a folder, s3://bucket/prefix"),
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
