"""The lists in docstrings: each "- `name`:" of a class is a member of it, and each of a function is a parameter."""

import ast
import re
from collections.abc import Iterator

import pytest

from processes.command_line import ROOT

PACKAGE = ROOT / "src" / "recordpublisher"
ITEM = re.compile(r"^ *- (`\w+(?:\([^`]*\))?`(?:(?:,| and|, and| or) `\w+(?:\([^`]*\))?`)*): ", re.MULTILINE)
"""An item of a list that begins with one or more names, which may be called. Other items are keys, values or cases."""
Function = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def parameters(function: Function) -> set[str]:
    """Return the names of the parameters of a function."""
    given = function.args
    variadic = [each for each in (given.vararg, given.kwarg) if each is not None]
    return {each.arg for each in [*given.posonlyargs, *given.args, *given.kwonlyargs, *variadic]}


def members(node: ast.ClassDef) -> set[str]:
    """Return the names of the fields, properties and methods of a class, and of the parameters of its constructor."""
    found = {
        each.attr
        for each in ast.walk(node)
        if isinstance(each, ast.Attribute)
        and isinstance(each.ctx, ast.Store)
        and isinstance(each.value, ast.Name)
        and each.value.id == "self"
    }
    for each in node.body:
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            found.add(each.target.id)
        elif isinstance(each, ast.Assign):
            found |= {target.id for target in each.targets if isinstance(target, ast.Name)}
        elif isinstance(each, _FUNCTIONS):
            found.add(each.name)
            if each.name in {"__init__", "__new__"}:
                found |= parameters(each)
    return found


def unknown_items(text: str) -> Iterator[str]:
    """Yield the line and the name of each item that is no member of its class, or no parameter of its function."""
    # Most files have no such list, and parsing takes most of the time.
    tree = ast.parse(text if ITEM.search(text) else "")
    for node in ast.walk(tree):
        if not isinstance(node, (ast.ClassDef, *_FUNCTIONS)):
            continue
        items = ITEM.findall(ast.get_docstring(node) or "")
        if not items:
            continue
        known = members(node) if isinstance(node, ast.ClassDef) else parameters(node)
        yield from (
            f"{node.lineno} {node.name}: {name}"
            for item in items
            for name in re.findall(r"`(\w+)", item)
            if name not in known
        )


def test_each_name_in_a_list_of_a_docstring_is_a_field_or_a_parameter():
    files = sorted(PACKAGE.rglob("*.py"))
    found = [
        f"{file.relative_to(ROOT)}:{each}" for file in files for each in unknown_items(file.read_text(encoding="utf-8"))
    ]

    assert len(files) > 250
    assert not found, "\n".join(["a docstring lists what does not exist:", *found])


@pytest.mark.parametrize(
    ("item", "found"),
    [
        ("- `key`: its key.", []),
        ("- `key` and `held`: its key, and whether it is held.", []),
        ("- `count(key)`: counts a record.", []),
        ("- `shard`: its key.", ["1 Finding: shard"]),
        ("- `key`, `shard`: its keys.", ["1 Finding: shard"]),
        ("- `group-00003`: a file.", []),
    ],
)
def test_an_item_of_a_class_is_a_field_a_property_or_a_parameter(item, found):
    text = f'''class Finding:
    """A finding.

    {item}
    """

    key: str

    def __init__(self, count): ...

    @property
    def held(self): ...
'''
    assert list(unknown_items(text)) == found


def test_an_item_of_a_function_is_a_parameter():
    text = '''def find(key, *, held):
    """Find a shard.

    - `held`: whether it is held.
    - `shard`: its key.
    """
'''
    assert list(unknown_items(text)) == ["1 find: shard"]
