"""Fault rules are parsed from text."""

from math import inf

import pytest

from recordpublisher import ConfigurationError
from recordpublisher.local import FaultKind, FaultRule, LocalKinesis
from recordpublisher.local.faults.kinds import parse_rules

from processes.command_line import ROOT


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
