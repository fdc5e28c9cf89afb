"""Planned and random faults: rules are parsed, seeds can be repeated, and no call fails for ever."""

from math import inf

import pytest

from recordpublisher import ConfigurationError
from recordpublisher.local import FaultKind, FaultRule, Faults, LocalKinesis, StreamFault
from recordpublisher.local.errors import ApiError
from recordpublisher.local.faults import RandomFaults, parse_rules

from processes.command_line import ROOT

SHARD = "shardId-000000000000"


@pytest.fixture
def faults() -> Faults:
    return Faults()


def test_the_planned_number_of_calls_of_an_operation_fails(faults: Faults):
    faults.fail_next("GetRecords", "InternalFailure", 2, status=500)
    faults.before_call("ListShards")
    for _ in range(2):
        with pytest.raises(ApiError, match="InternalFailure") as raised:
            faults.before_call("GetRecords")
        assert raised.value.status == 500
    faults.before_call("GetRecords")


def test_a_call_can_lose_its_connection(faults: Faults):
    faults.drop_next("GetRecords")
    with pytest.raises(ConnectionAbortedError):
        faults.before_call("GetRecords")
    faults.before_call("GetRecords")


def test_a_stream_fault_applies_once_to_its_subscription(faults: Faults):
    faults.fail_subscription(StreamFault.CUT, shard_id="s2", consumer="c")
    assert faults.for_subscription("c", "s1") is None
    assert faults.for_subscription("d", "s2") is None
    planned = faults.for_subscription("c", "s2")
    assert planned is not None
    assert planned.fault is StreamFault.CUT
    assert faults.for_subscription("c", "s2") is None


def test_a_planned_fault_wakes_the_subscriptions(faults: Faults):
    woken: list[str] = []
    faults.on_plan(lambda: woken.append("up"))
    faults.fail_subscription(StreamFault.END)
    assert woken == ["up"]


def test_how_many_calls_are_still_to_fail(faults: Faults):
    faults.fail_next("ListShards", "LimitExceededException", 2)
    before = faults.planned("ListShards")
    with pytest.raises(ApiError):
        faults.before_call("ListShards")

    assert (before, faults.planned("ListShards"), faults.planned("GetRecords")) == (2, 1, 0)


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


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("throttle", [FaultRule(FaultKind.THROTTLE)]),
        ("throttle@GetRecords=0.1*3", [FaultRule(FaultKind.THROTTLE, "GetRecords", 0.1, 3)]),
        ("slow=0.5~20, cut", [FaultRule(FaultKind.SLOW, None, 0.5, inf, 20.0), FaultRule(FaultKind.CUT)]),
        ("cut@shardId-000000000001", [FaultRule(FaultKind.CUT, "shardId-000000000001")]),
        ("", []),
    ],
)
def test_a_rule_has_kind_place_rate_count_and_seconds(text, rules):
    assert list(parse_rules(text)) == rules


def test_all_means_every_kind():
    assert [rule.kind for rule in parse_rules("all=0.02")] == list(FaultKind)


@pytest.mark.parametrize(
    "text", ["thrott", "throttle=2", "throttle=-1", "throttle=x", "throttle*x", "=0.1", "cut~", "a b"]
)
def test_an_invalid_rule_is_an_error_with_the_valid_kinds(text):
    with pytest.raises(ConfigurationError, match="kinds: all, throttle, ") as raised:
        LocalKinesis(faults=text)
    assert (raised.value.key, raised.value.value) == ("faults", text)


def test_every_kind_is_on_the_reference_page():
    page = (ROOT / "docs/reference/embedded-endpoint.md").read_text()
    assert [kind for kind in FaultKind if f"| `{kind}` | {kind.description} |" not in page] == []
