"""Outcome: what became of one foreign test; parsed from the reports of pytest and mocha, and classified by rules with reasons."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from xml.etree import ElementTree

from .rules import Rule


@dataclass(frozen=True, slots=True)
class Outcome:
    """One test: passed when `failure` and `not_comparable` are None. `not_comparable` is the reason why its failure says nothing."""

    name: str
    failure: str | None = None
    not_comparable: str | None = None


def outcomes_of_pytest(report: str, rules: Sequence[Rule]) -> list[Outcome]:
    """The outcomes in a JUnit report; skipped tests are left out."""
    outcomes = []
    for case in ElementTree.fromstring(report).iter("testcase"):
        name = f"{case.get('classname', '')}.{case.get('name', '')}"
        failures = [
            f"{each.get('message', '')}\n{each.text or ''}" for each in case if each.tag in ("failure", "error")
        ]
        if failures or case.find("skipped") is None:
            outcomes.append(_classified(name, "\n".join(failures) or None, rules))
    return outcomes


def outcomes_of_mocha(report: str, rules: Sequence[Rule]) -> list[Outcome]:
    """The outcomes in mocha's JSON report. A response may have more fields than a test of 2020 expects."""
    tests = json.loads(report[report.index("{\n") :])["tests"]
    errors = {each["fullTitle"]: each["err"] for each in reversed(tests)}  # of a test that failed twice, the first
    return [_classified(name, _mocha_failure(error), rules) for name, error in reversed(errors.items())]


def report_of(suite: str, outcomes: Sequence[Outcome]) -> str:
    """The counts, the reasons with their counts, and the names of the tests that failed."""
    reasons = Counter(each.not_comparable for each in outcomes if each.not_comparable is not None)
    failed = [each for each in outcomes if each.failure is not None]
    passed = len(outcomes) - len(failed) - reasons.total()
    lines = [f"{suite}: {passed} passed, {len(failed)} failed, {reasons.total()} not comparable, of {len(outcomes)}"]
    lines += [f"  not comparable: {count:4} {reason}" for reason, count in reasons.most_common()]
    lines += [f"  failed: {each.name}: {_last_line(each.failure or '')}" for each in failed]
    return "\n".join(lines)


def _classified(name: str, failure: str | None, rules: Sequence[Rule]) -> Outcome:
    if failure is None:
        return Outcome(name)
    reason = next((rule.reason for rule in rules if re.search(rule.pattern, f"{name}\n{failure}")), None)
    return Outcome(name, None if reason else failure, reason)


def _mocha_failure(error: dict[str, Any]) -> str | None:
    """None for a passed test, and for one that only expected fewer fields."""
    if not error or _has_lines(error.get("actual"), error.get("expected")):
        return None
    return f"{error.get('message')}"


def _has_lines(actual: Any, expected: Any) -> bool:
    """Whether the lines of the expected object, as mocha shows it (fields sorted, one a line), are in the actual one in their order."""
    if not (isinstance(actual, str) and isinstance(expected, str) and expected.startswith(("{\n", "[\n"))):
        return False
    lines = iter(actual.splitlines())
    return all(line in lines for line in expected.splitlines())


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.startswith("E ")] or text.splitlines() or [""]
    return lines[0].removeprefix("E").strip()[:160]
