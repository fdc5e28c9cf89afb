"""The words of docstrings and messages: the three checks of the writing guide, over the package without generated code."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from processes.command_line import ROOT

PACKAGE = ROOT / "src" / "recordpublisher"
FRAGMENT = re.compile(
    r"^(?:(?:Of|By|As|From|For|At|In|With|Without|Between|After|Before|On|Beside|Those|These|This|It|Its|That|They|None|Nothing|Others?|"
    r"Nobody|Somebody)(?=[\s:,])|Raises:|See `?[\w.]+`?\.$|`\w+`: )"
)
"""A docstring that begins so has no verb, or no noun for its subject."""
NO_NOUN = re.compile(r"`\w+`: (?:of|by|for|from|as|in|at|between|with|also)\b|(?<![\w.`'])(?:None|True|False|0|-1): ")
"""A parameter or a case that is described without a noun."""
AVOIDED = re.compile(
    r"(?<!there )\b(?:is|are|was|were|be) no (?!longer\b|more\b|matter\b|need\b)\w+|\bso many\b|\banew\b|\bany more\b|"
    r"\b(?:go|goes|went|gone) on\b|\b(?:some|any)body\b|\bbelongs? into\b|"
    r"[,;] also (?:for|when|if|of|in|where|with|while|to|those|at|by|after|over)\b|\b(?:is|are) told\b|\bmend\b",
    re.IGNORECASE,
)
"""Words for which the writing guide has better ones."""
MOST_IN_LITERALS = 12
"""Avoided words in messages and other literals on 29 November 2026. Texts below attributes are literals too.

This limit may only fall: lower it when you improve a message.
"""
_AROUND = 30
"""Characters that are shown before and after a hit."""
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Text(NamedTuple):
    """A docstring or a literal as one line, and where it begins (file:line)."""

    place: str
    words: str


def texts_of(file: Path) -> tuple[list[Text], list[Text]]:
    """Return the docstrings of a file, and its other string literals."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, _DOCUMENTED) and ast.get_docstring(node) is not None
    }
    found: tuple[list[Text], list[Text]] = ([], [])
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            place = f"{file.relative_to(ROOT)}:{node.lineno}"
            words = " ".join(node.value.split()) if id(node) in docstrings else node.value
            found[id(node) not in docstrings].append(Text(place, words))
    return found


@pytest.fixture(scope="module")
def texts() -> tuple[list[Text], list[Text]]:
    files = [file for file in sorted(PACKAGE.rglob("*.py")) if "generated" not in file.parts]
    parsed = list(map(texts_of, files))
    docstrings = [text for of_file, _ in parsed for text in of_file]
    literals = [text for _, of_file in parsed for text in of_file]
    assert len(docstrings) > 5_000
    return docstrings, literals


def hits(texts: list[Text], pattern: re.Pattern[str]) -> Iterator[str]:
    for place, words in texts:
        for found in pattern.finditer(words):
            yield f"{place}: {words[max(0, found.start() - _AROUND) : found.end() + _AROUND]}"


def listed(found: list[str]) -> str:
    return "\n".join([f"{len(found)} hits:", *found])


def test_no_docstring_begins_with_a_fragment(texts):
    found = list(hits(texts[0], FRAGMENT))

    assert not found, listed(found)


def test_no_docstring_describes_a_parameter_or_a_case_without_a_noun(texts):
    found = list(hits(texts[0], NO_NOUN))

    assert not found, listed(found)


def test_no_docstring_has_an_avoided_word(texts):
    found = list(hits(texts[0], AVOIDED))

    assert not found, listed(found)


def test_literals_have_no_more_avoided_words_than_before(texts):
    found = list(hits(texts[1], AVOIDED))

    assert len(found) <= MOST_IN_LITERALS, listed(found)
