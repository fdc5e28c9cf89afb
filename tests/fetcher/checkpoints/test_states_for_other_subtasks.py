"""S5: when the parallelism changes, no snapshot drops state that another subtask still needs, whichever starts first or fails."""

import itertools
import random

import pytest

from recordpublisher.fetcher.checkpoints.snapshot import merge_snapshots, states_for_other_subtasks

SHARDS = [f"s/{number}" for number in range(6)]


def owner(key, parallelism):
    return int(key[2:]) % parallelism


class Store:
    """One snapshot for each subtask number, as in every store and sink; `done` is what was really written."""

    def __init__(self):
        self.places = {}
        self.done = dict.fromkeys(SHARDS, 0)

    def start(self, subtask, parallelism):
        """A subtask opens: it loads the snapshots, stores its own, advances by one, and stores that."""
        found = list(self.places.values())
        restored = merge_snapshots(found)
        own = [key for key in SHARDS if owner(key, parallelism) == subtask]
        known = {key: restored.shards.get(key) for key in own}
        for key, state in known.items():
            position = 0 if state is None or state.position is None else int(state.position.sequence)
            assert position == self.done[key], (
                f"{key} was written up to {self.done[key]}, {subtask} of {parallelism} begins at {position}"
            )
        carried = states_for_other_subtasks(found, subtask, set(SHARDS) - set(own))
        for progress in (0, 1):
            entries = {}
            for key in own:
                self.done[key] += progress
                entries[key] = {"start": "TRIM_HORIZON"} | ({"position": str(self.done[key])} if self.done[key] else {})
            self.places[subtask] = {
                "version": 2,
                "generation": restored.generation + 1,
                "subtask": subtask,
                "parallelism": parallelism,
                "pinnedStartMs": None,
                "shards": entries,
                **({"statesForOthers": carried} if carried else {}),
            }


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
@pytest.mark.parametrize(("before", "after"), [(2, 3), (3, 2), (1, 3), (3, 1)])
def test_every_order_of_opening_finds_every_position(before, after, order):
    store = Store()
    for subtask in range(before):
        store.start(subtask, before)
    for subtask in order:
        if subtask < after:
            store.start(subtask, after)


@pytest.mark.parametrize("seed", range(200))
def test_starts_that_die_before_all_have_opened_lose_nothing(seed):
    chance, store = random.Random(seed), Store()
    for _ in range(12):
        parallelism = chance.choice([1, 2, 3, 4])
        subtasks = chance.sample(range(parallelism), chance.randint(1, parallelism))
        for subtask in subtasks:
            store.start(subtask, parallelism)


def test_what_everybody_has_read_is_carried_no_further():
    store = Store()
    for parallelism in (2, 3):
        for subtask in range(parallelism):
            store.start(subtask, parallelism)
    assert any("statesForOthers" in place for place in store.places.values())

    for subtask in range(3):
        store.start(subtask, 3)
    assert not any("statesForOthers" in place for place in store.places.values())
