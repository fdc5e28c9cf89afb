"""Each changing thing has one owner: no object assigns to an attribute of another one, or reaches through one (architecture, Owners)."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[2] / "src/recordpublisher"


def targets(node: ast.AST) -> Iterator[ast.expr]:
    """What a statement assigns to, one by one."""
    if isinstance(node, ast.Assign):
        given = list(node.targets)
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        given = [node.target]
    else:
        given = []
    while given:
        target = given.pop()
        if isinstance(target, (ast.Tuple, ast.List)):
            given += target.elts
        else:
            yield target


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in ("_replace", "_asdict", "_fields")


def is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


def is_part_of_self(node: ast.expr) -> bool:
    """`self.a`, `self.a.b`, ..."""
    return isinstance(node, ast.Attribute) and (is_self(node.value) or is_part_of_self(node.value))


class Places(NamedTuple):
    """Places of a file, each as `path:line`."""

    assigning_to_others: list[str]
    """To an attribute of anything but `self`."""
    reaching_through: list[str]
    """`self.a.b = ...` or `self.a._b`."""


@functools.cache
def places() -> Places:
    """Those of all files, each of which is parsed once."""
    found = Places([], [])
    for path in sorted(SOURCE.rglob("*.py")):
        file = path.relative_to(SOURCE)
        for node in ast.walk(ast.parse(path.read_text())):
            for target in targets(node):
                if isinstance(target, ast.Attribute):
                    if not is_self(target.value):
                        found.assigning_to_others.append(f"{file}:{target.lineno}")
                    if is_part_of_self(target.value):
                        found.reaching_through.append(f"{file}:{target.lineno}")
            if isinstance(node, ast.Attribute) and is_private(node.attr) and is_part_of_self(node.value):
                found.reaching_through.append(f"{file}:{node.lineno}")
    return found


def test_in_the_fetcher_nobody_assigns_to_an_attribute_of_another_object():
    assert [place for place in places().assigning_to_others if place.startswith("fetcher/")] == []


def test_no_object_reaches_through_another():
    assert places().reaching_through == []
