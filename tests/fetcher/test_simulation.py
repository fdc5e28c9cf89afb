"""Random schedules of a whole job on virtual time: whatever happens, the rules S1-S5, W1, W6, W8, W9 and P6 hold."""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass, replace

from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st
from simulated import JournalSink, Plan, SimulatedSource, World

from recordpublisher.fetcher.bounded import Bounds
from recordpublisher.fetcher.budget import BudgetLimits
from recordpublisher.fetcher.data_fetcher import DataFetcher
from recordpublisher.fetcher.global_watermark import InProcessTracker
from recordpublisher.fetcher.parts import FetcherParts
from recordpublisher.fetcher.shard_state import ShardState
from recordpublisher.publishers.records import RecordBatch

from scripted import fetcher_parts
from virtual_time import run_virtual

PATIENCE_SECONDS = 300.0
"""Virtual seconds after the last disturbance in which everything must be emitted."""


PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
"""No shrinking: a schedule that hangs takes its time, and what is drawn is small already."""


@dataclass(frozen=True)
class Job:
    """How a life of the job is set up, and when it ends."""

    parallelism: int
    seconds: float
    snapshot_at: float
    """The snapshots to restore from are taken so long after the start, at the end at the latest."""
    crashes: bool
    lookahead: int | None
    idle_interval: int
    budget: BudgetLimits
    sink_cost: float
    continuations: bool


plans = st.builds(
    Plan,
    seed=st.integers(0, 2**32),
    roots=st.integers(1, 4),
    records=st.integers(0, 40),
    reshards=st.integers(0, 3),
    aggregate=st.sampled_from([1, 1, 3]),
    ends=st.booleans(),
    disorder_ms=st.sampled_from([0, 0, 5_000]),
)
jobs = st.builds(
    Job,
    parallelism=st.integers(1, 3),
    seconds=st.floats(0, 20),
    snapshot_at=st.floats(0, 25),
    crashes=st.booleans(),
    lookahead=st.sampled_from([None, 0, 100, 10_000]),
    idle_interval=st.sampled_from([-1, 3_000]),
    budget=st.sampled_from([BudgetLimits(2_000, 1_500, 5), BudgetLimits(1 << 27, 1 << 24, 50_000)]),
    sink_cost=st.sampled_from([0.0, 0.0, 0.05]),
    continuations=st.booleans(),
)


class Life:
    """One life of the job: its subtasks, and the judge of what they write."""

    def __init__(self, world: World, job: Job, tracker: InProcessTracker, restore: list[dict], seed: int) -> None:
        self._world = world
        self._job = job
        self._tracker = tracker
        self._random = random.Random(seed)
        self.done = {key: 0 if state is None else _count(state, world) for key, state in _states(restore, world)}
        self._ended = {key for key, state in _states(restore, world) if state is not None and state.ended}
        self._highest_global: int | None = None
        self._told: dict[int, int] = {}
        self.source = SimulatedSource(world, seed, 7, 0.4, job.continuations)
        self.source.before_read = self._judge_memory
        self.fetchers = [self._fetcher(subtask, restore) for subtask in range(job.parallelism)]

    @property
    def is_complete(self) -> bool:
        return all(self.done.get(key, 0) == len(shard.times) for key, shard in self._world.shards.items())

    async def open(self) -> list[asyncio.Task]:
        for fetcher in self.fetchers:
            await fetcher.open()
        return [asyncio.create_task(fetcher.run_bounded(Bounds())) for fetcher in self.fetchers]

    def snapshots(self) -> list[dict]:
        return [json.loads(json.dumps(fetcher.snapshot())) for fetcher in self.fetchers]

    async def end(self, running: list[asyncio.Task]) -> None:
        for fetcher, task in zip(self.fetchers, running, strict=True):
            task.cancel() if self._job.crashes else fetcher.stop()
        results = await asyncio.gather(*running, return_exceptions=True)
        assert all(not isinstance(each, Exception) for each in results), results
        for fetcher in self.fetchers:
            await fetcher.close()

    def _fetcher(self, subtask: int, restore: list[dict]) -> DataFetcher:
        job = self._job
        sink = JournalSink(job.sink_cost, self._judge_write, lambda watermark: self._judge_told(subtask, watermark))
        given = {
            "flink.watermark.lookahead.millis": job.lookahead,
            "flink.shard.idle.interval": job.idle_interval,
            "flink.shard.discovery.intervalmillis": 2_000,
            "flink.watermark.outoforderness.millis": self._world._plan.disorder_ms,
        }
        parts: FetcherParts = fetcher_parts(self.source, sink, given, tracker=self._tracker)
        return DataFetcher(
            replace(
                parts,
                settings=replace(parts.settings, budget=job.budget),
                assigner=lambda shard, parallelism: hash(int(shard.shard_id)) % parallelism,
                use_continuations=job.continuations,
                restore=tuple(self._random.sample(restore, len(restore))),
                subtask=subtask,
                parallelism=job.parallelism,
            )
        )

    # --- the judge --------------------------------------------------------------------------------------------------------------------

    def _judge_write(self, batch: RecordBatch) -> None:
        key, size = batch.shard.key, self._world._plan.aggregate
        done = self.done.get(key, 0)
        indexes = [int(r.sequence_number) * size + max(r.sub_sequence_number, 0) for r in batch.records]
        assert indexes == list(range(done, done + len(batch))), f"S1 {key}: {done} were written, now {indexes}"
        self.done[key] = done + len(batch)
        for parent in (f"s/{parent}" for parent in batch.shard.parents):
            assert self.done.get(parent, 0) == len(self._world[parent].times), f"S2 {key} before its parent {parent}"
        value = self._judge_global()
        if self._job.lookahead is not None:
            assert value is not None, "W8: no record before there is a global watermark"
            assert max(batch.watermarks or ()) <= value + self._job.lookahead, f"W8 {key}"
            self._judge_spread(batch)

    def _judge_spread(self, batch: RecordBatch) -> None:
        """Where nobody may be left out, a written record is at most the lookahead ahead of everyone's next one."""
        if self._job.idle_interval > 0 or self._world._plan.reshards or self._restored:
            return
        bound = self._world._plan.disorder_ms
        for key, shard in self._world.shards.items():
            rest = self.done.get(key, 0)
            if rest < len(shard.times):
                following = max(shard.times[: rest + 1]) - bound
                assert max(batch.watermarks or ()) <= following + self._job.lookahead, f"W8 {key} waits at {following}"

    @property
    def _restored(self) -> bool:
        return bool(self._ended) or self.source.restored

    def _judge_told(self, subtask: int, watermark: int) -> None:
        assert watermark > self._told.get(subtask, watermark - 1), "W1: the sink's watermark fell"
        self._told[subtask] = watermark
        value = self._judge_global()
        assert value is not None, "W1: before there is a global watermark"
        assert watermark <= value, "W1: above the global watermark"
        emitted = [entry.state.watermark for entry in self.fetchers[subtask]._table]
        assert watermark <= max(each for each in emitted if each is not None), "W1: above what was emitted"
        for entry in self.fetchers[subtask]._table:
            if entry.is_active:
                assert entry.state.watermark is not None, f"W1 {entry.key}"
                assert watermark <= entry.state.watermark, f"W1 {entry.key}"

    def _judge_global(self) -> int | None:
        value, highest = self._tracker.current(), self._highest_global
        assert highest is None or (value is not None and value >= highest), "W6: the global watermark fell"
        self._highest_global = value
        return value

    def _judge_memory(self) -> None:
        self._judge_global()
        for fetcher in self.fetchers:
            entries = list(fetcher._table)
            queued = sum(entry.queued_bytes for entry in entries)
            largest = sum(self.source.largest_batch.get(entry.key, 0) for entry in entries)
            assert queued <= self._job.budget.subtask_bytes + largest, "P6"


