"""Random faults, reshards and restarts: no record is lost or repeated, every key keeps its order, the service's limits are respected.

`make faults` prints the counts of the applied faults, and the command that repeats a failed seed.
"""

from __future__ import annotations

from collections import Counter

import pytest

from recordpublisher.local import FaultKind

from soak import in_memory, over_sockets
from soak.in_memory import soak
from soak.mutation_testing import seeds_until_failure
from soak.plan import OF_QUEUES
from soak.recovery_rules import RULES, without
from soak.sweep import repeat_commands, sweep, table

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")
IN_MEMORY, OVER_SOCKETS, AT_LEAST = 600, 24, 20


def check_outcome(counts: Counter[FaultKind], failed: dict[int, Exception], module: str, seeds: int) -> None:
    print(f"\n{seeds} seeds of {module}, {sum(counts.values()):,} faults\n{table(counts)}")
    assert not failed, "\n".join(repeat_commands(module, failed))


@pytest.mark.faults
@pytest.mark.timeout(1800)
def test_six_hundred_seeds_on_virtual_time():
    counts, failed = sweep(range(IN_MEMORY), in_memory.soak)
    check_outcome(counts, failed, "soak.in_memory", IN_MEMORY)
    rare = {kind: counts[kind] for kind in FaultKind if kind not in OF_QUEUES and counts[kind] < AT_LEAST}
    assert not rare, f"applied less than {AT_LEAST} times: {rare}"


@pytest.mark.faults
@pytest.mark.timeout(1200)
def test_two_dozen_seeds_over_real_sockets():
    counts, failed = sweep(range(OVER_SOCKETS), over_sockets.soak)
    check_outcome(counts, failed, "soak.over_sockets", OVER_SOCKETS)


@pytest.mark.faults
@pytest.mark.parametrize(
    "rule",
    [
        "R2 iterators are renewed from the read position",
        "F3 frames are checked",
        "F2 a clean end is not the end of the shard",
        "F5 a silent subscription is closed",
        "F4 a lost consumer is registered again",
        "S2 parents before children",
        "S2 a shard that a listing lacks is asked for",
    ],
)
def test_a_removed_rule_makes_a_seed_fail(rule: str):
    """A part of `make mutation`."""
    assert seeds_until_failure(rule, 200)


@pytest.mark.faults
def test_a_seed_gives_the_same_run_again():
    assert soak(41) == soak(41)


@pytest.mark.parametrize("rule", RULES)
def test_the_patches_of_every_rule_apply(rule: str):
    with without(rule):
        pass
