"""Property tests over random shards, reshards, restarts, limits and lookaheads: every record once, in order, aligned."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from recordpublisher.plugins.spark.source.offset import BatchOffset

from fakes.spark.queries import IDLE, LOOKAHEAD, options, spread
from fakes.spark.simulated_kinesis import MemoryClaims
from fakes.spark.simulated_query import SimulatedQuery
from fakes.spark.worlds import check_exactly_once, worlds


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
    check_exactly_once(job.delivered(), job.kinesis)


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(worlds(), st.integers(0, 3000), st.integers(1, 3))
def test_alignment_respects_the_lookahead_and_never_stalls(kinesis, lookahead, tasks):
    aligned = options(Path("memory"), max_tasks=tasks, **{LOOKAHEAD: lookahead, IDLE: "400ms"})
    job = SimulatedQuery(kinesis, MemoryClaims(), aligned)
    for _ in range(300):
        job.batch()
    check_exactly_once(job.delivered(), job.kinesis)
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
