"""The ids of rules in the code and in the names of tests: each is on the page of rules, which has no rule that nothing is about."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "RULES.md").read_text()
RULES = set(re.findall(r"^- \*\*([A-Z]\d+)\*\*", PAGE, re.MULTILINE))
_LIST = re.compile(r"\(((?:[PFRSWEACK]\d{1,2})(?:, [PFRSWEACK]\d{1,2})*)\)")


def cited(folder: str, pattern: re.Pattern[str]) -> set[str]:
    texts = (path.read_text() for path in sorted((ROOT / folder).rglob("*.py")))
    return {rule.upper() for text in texts for found in pattern.findall(text) for rule in found.split(", ")}


def test_every_rule_that_the_code_names_is_on_the_page():
    assert cited("src", _LIST) <= RULES


def test_every_rule_that_a_test_is_named_after_is_on_the_page():
    assert cited("tests", re.compile(r"def test_([pfrsweack]\d{1,2})_")) <= RULES


def test_every_rule_of_the_page_is_named_by_the_code():
    anywhere = re.compile(r"\b([PFRSWEACK]\d{1,2})\b")
    assert RULES - cited("src", anywhere) - cited("tests", anywhere) == set()
