"""The contract of state stores, for every back end (S5, S6)."""

from contextlib import asynccontextmanager, suppress

import pytest

from recordpublisher import ConfigurationError, FencedError, Properties, StateError
from recordpublisher.fetcher.leases.documents.group_store import LEASE_TABLE
from recordpublisher.fetcher.leases.documents.lease_table import LeaseTable
from recordpublisher.fetcher.leases.documents.lease_table_json import table_to_bytes
from recordpublisher.plugins.host.build_from_properties import build_state_store
from recordpublisher.plugins.host.manager import load_registry
from recordpublisher.plugins.stores.by_location import conditional_store_of
from recordpublisher.plugins.stores.fenced_state_stores import ConditionalStateStore
from recordpublisher.testing import StateStoreCase, StateStoreContract

from fakes.memory_store import MemoryStore


@pytest.fixture
async def stores(state_properties):
    """Makes stores of one job, as independent processes would."""
    made = []

    def make():
        made.append(build_state_store(load_registry(), state_properties))
        return made[-1]

    yield make
    for store in made:
        await store.close()


class TestEveryStore(StateStoreContract):
    @pytest.fixture(autouse=True)
    def _properties(self, state_properties):
        self.properties = state_properties

    @asynccontextmanager
    async def open_case(self):
        yield StateStoreCase(lambda: build_state_store(load_registry(), self.properties))


async def test_a_closed_store_opens_again(stores):
    store = stores()
    generation = await store.open_generation(0)
    await store.close()
    await store.store(0, generation, {"again": True})
    assert await store.load() == [{"again": True}]


async def test_a_fixed_number_of_subtasks_does_not_start_over_the_positions_of_a_group(stores, state_properties):  # E10
    uri = state_properties["flink.state.uri"]
    group = conditional_store_of(uri, "flink.state.uri", state_properties, job="job")
    await group.put_if_absent(LEASE_TABLE, table_to_bytes(LeaseTable()))
    await group.close()
    with pytest.raises(StateError, match="STATIC does not go on from these"):
        await stores().open_generation(0)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{half", "Expecting property name"),
        (b"[]", "no attribute"),
        (b"{}", "it has format 1, this version reads format 2"),
    ],
)
async def test_a_state_that_cannot_be_read_is_a_clear_error_and_is_kept(stores, state_properties, content, said):  # S5
    store = stores()
    generation = await store.open_generation(0)
    await store.store(0, generation, {"version": 1})
    beside = conditional_store_of(state_properties["flink.state.uri"], "uri", state_properties, job="job")
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
    store = ConditionalStateStore(memory := ForgetfulStore())
    generation = await store.open_generation(0)
    for number in range(10):
        with suppress(StateError):
            await store.store(0, generation, {"number": number})
    assert await store.load() == [{"number": 9}]

    await ConditionalStateStore(memory).open_generation(0)
    with pytest.raises(FencedError):
        await store.store(0, generation, {"number": 10})


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        ("redis://host", "no state store of that name is installed"),
        ("s3:///prefix", "s3://bucket/prefix"),
        ("dynamodb://table", "dynamodb://table/job"),
        ("postgresql://me:hunter2@", "the state is kept under this name"),
    ],
)
def test_an_error_about_a_uri_says_what_is_valid_and_hides_the_password(uri, said):  # C2, C3
    with pytest.raises(ConfigurationError, match=said) as raised:
        build_state_store(load_registry(), Properties({"flink.state.uri": uri, "aws.region": "us-east-1"}))
    assert "hunter2" not in str(raised.value)


def test_without_a_uri_there_is_no_store():
    assert build_state_store(load_registry(), Properties()) is None
