"""What doctor tells of one fault that several checks meet."""

import asyncio
import re

import pytest

from recordpublisher.cli.doctor.findings import Finding, Verdict, examine, examine_all, without_repeated_problems
from recordpublisher.testing import run_virtual

MISSING = "no sink of that name is installed"


def test_a_fault_that_several_checks_meet_is_one_problem():
    met = [Finding(name, Verdict.PROBLEM, MISSING) for name in ("sink", "runs elsewhere", "orders: lag")]
    others = [Finding("store", Verdict.OK, "reachable"), Finding("clock", Verdict.PROBLEM, "it is off")]

    assert without_repeated_problems([*others, *met]) == [
        *others,
        met[0],
        Finding("runs elsewhere", Verdict.NOT_CHECKED, "because of sink"),
        Finding("orders: lag", Verdict.NOT_CHECKED, "because of sink"),
    ]


@pytest.mark.parametrize(
    ("checks", "finding"),
    [
        ({"a": lambda: 5}, Finding("sink: a", Verdict.PROBLEM, "the check returned 5: return a sentence, or None")),
        (["a"], Finding("sink", Verdict.PROBLEM, "`checks` returned ['a']: return a dict of checks by name")),
    ],
)
async def test_checks_of_a_plugin_that_return_something_else_are_a_problem(checks, finding):
    assert await examine_all("sink", lambda: checks) == [finding]


def test_a_check_that_does_not_return_is_a_problem_with_its_line():
    async def hang():
        await asyncio.sleep(1e9)

    finding = run_virtual(examine("sink: reachable", hang))

    assert finding.verdict is Verdict.PROBLEM
    assert re.fullmatch(
        r"the check has not returned for 30 s: it waits at \S+test_findings\.py:\d+ \(hang\)", finding.words
    )


async def test_checks_that_cannot_be_made_are_a_finding():
    def checks():
        raise KeyError("folder")

    (found,) = await examine_all("sink", checks)
    assert (found.name, found.verdict, found.words) == ("sink", Verdict.PROBLEM, "KeyError: 'folder'; `checks` failed")
