"""Property tests over random shards, reshards, restarts, limits and lookaheads: every record once, in order, aligned."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from recordpublisher.plugins.spark.source.offset import BatchOffset
from recordpublisher.publishers.shards import Shard

from fakes.spark.queries import IDLE, LOOKAHEAD, options, spread
from fakes.spark.simulated_kinesis import ManualClock, MemoryClaims, SimulatedKinesis
from fakes.spark.simulated_query import SimulatedQuery

event_times = st.lists(st.integers(0, 20_000), max_size=25)


@st.composite
def worlds(draw: st.DrawFn, resharded: bool = True) -> SimulatedKinesis:
    """Some shards, some of them split or merged, event times out of order by up to 500 ms."""
    kinesis = SimulatedKinesis(clock=ManualClock(), out_of_orderness=500)
    roots = [f"r{n}" for n in range(draw(st.integers(1, 4)))]
    for name in roots:
        steps = draw(event_times)
        kinesis.add(name, [max(0, time - draw(st.integers(0, 500))) for time in sorted(steps)])
    if resharded and draw(st.booleans()):
        children = [kinesis.add(f"c{n}", sorted(draw(event_times)), ("r0",)) for n in range(2)]
        kinesis.close("r0", *(children if draw(st.booleans()) else ()))
        kinesis.discovered = children
    if resharded and len(roots) > 2 and draw(st.booleans()):
        merged = kinesis.add("m", sorted(draw(event_times)), ("r1", "r2"))
        kinesis.close("r1", merged)
        kinesis.close("r2", merged)
    return kinesis


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(worlds(), st.one_of(st.none(), st.integers(1, 7)), st.integers(1, 4), st.randoms(use_true_random=False))
def test_every_record_comes_once_in_order_whatever_restarts(kinesis, limit, tasks, chance: random.Random):
    job = SimulatedQuery(kinesis, MemoryClaims(), options(Path("memory"), max_records=limit, max_tasks=tasks))
    for _ in range(150):
        job.batch()
        if chance.random() < 0.3:
            job.restart()
        if chance.random() < 0.3 and len(job.log) > 1:
            job.run_again()
    check_exactly_once(job)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(worlds(), st.integers(0, 3000), st.integers(1, 3))
def test_alignment_respects_the_lookahead_and_never_stalls(kinesis, lookahead, tasks):
    aligned = options(Path("memory"), max_tasks=tasks, **{LOOKAHEAD: lookahead, IDLE: 400})
    job = SimulatedQuery(kinesis, MemoryClaims(), aligned)
    for _ in range(300):
        job.batch()
    check_exactly_once(job)
    values = [BatchOffset.from_json(entry).global_watermark for entry in job.log]
    known = [value for value in values if value is not None]
    assert known == sorted(known)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    worlds(resharded=False),
    st.integers(0, 3000),
    st.one_of(st.none(), st.integers(1, 7)),
    st.randoms(use_true_random=False),
)
def test_w8_event_times_of_a_batch_lie_within_lookahead_and_out_of_orderness_whatever_restarts(
    kinesis, lookahead, limit, chance: random.Random
):
    aligned = options(Path("memory"), max_records=limit, **{LOOKAHEAD: lookahead})
    job = SimulatedQuery(kinesis, MemoryClaims(), aligned)
    for _ in range(100):
        job.batch()
        if chance.random() < 0.3:
            job.restart()
        if chance.random() < 0.3:
            before = job.rows[job.last.batch]
            job.run_again()
            assert job.rows[job.last.batch] == before
    assert spread(job) <= lookahead + kinesis.out_of_orderness


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow], phases=[Phase.generate])
@given(worlds(), st.one_of(st.none(), st.integers(3, 20)), st.randoms(use_true_random=False))
def test_nothing_is_lost_when_all_claims_are_lost_at_any_time(kinesis, limit, chance: random.Random):
    store = MemoryClaims()
    job = SimulatedQuery(kinesis, store, options(Path("memory"), max_records=limit, onMetadataLoss="REPLAY"))
    taken: dict[int, list[tuple[str, str, int]]] = {}
    for _ in range(60):
        job.batch()
        take_committed(job, taken)
        if job.last.batch not in taken and chance.random() < 0.5:
            taken[job.last.batch] = job.rows[job.last.batch]  # the sink has committed it, Spark has not
        if chance.random() < 0.2:
            for shard in kinesis.shards.values():
                if not shard.closed:
                    shard.times.append(max(shard.times, default=0) + 1)
            if chance.random() < 0.5:
                store.lose_everything()
            job.restart()
            job.run_again()
            taken.setdefault(job.last.batch, job.rows[job.last.batch])  # it ignores a batch that it has
    silent = 0
    while silent < 60:  # three seconds without a batch
        silent = 0 if job.batch() else silent + 1
        take_committed(job, taken)
    taken.setdefault(job.last.batch, job.rows[job.last.batch])
    assert {row[:2] for rows in taken.values() for row in rows} == job.expected()


def take_committed(job: SimulatedQuery, taken: dict[int, list[tuple[str, str, int]]]) -> None:
    """Spark plans a batch when the one before is in the sink."""
    for batch, rows in job.rows.items():
        if batch < job.last.batch:
            taken.setdefault(batch, rows)


def check_exactly_once(job: SimulatedQuery) -> None:
    delivered = job.delivered()
    assert len(delivered) == len(set(delivered))
    assert set(delivered) == job.expected()
    for key in job.kinesis.shards:
        numbers = [int(sequence) for shard, sequence in delivered if shard == key]
        assert numbers == sorted(numbers)
    for each in job.kinesis.shards.values():
        for parent in each.shard.parents:
            check_parent_first(delivered, f"s/{parent}", each.shard)


def check_parent_first(delivered: list[tuple[str, str]], parent: str, child: Shard) -> None:
    places = {key: [n for n, row in enumerate(delivered) if row[0] == key] for key in (parent, child.key)}
    if places[parent] and places[child.key]:
        assert max(places[parent]) < min(places[child.key])
