"""Each changing thing has one owner: no object assigns to an attribute of another one, or reaches through one (architecture, Owners)."""

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

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


def assignments_to_others(nodes: list[ast.AST]) -> list[int]:
    """Lines that assign to an attribute of anything but `self`."""
    assigned = [target for node in nodes for target in targets(node)]
    return [each.lineno for each in assigned if isinstance(each, ast.Attribute) and not is_self(each.value)]


def places_reaching_through(nodes: list[ast.AST]) -> list[int]:
    """Lines with `self.a.b = ...` or `self.a._b`."""
    assigned = [target for node in nodes for target in targets(node)]
    through = [each.lineno for each in assigned if isinstance(each, ast.Attribute) and is_part_of_self(each.value)]
    private = [
        node.lineno
        for node in nodes
        if isinstance(node, ast.Attribute) and is_part_of_self(node.value) and is_private(node.attr)
    ]
    return sorted({*through, *private})


@functools.cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(ast.parse(path.read_text())))


def found_in(folder: Path, find) -> dict[str, list[int]]:
    found = {str(path.relative_to(SOURCE)): find(nodes_of(path)) for path in sorted(folder.rglob("*.py"))}
    return {path: lines for path, lines in found.items() if lines}


def test_in_the_fetcher_nobody_assigns_to_an_attribute_of_another_object():
    assert found_in(SOURCE / "fetcher", assignments_to_others) == {}


def test_no_object_reaches_through_another():
    assert found_in(SOURCE, places_reaching_through) == {}
