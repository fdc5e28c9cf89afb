"""The ids of rules in the code and in the names of tests: each is on the page of rules, which has no rule that nothing is about."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "RULES.md").read_text()
RULES = set(re.findall(r"^- \*\*([A-Z]\d+)\*\*", PAGE, re.MULTILINE))
_LIST = re.compile(r"\(((?:[PFRSWEACK]\d{1,2})(?:, [PFRSWEACK]\d{1,2})*)\)")

_TESTS = re.compile(r"def test_([pfrsweack]\d{1,2})_")


def cited(folder: str, pattern: re.Pattern[str]) -> set[str]:
    texts = (path.read_text() for path in sorted((ROOT / folder).rglob("*.py")))
    return {rule.upper() for text in texts for found in pattern.findall(text) for rule in found.split(", ")}


def test_every_rule_that_the_code_names_is_on_the_page():
    assert cited("src", _LIST) <= RULES


def test_every_rule_that_a_test_is_named_after_is_on_the_page():
    assert cited("tests", _TESTS) <= RULES


def test_every_rule_of_the_page_is_named_by_the_code():
    anywhere = re.compile(r"\b([PFRSWEACK]\d{1,2})\b")
    assert RULES - cited("src", anywhere) - cited("tests", anywhere) - cited("tests", _TESTS) == set()


def test_no_docstring_of_a_class_or_function_names_a_rule():
    """Who reads it came from a caller, and does not know the ids. Comments name the rules, and docstrings of modules do."""
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                found += [f"{path}:{node.lineno}" for rules in _LIST.findall(ast.get_docstring(node) or "") if rules]
    assert found == []
