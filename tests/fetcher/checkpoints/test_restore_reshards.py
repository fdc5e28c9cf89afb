"""A snapshot taken at any step of a job with splits and merges is complete: after a restore no record is lost or repeated."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import pytest

from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.fetcher.shard_fetcher import ShardFetcher, build_fetcher
from recordpublisher.fetcher.sink import Sink
from recordpublisher.publishers.records import RecordBatch
from recordpublisher.testing.virtual_time import run_virtual

from fakes.reshard_generations import Family, FamilySource, Row
from fakes.scripted_source import fetcher_dependencies
from random_inputs import inputs

PATIENCE_SECONDS = 120
ALIGNED = {"flink.watermark.lookahead.millis": 1}
"""Records an event-millisecond apart: batches are cut inside aggregates."""
LONG_AFTER = 60.0
"""Virtual seconds when every shard has closed."""


class SlowSink(Sink):
    """Reports every write, which takes `cost` virtual seconds."""

    def __init__(self, cost: float, written: Callable[[RecordBatch], None]) -> None:
        self._cost = cost
        self._written = written

    async def write(self, batch: RecordBatch) -> None:
        await asyncio.sleep(self._cost)
        self._written(batch)


@dataclass(frozen=True)
class Step:
    """The records written by a moment (virtual seconds), and the job's snapshot at that moment."""

    at: float = 0.0
    rows: tuple[Row, ...] = ()
    snapshots: tuple[dict, ...] = ()


class Job:
    """One start of a job, resumed from a step of another start. A fresh start records a step for every state."""

    def __init__(self, family: Family, after: Step = Step(), continuations=False, cost=0.0, **given) -> None:
        self.family = family
        self.rows = list(after.rows)
        self.steps: list[Step] = []
        self._written = set(after.rows)
        self._cost = cost
        self._is_restored = bool(after.snapshots)
        self._source = FamilySource(family, 7, continuations)
        self.fetchers = [self._fetcher(after, given)]

    async def read(self) -> Job:
        """Read until everything was written, and a little longer: nothing may come twice."""
        for fetcher in self.fetchers:
            await fetcher.open()
        running = [asyncio.create_task(fetcher.run_bounded(Bounds())) for fetcher in self.fetchers]
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while not self._is_complete:
            assert not any(task.done() for task in running), [task.exception() for task in running if task.done()]
            assert asyncio.get_running_loop().time() < deadline, f"W9: {set(self.family.rows) - self._written}"
            await asyncio.sleep(0.5)
            self._keep_step()
        await asyncio.sleep(3)
        self._keep_step()
        for fetcher in self.fetchers:
            fetcher.stop()
        await asyncio.gather(*running)
        for fetcher in self.fetchers:
            await fetcher.close()
        return self

    @property
    def _is_complete(self) -> bool:
        return len(self.rows) == len(self.family.rows)

    def _keep_step(self) -> None:
        if self._is_restored:
            return
        snapshots = tuple(json.loads(json.dumps([fetcher.snapshot() for fetcher in self.fetchers])))
        if not self.steps or self.steps[-1].snapshots != snapshots:
            self.steps.append(Step(asyncio.get_running_loop().time(), tuple(self.rows), snapshots))

    def _write(self, batch: RecordBatch) -> None:
        self._keep_step()  # the state after the write before this one
        for parent in batch.shard.parents:
            unwritten = [row for row in self.family.rows if row[0] == f"s/{parent}" and row not in self._written]
            assert not unwritten, f"S2: {batch.shard.key} before {unwritten}"
        for record in batch.records:
            index = int(record.sequence_number) * self.family.aggregate + max(record.sub_sequence_number, 0)
            row = batch.shard.key, index
            assert row not in self._written, f"S1: {row} again"
            assert index == 0 or (row[0], index - 1) in self._written, f"S1: {row} before the one before it"
            self._written.add(row)
            self.rows.append(row)

    def _fetcher(self, after: Step, given: dict) -> ShardFetcher:
        sink = SlowSink(self._cost, self._write)
        properties = {"flink.shard.discovery.intervalmillis": 2_000, **given}
        parts = fetcher_dependencies(self._source, sink, properties)
        return build_fetcher(
            replace(
                parts,
                use_continuations=self._source.continuations,
                restore=after.snapshots,
            )
        )


async def read(family: Family, **more) -> Job:
    return await Job(family, **more).read()


slow = partial(pytest.param, marks=pytest.mark.slow)


async def restored(step: Step, at: float, family: Family, **more) -> Job:
    await asyncio.sleep(at)
    return await Job(family, step, **more).read()


@pytest.mark.random
@pytest.mark.parametrize(
    ("family", "given"),
    [
        pytest.param(Family(), {"cost": 0.3}, id="polling"),
        slow(Family(names_children=False), {"continuations": True}, id="fan-out, discovery alone"),
        slow(Family(aggregate=3), ALIGNED, id="aggregates"),
        slow(Family(aggregate=3), {**ALIGNED, "continuations": True}, id="fan-out, aggregates"),
    ],
)
def test_a_snapshot_at_every_step_restores_exactly(family, given):  # S1, S2, S5, P2, F6
    steps = run_virtual(read(family, **given)).steps
    assert len(steps) > 30
    assert any('"subSequenceNumber"' in json.dumps(step.snapshots) for step in steps) == (family.aggregate > 1)

    for number, step in list(enumerate(steps))[:: inputs(1, 4)]:
        for at in (step.at, LONG_AFTER) if number % 2 or family.aggregate == 1 else (step.at,):
            job = run_virtual(restored(step, at, family, **given))
            assert sorted(job.rows) == sorted(family.rows)


@pytest.mark.slow
@pytest.mark.parametrize("names_children", [True, False])
def test_parents_past_retention_leave_the_state_and_hold_no_watermark(names_children):  # S2, S5
    family = Family(names_children=names_children, retention=4)
    steps = run_virtual(read(family)).steps
    kept = [{key for snapshot in step.snapshots for key in snapshot["shards"]} for step in steps]
    assert kept[0] == {"s/a", "s/b"}
    assert not any({"s/a", "s/s"} <= keys for keys in kept)

    for step in steps:
        job = run_virtual(restored(step, step.at, family))
        assert sorted(job.rows) == sorted(family.rows)