def _states(snapshots: list[dict], world: World) -> list[tuple[str, ShardState | None]]:
    """Each shard's furthest state of the newest generation, by a way of our own."""
    found: dict[str, tuple[int, int, ShardState]] = {}
    for snapshot in snapshots:
        for key, entries in snapshot["shards"].items():
            state = ShardState.from_json(entries)
            rank = (snapshot["generation"], _count(state, world, key) + state.ended)
            if key not in found or rank > found[key][:2]:
                found[key] = (*rank, state)
    return [(key, found[key][2] if key in found else None) for key in world.shards]


def _count(state: ShardState, world: World, key: str = "") -> int:
    if state.position is None:
        return 0
    size, sequence = world._plan.aggregate, int(state.position.sequence)
    return (
        sequence * size + state.position.sub_sequence + 1
        if state.position.is_inside_aggregate
        else (sequence + 1) * size
    )


async def live(world: World, lives: list[Job], shares_tracker: bool, seed: int) -> None:
    restore: list[dict] = []
    tracker = InProcessTracker()
    for number, job in enumerate(lives):
        tracker = tracker if shares_tracker else InProcessTracker()
        life = Life(world, job, tracker, restore, seed + number)
        life.source.restored = bool(restore)
        running = await life.open()
        if number == len(lives) - 1:
            await _until_complete(world, life, running)
            await life.end(running)
            return
        early = min(job.snapshot_at, job.seconds)
        await asyncio.sleep(early)
        older, restore = restore, life.snapshots()
        await asyncio.sleep(job.seconds - early)
        await life.end(running)
        if job.snapshot_at > job.seconds:
            restore = life.snapshots()
        restore += older  # of an earlier generation: they must not count


async def _until_complete(world: World, life: Life, running: list[asyncio.Task]) -> None:
    loop = asyncio.get_running_loop()
    latest = max(loop.time(), world.quiet_from) + PATIENCE_SECONDS
    while not life.is_complete:
        assert not any(task.done() for task in running), [task.exception() for task in running if task.done()]
        missing = {key: life.done.get(key, 0) for key in world.shards}
        assert loop.time() < latest, f"W9: nothing is disturbed any more, and only this was emitted: {missing}"
        await asyncio.sleep(1.0)


def may_wait_for_ever(plan: Plan, job: Job) -> bool:
    """With -1, an open shard that stays silent holds the others on purpose (W2)."""
    return job.idle_interval < 0 and not plan.ends and job.lookahead is not None


A_SHARD_WAKES_WHILE_A_FLUSH_IS_WAITED_FOR = Job(
    parallelism=1,
    seconds=10.63742277201261,
    snapshot_at=0.9487757261052279,
    crashes=True,
    lookahead=None,
    idle_interval=3_000,
    budget=BudgetLimits(2_000, 1_500, 5),
    sink_cost=0.05,
    continuations=False,
)


@example(
    plan=Plan(seed=26397509, roots=4, records=27, reshards=3, aggregate=1, ends=True, disorder_ms=0),
    lives=[A_SHARD_WAKES_WHILE_A_FLUSH_IS_WAITED_FOR] * 3,
    shares_tracker=True,
    seed=79,
)
@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck), phases=PHASES)
@given(
    plan=plans, lives=st.lists(jobs, min_size=1, max_size=3), shares_tracker=st.booleans(), seed=st.integers(0, 1000)
)
def test_every_rule_holds_in_every_schedule(plan, lives, shares_tracker, seed):
    if may_wait_for_ever(plan, lives[-1]):
        lives = [*lives[:-1], replace(lives[-1], idle_interval=3_000)]

    run_virtual(live(World(plan), lives, shares_tracker, seed))
