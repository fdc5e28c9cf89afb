"""Random faults: seeds can be repeated, rates and counts are kept, and no call fails for ever."""

import pytest

from recordpublisher.local import FaultKind
from recordpublisher.local.faults.kinds import parse_rules
from recordpublisher.local.faults.random_faults import RandomFaults

SHARD = "shardId-000000000000"


def calls(faults: RandomFaults, number: int, operation: str = "GetRecords", target: str = SHARD):
    """The kinds drawn for calls in a row; those without a fault succeed."""
    found = []
    for _ in range(number):
        drawn = faults.for_call(operation, lambda: target)
        if drawn is None:
            faults.on_success(operation, lambda: target)
        found.append(None if drawn is None else drawn.kind)
    return found


def test_the_same_seed_gives_the_same_faults():
    assert calls(RandomFaults(parse_rules("all=0.3"), 7), 100) == calls(RandomFaults(parse_rules("all=0.3"), 7), 100)
    assert calls(RandomFaults(parse_rules("all=0.3"), 7), 100) != calls(RandomFaults(parse_rules("all=0.3"), 8), 100)


def test_a_rate_is_a_share_of_the_calls():
    faults = RandomFaults(parse_rules("error=0.2"), 1)
    assert 150 < sum(kind is not None for kind in calls(faults, 1000)) < 250
    assert faults.counts[FaultKind.ERROR] == sum(faults.counts.values())


def test_a_count_is_the_largest_number_of_faults():
    assert calls(RandomFaults(parse_rules("error*3")), 5) == [FaultKind.ERROR] * 3 + [None] * 2


@pytest.mark.parametrize(
    ("rule", "operation", "target", "applies"),
    [
        ("error@GetRecords", "GetRecords", SHARD, True),
        ("error@GetRecords", "ListShards", "", False),
        (f"error@{SHARD}", "GetRecords", SHARD, True),
        (f"error@{SHARD}", "GetRecords", "shardId-000000000001", False),
        ("error@app", "RegisterStreamConsumer", "app", True),
        ("expire", "ListShards", "", False),
        ("cut", "GetRecords", SHARD, False),
        ("partial", "PutRecords", "", False),
    ],
)
def test_a_rule_applies_to_the_given_place(rule, operation, target, applies):
    assert (RandomFaults(parse_rules(rule)).for_call(operation, lambda: target) is not None) is applies


def test_a_read_fails_twice_in_a_row_at_most():
    kinds = calls(RandomFaults(parse_rules("error=0.99"), 3), 60)
    assert FaultKind.ERROR in kinds
    assert all(None in kinds[at : at + 3] for at in range(len(kinds) - 3))


def test_a_new_iterator_does_not_reset_the_count_of_faults():
    """Otherwise two refused iterators, one success and two refused reads would be four failures of one read."""
    faults = RandomFaults(parse_rules("error=0.99"), 3)
    drawn = [faults.for_call("GetShardIterator", lambda: SHARD) for _ in range(2)]
    faults.on_success("GetShardIterator", lambda: SHARD)
    assert None not in drawn
    assert faults.for_call("GetRecords", lambda: SHARD) is None


def test_a_rule_with_rate_1_always_applies():
    assert calls(RandomFaults(parse_rules("error")), 10) == [FaultKind.ERROR] * 10


def test_take_overs_stay_below_the_number_that_means_another_job():
    faults = RandomFaults(parse_rules("take-over=0.99"), 3)
    drawn = [faults.for_frame("app", SHARD) for _ in range(60)]
    kinds = [each.kind for each in drawn if each is not None]
    assert kinds == [FaultKind.TAKE_OVER] * 3
