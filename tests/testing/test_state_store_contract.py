"""A simple state store passes the contract, and each kind of broken store fails one of its tests."""

from contextlib import asynccontextmanager

import pytest

from recordpublisher import FencedError, StateStore
from recordpublisher.testing import StateStoreCase, StateStoreContract, run_virtual


class DictStore(StateStore):
    """A job's snapshots and generations in two dicts."""

    def __init__(self, states, generations):
        self.states, self.generations = states, generations

    async def load(self):
        return [self.states[subtask] for subtask in sorted(self.states)]

    async def open_generation(self, subtask):
        self.generations[subtask] = max([0, *self.generations.values()]) + 1
        return self.generations[subtask]

    async def store(self, subtask, generation, state):
        if generation != self.generations[subtask]:
            raise FencedError(f"generation {generation} of subtask {subtask} was replaced")
        self.states[subtask] = state


class DictContract(StateStoreContract):
    store = DictStore

    @asynccontextmanager
    async def open_case(self):
        states, generations = {}, {}
        yield StateStoreCase(lambda: self.store(states, generations))

    def execute(self, work):
        run_virtual(work)


class TestAStoreOfADict(DictContract):
    """The contract, on virtual time."""


class NeverFences(DictStore):
    """Stores for every generation."""

    async def store(self, subtask, generation, state):
        self.states[subtask] = state


class KeepsFirst(DictStore):
    """Stores only the first snapshot."""

    async def store(self, subtask, generation, state):
        await super().store(subtask, generation, self.states.get(subtask, state))


class OneForAll(DictStore):
    """Has one generation for all subtasks."""

    async def open_generation(self, subtask):
        generation = await super().open_generation(subtask)
        self.generations.update(dict.fromkeys(self.generations, generation))
        return generation


class RemembersItsOwn(DictStore):
    """Compares with the generation that this object opened."""

    def __init__(self, states, generations):
        super().__init__(states, dict(generations))


class RepeatsGenerations(DictStore):
    """Gives every start the same generation."""

    async def open_generation(self, subtask):
        return self.generations.setdefault(subtask, 1)


class Unordered(DictStore):
    """Returns the snapshots as they were stored."""

    async def load(self):
        return list(self.states.values())


@pytest.mark.parametrize(
    ("broken", "test"),
    [
        (NeverFences, "test_a_replaced_start_cannot_store"),
        (KeepsFirst, "test_the_next_start_loads_the_stored_state"),
        (OneForAll, "test_subtasks_do_not_fence_each_other"),
        (RemembersItsOwn, "test_a_replaced_start_cannot_store"),
        (RepeatsGenerations, "test_of_many_starts_the_last_may_store"),
        (Unordered, "test_subtasks_do_not_fence_each_other"),
    ],
)
def test_a_broken_store_is_found(broken, test):
    contract = DictContract()
    contract.store = broken

    with pytest.raises((AssertionError, FencedError)):
        getattr(contract, test)()


def test_a_store_that_knows_only_its_own_generation_is_found():
    contract = DictContract()
    contract.store = RemembersItsOwn

    with pytest.raises(KeyError):
        contract.test_the_generation_owns_the_state_and_not_the_object()
