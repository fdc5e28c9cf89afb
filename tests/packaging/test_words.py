"""The words of docstrings, comments, messages and pages: the checks of the writing guide, over the package without generated code."""

import ast
import io
import re
import tokenize
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
    r"[,;] also (?:for|when|if|of|in|where|with|while|to|those|at|by|after|over)\b|\b(?:is|are) told\b|\bmend\b|"
    r"\bnobody\b|\bwhoever\b|\bmeanwhile\b|\boutlast\w*|\bin (?:place of|its place)\b|\bbeside\b|\bdone with\b|\b(?:de)?serialis\w+",
    re.IGNORECASE,
)
"""Words for which the writing guide has better ones, and a second spelling of `deserialize`."""
HEADLESS = re.compile(
    r"^(?:What|Why|Such|More|Most|Less|There|Here|No|So|And|But|Or|Then|Until|Since|Because|Counted)(?=\s)"
)
"""A docstring of a module or class that begins so has no noun for its subject. (A property may be `How long ...` or `When ...`.)"""
MOST_HEADLESS = 0
"""Modules and classes with such a docstring on 29 November 2026. This limit may only fall."""
CONDITION = re.compile(r"^(?:with|without|together|not|no|one of|either|this or)\b|\bnot set\b|, or no\b|\bnot both\b")
"""A `valid` of a ConfigurationError that is no value: it is a conflict, or something that the setting needs."""
_AROUND = 30
"""Characters that are shown before and after a hit."""
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


class Text(NamedTuple):
    """A docstring or a literal as one line, and where it begins (file:line)."""

    place: str
    words: str


class Texts(NamedTuple):
    """The texts of a file by their kind. `subjects` are the docstrings of modules and classes, which are in `docstrings` too."""

    docstrings: list[Text]
    subjects: list[Text]
    literals: list[Text]
    comments: list[Text]


def texts_of(file: Path) -> Texts:
    """Return the docstrings, the other string literals and the comments of a file."""
    text = file.read_text(encoding="utf-8")
    tree = ast.parse(text)
    documented = [
        node for node in ast.walk(tree) if isinstance(node, _DOCUMENTED) and ast.get_docstring(node) is not None
    ]
    docstrings = {id(node.body[0].value): isinstance(node, (ast.Module, ast.ClassDef)) for node in documented}
    found = Texts([], [], [], [])
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            place = f"{file.relative_to(ROOT)}:{node.lineno}"
            if id(node) not in docstrings:
                found.literals.append(Text(place, node.value))
                continue
            found.docstrings.append(Text(place, " ".join(node.value.split())))
            if docstrings[id(node)]:
                found.subjects.append(found.docstrings[-1])
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            found.comments.append(Text(f"{file.relative_to(ROOT)}:{token.start[0]}", token.string))
    return found


@pytest.fixture(scope="module")
def texts() -> Texts:
    files = [file for file in sorted(PACKAGE.rglob("*.py")) if "generated" not in file.parts]
    parsed = list(map(texts_of, files))
    found = Texts(*([text for of_file in kind for text in of_file] for kind in zip(*parsed, strict=True)))
    assert len(found.docstrings) > 5_000
    return found


def valid_texts() -> list[Text]:
    """Return the texts that the code passes to ConfigurationError as `valid`. A value in such a text is `{}`."""
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        text = file.read_text(encoding="utf-8")
        if "ConfigurationError(" not in text:
            continue
        tree = ast.parse(text)
        named = [node for node in ast.walk(tree) if isinstance(node, ast.Assign) and len(node.targets) == 1]
        names = {}
        for node in named:
            names.setdefault(ast.unparse(node.targets[0]), []).append(node.value)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "ConfigurationError":
                given = [*node.args[2:3], *(each.value for each in node.keywords if each.arg == "valid")]
                given += [value for each in given for value in names.get(ast.unparse(each), ())]
                found += [Text(f"{file.relative_to(ROOT)}:{node.lineno}", constant_text(each)) for each in given]
    assert len(found) > 200
    return found


def constant_text(node: ast.expr) -> str:
    """Return a text of the code, with `{}` in place of its values; empty if it is another expression."""
    if isinstance(node, ast.JoinedStr):
        return "".join(constant_text(part) or "{}" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def pages() -> list[Text]:
    """Return the lines of the pages, and of the texts at the top of the project."""
    files = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return [
        Text(f"{file.relative_to(ROOT)}:{number}", line)
        for file in sorted(files)
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1)
    ]


def hits(texts: list[Text], pattern: re.Pattern[str]) -> Iterator[str]:
    for place, words in texts:
        for found in pattern.finditer(words):
            yield f"{place}: {words[max(0, found.start() - _AROUND) : found.end() + _AROUND]}"


def listed(found: list[str]) -> str:
    return "\n".join([f"{len(found)} hits:", *found])


def test_no_docstring_begins_with_a_fragment(texts):
    found = list(hits(texts.docstrings, FRAGMENT))

    assert not found, listed(found)


def test_docstrings_of_modules_and_classes_begin_with_a_noun_or_a_verb(texts):
    found = list(hits(texts.subjects, HEADLESS))

    assert len(found) <= MOST_HEADLESS, listed(found)


def test_no_docstring_describes_a_parameter_or_a_case_without_a_noun(texts):
    found = list(hits(texts.docstrings, NO_NOUN))

    assert not found, listed(found)


@pytest.mark.parametrize("kind", ["docstrings", "literals", "comments"])
def test_the_code_has_no_avoided_word(texts, kind):
    """Texts below attributes are literals too."""
    found = list(hits(getattr(texts, kind), AVOIDED))

    assert not found, listed(found)


def test_no_error_calls_a_condition_a_valid_value():
    """`Valid: without --watch` is a conflict, and `Valid: with one stream` is a need."""
    found = list(hits(valid_texts(), CONDITION))

    assert not found, listed(found)


def test_no_page_has_an_avoided_word():
    found = list(hits(pages(), AVOIDED))

    assert not found, listed(found)


@pytest.mark.parametrize(
    ("pattern", "text", "is_hit"),
    [
        (FRAGMENT, "Of their batches.", True),
        (FRAGMENT, "Forget a shard.", False),
        (HEADLESS, "What a worker reports.", True),
        (HEADLESS, "Whatever a handler returns.", False),
        (NO_NOUN, "`store`: of the group.", True),
        (NO_NOUN, "`store`: the group's store.", False),
        (CONDITION, "without --watch and --live", True),
        (CONDITION, "a number, or no option deadLetters", True),
        (CONDITION, "NOTHING, ALL", False),
        (AVOIDED, "the job goes on", True),
        (AVOIDED, "beside the job", True),
        (AVOIDED, "there is no shard, and it is no longer open", False),
    ],
)
def test_a_pattern_finds_what_it_names_and_no_more(pattern, text, is_hit):
    assert bool(pattern.search(text)) is is_hit
