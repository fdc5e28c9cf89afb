"""The script that runs other projects' suites: how it reads their reports. The suites themselves are not here."""

import json

import pytest

from foreign_suites.outcomes import Outcome, outcomes_of_mocha, outcomes_of_pytest, report_of
from foreign_suites.recordings import difference
from foreign_suites.rules import Rule

RULES = (Rule("tags", "no tags here"),)
JUNIT = """<testsuites><testsuite>
<testcase classname="a" name="passes"/>
<testcase classname="a" name="fails"><failure message="no">E   AssertionError: 1 == 2</failure></testcase>
<testcase classname="a" name="tags"><failure message="no">E   x</failure></testcase>
<testcase classname="a" name="skipped"><skipped/></testcase>
</testsuite></testsuites>"""


def shown(value):
    return json.dumps(value, indent=2, sort_keys=True).replace(",\n", "\n")


def mocha(**errors):
    tests = [{"fullTitle": name, "err": error} for name, error in errors.items()]
    return "log before it\n" + json.dumps({"tests": tests}, indent=1)


def test_the_report_of_pytest_is_counted_by_reason():
    passes, fails, tags = outcomes_of_pytest(JUNIT, RULES)
    assert (passes, tags) == (Outcome("a.passes"), Outcome("a.tags", None, "no tags here"))
    assert fails.failure is not None
    assert report_of("x", [passes, fails, tags]).splitlines() == [
        "x: 1 passed, 1 failed, 1 not comparable, of 3",
        "  not comparable:    1 no tags here",
        "  failed: a.fails: AssertionError: 1 == 2",
    ]


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        ({}, None),
        ({"message": "m", "actual": shown({"a": {"b": 1, "new": 2}}), "expected": shown({"a": {"b": 1}})}, None),
        ({"message": "other", "actual": shown({"a": {"b": 1}}), "expected": shown({"a": {"b": 2}})}, "other"),
        ({"message": "fewer", "actual": shown({"a": {}}), "expected": shown({"a": {"b": 2}})}, "fewer"),
        ({"message": "a sentence", "actual": "one sentence", "expected": "another one"}, "a sentence"),
        ({"message": "expected 400 to be 200", "actual": "400", "expected": "200"}, "expected 400 to be 200"),
    ],
)
def test_a_test_of_mocha_passes_when_it_only_expected_fewer_fields(error, failure):
    assert outcomes_of_mocha(mocha(name=error), RULES) == [Outcome("name", failure)]


def test_of_a_test_that_mocha_reports_twice_the_first_error_counts():
    tests = [{"fullTitle": "one", "err": {"message": text}} for text in ("first", "second")]
    (outcome,) = outcomes_of_mocha(json.dumps({"tests": tests}, indent=1), RULES)
    assert outcome.failure == "first"


@pytest.mark.parametrize(
    ("ours", "recorded", "expected"),
    [
        ({"a": [{"b": "x-1"}]}, {"a": [{"b": "<id:1>"}]}, None),
        ({"a": b"t"}, {"a": "b't'"}, None),
        ({"a": ""}, {"a": "<id:1>"}, ".a is empty"),
        ({"a": 1, "c": 2}, {"a": 1}, "the response has ['a', 'c'], recorded ['a']"),
        ({"a": [1]}, {"a": [1, 2]}, ".a has 1 entries, recorded 2"),
        ({"a": 1}, {"a": 2}, ".a is 1, recorded 2"),
    ],
)
def test_a_response_differs_from_its_recording_in_fields_entries_and_values(ours, recorded, expected):
    assert difference(ours, recorded) == expected
