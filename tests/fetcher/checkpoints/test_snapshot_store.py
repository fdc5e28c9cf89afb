"""SubtaskCheckpoints: a subtask stores under the generation of its start (S6)."""

from recordpublisher.fetcher.checkpoints.snapshot_store import SubtaskCheckpoints
from recordpublisher.testing.virtual_time import run_virtual

from fakes.snapshots import Snapshots


def test_a_store_sees_this_starts_generation_and_its_parallelism():  # S6
    calls = []

    class Store(Snapshots):
        async def open_generation(self, subtask):
            return 4

        async def fence_subtasks_from(self, first):
            calls.append(first)

        async def load(self):
            return [{"old": 1}]

        async def store(self, subtask, generation, state):
            calls.append((subtask, generation, state))

    async def job():
        checkpoints = SubtaskCheckpoints(Store(), 2, 3)
        opened = await checkpoints.open()
        await checkpoints.store({"new": 1})
        return opened

    assert run_virtual(job()) == (4, [{"old": 1}])
    assert calls == [3, (2, 4, {"new": 1})]
