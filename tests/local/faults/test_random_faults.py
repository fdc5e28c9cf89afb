"""The dice: seeds repeat, rates and counts hold, nobody is hit for ever."""

import pytest

from recordpublisher.local import FaultKind
from recordpublisher.local.faults.random_faults import Chance
from recordpublisher.local.faults.rules import rules_of

SHARD = "shardId-000000000000"


def calls(chance: Chance, number: int, operation: str = "GetRecords", target: str = SHARD):
    """The kinds drawn for calls in a row; those that are not hit are answered."""
    found = []
    for _ in range(number):
        drawn = chance.for_call(operation, lambda: target)
        if drawn is None:
            chance.answered(operation, lambda: target)
        found.append(None if drawn is None else drawn.kind)
    return found


def test_a_seed_repeats():
    assert calls(Chance(rules_of("all=0.3"), 7), 100) == calls(Chance(rules_of("all=0.3"), 7), 100)
    assert calls(Chance(rules_of("all=0.3"), 7), 100) != calls(Chance(rules_of("all=0.3"), 8), 100)


def test_a_rate_is_a_share_of_the_calls():
    chance = Chance(rules_of("error=0.2"), 1)
    assert 150 < sum(kind is not None for kind in calls(chance, 1000)) < 250
    assert chance.counts[FaultKind.ERROR] == sum(chance.counts.values())


def test_a_count_is_the_most():
    assert calls(Chance(rules_of("error*3")), 5) == [FaultKind.ERROR] * 3 + [None] * 2


@pytest.mark.parametrize(
    ("rule", "operation", "target", "hit"),
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
def test_a_rule_strikes_where_it_is_meant_to(rule, operation, target, hit):
    assert (Chance(rules_of(rule)).for_call(operation, lambda: target) is not None) is hit


def test_by_chance_a_read_is_hit_twice_in_a_row_at_most():
    kinds = calls(Chance(rules_of("error=0.99"), 3), 60)
    assert FaultKind.ERROR in kinds
    assert all(None in kinds[at : at + 3] for at in range(len(kinds) - 3))


def test_getting_an_iterator_is_not_yet_a_read():
    """Otherwise two refused iterators, one given, two refused reads would be four failures of one read."""
    chance = Chance(rules_of("error=0.99"), 3)
    hits = [chance.for_call("GetShardIterator", lambda: SHARD) for _ in range(2)]
    chance.answered("GetShardIterator", lambda: SHARD)
    assert None not in hits
    assert chance.for_call("GetRecords", lambda: SHARD) is None


def test_a_rule_that_always_strikes_does():
    assert calls(Chance(rules_of("error")), 10) == [FaultKind.ERROR] * 10


def test_take_overs_by_chance_stay_below_what_is_another_job():
    chance = Chance(rules_of("take-over=0.99"), 3)
    drawn = [chance.for_frame("app", SHARD) for _ in range(60)]
    kinds = [each.kind for each in drawn if each is not None]
    assert kinds == [FaultKind.TAKE_OVER] * 3
