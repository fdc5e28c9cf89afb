"""A change of the parallelism with a store that has one snapshot for each subtask (S5): found by the simulation."""

import json

from recordpublisher.fetcher.checkpoints.snapshot_store import SubtaskCheckpoints
from recordpublisher.fetcher.pipeline.bounds import Bounds
from recordpublisher.testing.virtual_time import run_virtual

from fakes.scripted_source import RecordingSink, ScriptedSource, make_fetcher
from fakes.snapshots import Snapshots


class OneForEachSubtask(Snapshots):
    """Storing replaces the last snapshot of the subtask, as the folder does."""

    def __init__(self):
        self.kept, self.generation = {}, 0

    async def load(self):
        return [json.loads(each) for each in self.kept.values()]

    async def open_generation(self, subtask):
        self.generation += 1
        return self.generation

    async def store(self, subtask, generation, state):
        self.kept[subtask] = json.dumps(state)


class Job:
    def __init__(self):
        self.source, self.store = ScriptedSource(), OneForEachSubtask()
        for shard in "ab":
            self.source.add(shard, *range(100))

    async def start(self, subtask, parallelism):
        fetcher = make_fetcher(
            self.source,
            RecordingSink(),
            checkpoints=SubtaskCheckpoints(self.store, subtask, parallelism),
            assigner=lambda shard, parallelism: "ab".index(shard.shard_id) % parallelism,
            subtask=subtask,
            parallelism=parallelism,
        )
        await fetcher.open()
        return fetcher

    async def read_all(self, subtask=0, parallelism=1):
        fetcher = await self.start(subtask, parallelism)
        await fetcher.run_bounded(Bounds(stop_at_tip=True))
        return fetcher


def test_a_subtask_that_starts_late_finds_the_shards_that_moved_to_it():
    async def job():
        job = Job()
        await job.read_all()
        first = await job.start(0, 2)  # its first checkpoint takes the place of the one that had both shards
        await first.checkpoint()
        return (await job.start(1, 2)).snapshot()

    assert run_virtual(job())["shards"]["s/b"]["position"] == "99"


def test_states_kept_for_others_are_dropped_once_their_owner_has_stored_them():
    async def job():
        job = Job()
        await job.read_all()
        for subtask in (0, 1, 0):
            await job.start(subtask, 2)
        return [each.get("statesForOthers") for each in await job.store.load()]

    assert run_virtual(job()) == [None, None]
