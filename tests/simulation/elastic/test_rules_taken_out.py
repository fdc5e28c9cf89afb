"""The protocol without one of its rules breaks: otherwise the simulation does not test that rule.

Rules that no schedule of the whole group can break have a test in tests/fetcher/leases that does: see `TESTED_ELSEWHERE`.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from recordpublisher.publishers.errors import RecordPublisherError

from .directed_schedules import DIRECTED
from .group_schedule import random_schedule
from .mutations.registry import MUTATIONS, mutated
from .rule_violation import RuleViolationError
from .simulated_group import SimulatedGroup

TESTS = Path(__file__).parents[2]
SEARCHED = 400
"""How many seeds are tried at most, from the one that was found: a change of the protocol changes what a seed does."""
FOUND = [
    ("an_ended_life_commits", "ends_while_its_checkpoint_settles", 0),
    ("ancestors_come_back", "reshards", 0),
    ("answers_decide", "random", 1),
    ("children_before_parents", "reshards", 0),
    ("children_forget_their_parents", "restart_past_retention", 0),
    ("cleaned_at_once", "take_lands_after_the_seal", 0),
    ("deleted_documents_come_back", "suspended_for_long", 1),
    ("deleted_worker_commits", "deleted_while_suspended", 0),
    ("deleted_streams_stay_deleted", "stream_is_made_again", 0),
    ("ends_are_stored_without_a_time", "restart_past_retention", 0),
    ("ends_need_children", "listed_source", 0),
    ("failed_take_is_dropped", "random", 1),
    ("joiners_begin_anew", "random", 0),
    ("known_children_are_all", "old_listings", 97),
    ("late_joins_count", "sealed_before_it_knows_that_it_joined", 0),
    ("leases_survive_their_stream", "stream_is_made_again", 0),
    ("leave_without_stopping", "rolling_restarts", 0),
    ("leaving_worker_begins_shards", "rolling_restarts", 0),
    ("members_need_not_be_settled", "short_visits", 0),
    ("no_repeated_take", "alone", 0),
    ("nobody_knows_that_it_was_latest", "latest_past_retention", 0),
    ("listed_shards_were_never_seen", "listed_past_retention", 0),
    ("loads_are_averages", "random", 0),
    ("loads_are_not_stated", "random", 0),
    ("loads_do_not_count", "random", 0),
    ("names_of_the_unpublished_are_dropped", "commits_at_random", 0),
    ("nobody_looks_for_streams_that_nobody_reads", "stream_is_made_again", 100),
    ("nobody_is_sealed", "random", 0),
    ("older_positions_after_an_unknown_commit", "commits_without_answers", 1),
    ("older_records_replace_newer_ones", "old_reads", 38),
    ("own_gap_resets", "observer_that_stalls", 0),
    ("own_silence_counts", "outage_of_the_store", 0),
    ("parents_may_be_missing", "old_listings", 0),
    ("parts_are_not_sealed", "commit_lands_between_the_seal_and_the_take", 0),
    ("permission_counts_from_the_answer", "answer_of_the_last_heartbeat_is_late", 0),
    ("permission_survives_suspension", "pause_and_resume_offline", 0),
    ("positions_from_before_the_seal", "cut_off", 0),
    ("positions_of_an_older_lease", "long_flushes", 0),
    ("prepared_instead_of_released", "random", 23),
    ("prepared_shards_do_not_count", "random", 14),
    ("records_may_be_from_before_the_table", "old_reads", 0),
    ("released_before_stored", "long_flushes", 0),
    ("seal_whatever_the_heartbeat", "cut_off_for_a_lease", 1),
    ("sealed_worker_follows_faster_takes", "take_goes_on_after_the_seal", 0),
    ("sealed_workers_do_not_count", "random", 14),
    ("seals_are_not_seen", "random", 6),
    ("shards_without_owner_do_not_count", "random", 17),
    ("sleep_does_not_count", "sleep_and_wake_offline", 0),
    ("start_is_pinned_again", "latest_past_retention", 0),
    ("stop_does_not_wait_for_the_write", "rolling_restarts", 13),
    ("take_from_live_workers", "random", 0),
    ("take_without_preparing", "random", 0),
    ("write_without_permission", "cut_off", 1),
]
TESTED_ELSEWHERE = {
    "an_ended_life_stages": "fetcher/leases/test_positions_with_rows.py",
    "cleaned_before_it_is_published": "fetcher/leases/test_positions_with_rows.py",
    "prepared_takes_name_staged_rows": "fetcher/leases/test_positions_with_rows.py",
    "sink_is_not_sealed": "fetcher/leases/test_positions_with_rows.py",
    "scope_is_from_before_the_lock": "fetcher/leases/test_position_commits.py",
    "given_shards_do_not_count": "fetcher/leases/planning/test_group_watermark.py",
    "unnamed_parts": "fetcher/leases/test_position_store.py",
}
UNDER_A_MUTATION = """
import sys
sys.path.insert(0, sys.argv[1])
import pytest
from simulation.elastic.mutations.registry import mutated
with mutated(sys.argv[2]):
    sys.exit(pytest.main(["-q", "-x", "-p", "no:cacheprovider", sys.argv[3]]))
"""


@pytest.mark.simulation
@pytest.mark.parametrize(("mutation", "situation", "seed"), FOUND, ids=[each[0] for each in FOUND])
def test_without_this_rule_a_schedule_fails(mutation, situation, seed):
    """Only what the checker and the protocol say of a broken rule counts: a mutation of code that is gone raises something else."""
    schedule_of = random_schedule if situation == "random" else DIRECTED[situation]
    with mutated(mutation):
        for each in range(seed, seed + SEARCHED):
            try:
                SimulatedGroup(schedule_of(each)).run()
            except (RuleViolationError, RecordPublisherError):
                return
    pytest.fail(f"{SEARCHED} schedules do not notice it")


@pytest.mark.simulation
@pytest.mark.parametrize("mutation", TESTED_ELSEWHERE)
def test_without_this_rule_its_own_test_fails(mutation):
    file = TESTS / TESTED_ELSEWHERE[mutation]
    command = [sys.executable, "-c", UNDER_A_MUTATION, str(TESTS), mutation, str(file)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=TESTS.parent, check=False)

    assert ran.returncode == pytest.ExitCode.TESTS_FAILED, ran.stdout + ran.stderr


def test_each_rule_is_tested_somewhere():
    assert MUTATIONS.keys() == {each[0] for each in FOUND} | TESTED_ELSEWHERE.keys()
