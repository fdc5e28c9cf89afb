"""The protocol without one of its rules breaks: otherwise the simulation does not test that rule.

Rules that are not here have directed tests in tests/fetcher/leases: see `TESTED_ELSEWHERE`.
"""

import pytest

from .directed_schedules import DIRECTED
from .group_schedule import random_schedule
from .mutations import MUTATIONS, mutated
from .simulated_group import SimulatedGroup

SEARCHED = 40
"""How many seeds are tried, from the one that was found: a change of the protocol changes what a seed does."""
FOUND = [
    ("ancestors_come_back", "reshards", 0),
    ("answers_decide", "random", 15),
    ("children_before_parents", "reshards", 1),
    ("deleted_documents_come_back", "suspended_for_long", 1),
    ("deleted_worker_commits", "deleted_while_suspended", 0),
    ("failed_take_is_dropped", "random", 3),
    ("leave_without_stopping", "rolling_restarts", 0),
    ("leaving_worker_begins_shards", "rolling_restarts", 2),
    ("no_repeated_take", "alone", 0),
    ("loads_are_averages", "random", 0),
    ("loads_are_not_stated", "random", 0),
    ("loads_do_not_count", "random", 0),
    ("older_records_replace_newer_ones", "old_reads", 0),
    ("nobody_is_sealed", "random", 0),
    ("permission_survives_suspension", "pause_and_resume_offline", 0),
    ("sleep_does_not_count", "sleep_and_wake_offline", 0),
    ("positions_from_before_the_seal", "cut_off", 0),
    ("prepared_instead_of_released", "random", 21),
    ("prepared_shards_do_not_count", "random", 21),
    ("records_may_be_from_before_the_table", "old_reads", 0),
    ("seal_whatever_the_heartbeat", "cut_off_for_a_lease", 3),
    ("sealed_workers_do_not_count", "random", 39),
    ("seals_are_not_seen", "random", 1),
    ("shards_without_owner_do_not_count", "random", 13),
    ("sink_is_not_sealed", "suspended_while_committing", 8),
    ("stop_does_not_wait_for_the_write", "rolling_restarts", 12),
    ("take_from_live_workers", "random", 0),
    ("take_without_preparing", "random", 0),
    ("write_without_permission", "cut_off", 1),
]
TESTED_ELSEWHERE = {
    "cleaned_at_once": "test_cleaning.py",
    "given_shards_do_not_count": "test_group_watermark.py",
    "joiners_begin_anew": "test_group_watermark.py",
    "members_need_not_be_settled": "test_worker.py",
    "older_positions_after_an_unknown_commit": "test_owned_leases.py",
    "own_gap_resets": "test_silence_observer.py",
    "own_silence_counts": "test_silence_observer.py",
    "parts_are_not_sealed": "test_position_store.py",
    "permission_counts_from_the_answer": "test_write_permission.py",
    "positions_of_an_older_lease": "test_owned_leases.py",
    "released_before_stored": "test_owned_leases.py",
    "unnamed_parts": "test_position_store.py",
}


@pytest.mark.simulation
@pytest.mark.parametrize(("mutation", "situation", "seed"), FOUND, ids=[each[0] for each in FOUND])
def test_without_this_rule_a_schedule_fails(mutation, situation, seed):
    schedule_of = random_schedule if situation == "random" else DIRECTED[situation]
    with mutated(mutation):
        for each in range(seed, seed + SEARCHED):
            try:
                SimulatedGroup(schedule_of(each)).run()
            except Exception:
                return
    pytest.fail(f"{SEARCHED} schedules do not notice it")


def test_each_rule_is_tested_somewhere():
    assert MUTATIONS.keys() == {each[0] for each in FOUND} | TESTED_ELSEWHERE.keys()
