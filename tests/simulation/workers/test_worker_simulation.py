"""Random schedules of a whole job that runs alone or in a group: in each the rules S1, S2, S8, S10, W1 to W6, W8, W9,
W11 to W13 and P6 hold.

Real fetchers over documents in one store, each process with a loop of its own. The seed decides everything:

    WORKER_SEED=123 pytest -m simulation tests/simulation/workers      runs one schedule again, exactly
    WORKER_SCHEDULES=20000 WORKER_FIRST=0 ...                          runs many
"""

import os
from dataclasses import replace

import pytest

from ..many_schedules import failures_of
from ..rule_checker import RuleViolationError
from ..schedule import LARGE_BUDGET, Schedule
from ..simulated_stream import StreamPlan
from .mutations import MUTATIONS, mutated
from .worker_job import WorkerJob, run
from .worker_schedule import LEAST_LOOKAHEAD_MS, WorkerFault, WorkerRun, random_worker_schedule
from random_inputs import inputs

QUICK, MANY = inputs(200, 50), 2_000
SEARCHED = 400
"""How many seeds are tried at most, from the one that was found: a change of the protocol changes what a seed does."""
FOUND = {
    "sink_is_told_more_than_the_global_watermark": ("W1", 1),
    "sink_is_told_of_queued_records": ("W1", 1),
    "shards_without_records_do_not_count": ("W1", 3),
    "idle_by_time_alone": ("W3", 31),
    "idle_until_a_record_is_written": ("W4", 147),
    "ended_parents_hold_nothing": ("W5", 17),
    "children_begin_without_a_watermark": ("W5", 4),
    "a_new_life_begins_anew": ("W6", 207),
    "a_process_alone_follows_its_last_report": ("W6", 2),
    "held_workers_wait_for_a_record": ("W9", 0),
    "a_suspension_is_not_noticed": ("W3", 104),
    "limit_is_passed": ("W8", 2),
    "heads_of_queues_do_not_count": ("W9", 0),
    "the_value_stands_only_while_the_store_answers": ("W6", 35),
    "held_shards_read_on": ("W11", 2),
    "times_of_a_wrong_clock_count": ("W12", 3),
    "times_outside_the_calendar_count": ("S1", 3),
    "stragglers_hold_all": ("W12", 40),
    "late_records_are_not_counted": ("W13", 12),
    "a_listing_closes_no_known_shard": ("S8", 19),
}

OUTAGE_STREAM = StreamPlan(
    seed=136779594, roots=3, records=40, reshards=0, aggregate=1, ends=False, disorder_ms=0, wrong_clock=False
)
"""One shard's reads fail for longer than the idle interval. The others are read on, and then its records are too far ahead."""
FAULTLESS_RUN = WorkerRun(
    seconds=0.0,
    restore_age=0.0,
    crashes=False,
    lookahead=0,
    idle_interval=3_000,
    max_lag=None,
    budget=LARGE_BUDGET,
    sink_cost=0.0,
    continuations=True,
    faults=(),
)


def broken_rule(schedule):
    try:
        WorkerJob(schedule).run()
    except RuleViolationError as error:
        return error.rule
    return None


def suspended_alone(seed):
    """A job of one process, which may be suspended while its shards are silent."""
    return random_worker_schedule(10_100 + seed, processes=1)


def children_found_by_listings(seed):
    """A job of one process that reads on beside an ended parent, until a listing shows its children."""
    plan = StreamPlan(
        seed=seed, roots=3, records=40, reshards=3, aggregate=1, ends=True, disorder_ms=0, wrong_clock=False
    )
    job_run = replace(FAULTLESS_RUN, lookahead=LEAST_LOOKAHEAD_MS, idle_interval=-1, continuations=False)
    return Schedule(seed, plan, (job_run,))


SCHEDULE_OF = {"idle_by_time_alone": suspended_alone, "ended_parents_hold_nothing": children_found_by_listings}
"""Schedules in which the rule decides something; for the other mutations random ones."""


@pytest.mark.random
def test_every_rule_holds_in_every_schedule():
    assert failures_of(run, range(QUICK), "WORKER_SEED") == []


@pytest.mark.simulation
@pytest.mark.timeout(0)
def test_every_rule_holds_in_many_schedules():
    if "WORKER_SEED" in os.environ:
        run(int(os.environ["WORKER_SEED"]))
        return
    first, count = int(os.environ.get("WORKER_FIRST", "200")), int(os.environ.get("WORKER_SCHEDULES", MANY))
    failures = failures_of(run, range(first, first + count), "WORKER_SEED")

    assert not failures, "\n".join(["schedules that break a rule:", *failures])


def test_a_seed_gives_the_same_schedule_and_the_same_run():
    assert [run(seed).trace for seed in range(5)] == [run(seed).trace for seed in range(5)]


@pytest.mark.parametrize(
    "job_run",
    [FAULTLESS_RUN, replace(FAULTLESS_RUN, is_alone=False, processes=3, lookahead=LEAST_LOOKAHEAD_MS)],
    ids=["alone", "group"],
)
def test_a_shard_whose_reads_fail_for_longer_than_the_idle_interval_stops_no_other(job_run):  # W7
    assert WorkerJob(Schedule(0, OUTAGE_STREAM, (job_run,))).run().is_complete


def test_a_held_worker_writes_when_its_group_advances_and_waits_for_no_sync_interval():  # W9
    group = replace(FAULTLESS_RUN, is_alone=False, processes=3, lookahead=LEAST_LOOKAHEAD_MS, sync_interval=30_000)

    assert WorkerJob(Schedule(0, OUTAGE_STREAM, (group,))).run().is_complete


def test_a_process_that_still_stops_at_the_end_of_a_run_repeats_nothing():
    """Its stop waits for a slow write, and the next run begins when it is over (S1)."""
    stall, leave = WorkerFault("stall", 0.0, 4.0), WorkerFault("leave", 1.0, 0.5)
    first = replace(FAULTLESS_RUN, seconds=2.0, lookahead=None, faults=(stall, leave))

    assert WorkerJob(Schedule(0, OUTAGE_STREAM, (first, FAULTLESS_RUN))).run().is_complete


@pytest.mark.simulation
@pytest.mark.parametrize("mutation", FOUND)
def test_without_this_rule_a_schedule_fails(mutation):
    rule, first = FOUND[mutation]
    schedule_of = SCHEDULE_OF.get(mutation, random_worker_schedule)
    with mutated(mutation):
        broken = (broken_rule(schedule_of(seed)) for seed in range(first, first + SEARCHED))
        assert next(filter(None, broken), None) == rule


def test_each_rule_is_tested():
    assert MUTATIONS.keys() == FOUND.keys()
