"""Without one of the rules of a job that runs alone a schedule fails: otherwise the schedules do not test that rule."""

import pytest

from .alone_schedule import failures
from .mutations import MUTATIONS, mutated

SEARCHED = 400
"""How many seeds are tried at most, from the one that was found: a change of the protocol changes what a seed does."""
FOUND = {
    "parts_are_not_sealed": 5,
    "a_sealed_record_is_enough": 5,
    "positions_from_before_the_seal": 4,
    "positions_are_not_folded": 5,
    "what_resumes_has_not_begun": 238,
    "table_before_positions": 308,
    "table_of_any_version": 19,
    "cleaned_at_once": 5,
    "nobody_looks_at_rest": 26,
}


@pytest.mark.simulation
@pytest.mark.parametrize("mutation", FOUND)
def test_without_this_rule_a_schedule_fails(mutation):
    with mutated(mutation):
        for seed in range(FOUND[mutation], FOUND[mutation] + SEARCHED):
            if failures(range(seed, seed + 1)):
                return
    pytest.fail(f"{SEARCHED} schedules do not notice it")


def test_each_rule_is_tested():
    assert MUTATIONS.keys() == FOUND.keys()
