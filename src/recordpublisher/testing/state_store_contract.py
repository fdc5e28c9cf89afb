"""The contract of state stores (S5, S6) as tests. Subclass `StateStoreContract`, provide a case, and run pytest.

class TestRedisStore(StateStoreContract):
    @asynccontextmanager
    async def open_case(self):
        yield StateStoreCase(lambda: RedisStore(properties))
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from unittest import SkipTest

from recordpublisher.fetcher.checkpoints.state_store import StateStore
from recordpublisher.fetcher.sink import State
from recordpublisher.publishers.errors import FencedError

from .contract import Contract


@dataclass(frozen=True, slots=True)
class StateStoreCase:
    """`start` makes a store of one job, a new one at each call, as independent processes would. Nothing is stored yet."""

    start: Callable[[], StateStore]


class StateStoreContract(Contract[StateStoreCase]):
    """The tests. Implement `open_case`."""

    def test_a_first_start_finds_nothing(self) -> None:
        """There is a generation, and no state."""

        async def check(case: StateStoreCase) -> None:
            store = case.start()
            assert await store.open_generation(0) > 0
            assert await store.load() == []
            await store.close()

        self._check(check)

    def test_the_next_start_loads_the_stored_state(self) -> None:
        """The last one, in a later generation."""

        async def check(case: StateStoreCase) -> None:
            store = case.start()
            generation = await store.open_generation(0)
            for number in range(3):
                await store.store(0, generation, {"version": 1, "number": number})
            await store.close()
            following = case.start()
            assert await following.open_generation(0) > generation
            assert await following.load() == [{"version": 1, "number": 2}]
            await following.close()

        self._check(check)

    def test_a_replaced_start_cannot_store(self) -> None:
        """A process that was suspended, replaced and woken gets a FencedError, and changes nothing (S6)."""

        async def check(case: StateStoreCase) -> None:
            sleeper, successor = case.start(), case.start()
            old = await sleeper.open_generation(0)
            await sleeper.store(0, old, {"position": "old"})
            new = await successor.open_generation(0)
            for _ in range(2):
                assert not await _may_store(sleeper, 0, old, {"position": "too late"})
            assert await successor.load() == [{"position": "old"}]
            await successor.store(0, new, {"position": "new"})
            assert await successor.load() == [{"position": "new"}]
            await sleeper.close()
            await successor.close()

        self._check(check)

    def test_of_many_starts_the_last_may_store(self) -> None:
        """Generations grow, whoever takes them (S6)."""

        async def check(case: StateStoreCase) -> None:
            stores = [case.start() for _ in range(4)]
            generations = [await store.open_generation(0) for store in stores]
            allowed = [
                generation
                for store, generation in zip(stores, generations, strict=True)
                if await _may_store(store, 0, generation, {"generation": generation})
            ]
            assert generations == sorted(set(generations))
            assert allowed == generations[-1:], "only the newest generation may store"
            for store in stores:
                await store.close()

        self._check(check)

    def test_subtasks_do_not_fence_each_other(self) -> None:
        """Each has a generation and a snapshot of its own; `load` returns all of them, in the order of the subtasks."""

        async def check(case: StateStoreCase) -> None:
            store = case.start()
            generations = {subtask: await store.open_generation(subtask) for subtask in (10, 2, 0)}
            for subtask, generation in generations.items():
                await store.store(subtask, generation, {"subtask": subtask})
            assert await store.load() == [{"subtask": 0}, {"subtask": 2}, {"subtask": 10}]
            await store.close()

        self._check(check)

    def test_a_start_with_fewer_subtasks_fences_the_others(self) -> None:
        """Subtasks that the new start does not have cannot store any more; what they have stored is kept, and a later start may have them
        again (S6). Skipped for a store without `fence_subtasks_from`.
        """

        async def check(case: StateStoreCase) -> None:
            before, after = case.start(), case.start()
            if type(after).fence_subtasks_from is StateStore.fence_subtasks_from:
                raise SkipTest("this store has no fence_subtasks_from, which is optional")
            generations = {subtask: await before.open_generation(subtask) for subtask in range(3)}
            for subtask, generation in generations.items():
                await before.store(subtask, generation, {"subtask": subtask})
            kept = await after.open_generation(0)
            await after.fence_subtasks_from(1)
            assert [subtask for subtask in (1, 2) if await _may_store(before, subtask, generations[subtask], {})] == []
            assert await after.load() == [{"subtask": 0}, {"subtask": 1}, {"subtask": 2}]
            assert await _may_store(after, 0, kept, {"subtask": 0})
            assert await _may_store(before, 1, await before.open_generation(1), {"again": True})
            await before.close()
            await after.close()

        self._check(check)

    def test_the_generation_owns_the_state_and_not_the_object(self) -> None:
        """A store that did not open the generation may use it: what is compared is kept beside the state."""

        async def check(case: StateStoreCase) -> None:
            opener, user = case.start(), case.start()
            generation = await opener.open_generation(0)
            await user.store(0, generation, {"mine": True})
            assert not await _may_store(user, 0, generation - 1, {"mine": False})
            assert await opener.load() == [{"mine": True}]
            await opener.close()
            await user.close()

        self._check(check)


async def _may_store(store: StateStore, subtask: int, generation: int, state: State) -> bool:
    try:
        await store.store(subtask, generation, state)
    except FencedError:
        return False
    return True
