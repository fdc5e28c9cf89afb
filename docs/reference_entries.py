"""The entry of a public name on a reference page: its signature, its docstring, and its public members."""

from __future__ import annotations

import ast
import dataclasses
import enum
import inspect
import re
from collections.abc import Iterator
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol, is_typeddict

from recordpublisher.publishers.base import RecordSource
from recordpublisher.testing.open_shard_contract import OpenShardContract

SETTINGS_WORDS = (
    "[Properties](../properties.md) says how keywords are made. Times and sizes are numbers, or texts with a unit."
)


def entry(name: str, thing: Any, level: int = 2) -> str:
    head = f"{'#' * level} {name}"
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        return f"{head}\n\n{_alias_words(name)}"
    if inspect.isclass(thing) and issubclass(thing, enum.Enum):
        members = [
            f"- `{member.name}`" + (f": {member.value}" if member.value != member.name else "") for member in thing
        ]
        return "\n\n".join([head, inspect.getdoc(thing) or "", "\n".join(members)])
    if is_typeddict(thing):
        words = [SETTINGS_WORDS] if name.endswith("Settings") else []
        return "\n\n".join([head, inspect.getdoc(thing) or "", *words])
    parts = [head, *_call(name, thing), inspect.getdoc(thing) or ""]
    members = list(_members(thing)) if inspect.isclass(thing) else []
    return "\n\n".join([*parts, *(["\n".join(members)] if members else [])])


def hook(function: Any) -> str:
    """A hook in one item: what it registers, and all that its docstring says."""
    words = re.sub(r"\s+", " ", inspect.getdoc(function) or "")
    return f"- `{_signature(function.__name__, function)}`: {words}"


def fixtures(file: Path) -> Iterator[str]:
    """The fixtures of a pytest plugin: each with the type that a test gets, and all that its docstring says."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and any("fixture" in ast.unparse(each) for each in node.decorator_list):
            returned = re.sub(r"^Iterator\[(.*)\]$", r"\1", ast.unparse(node.returns) if node.returns else "")
            words = re.sub(r"\s+", " ", ast.get_docstring(node) or "")
            yield f"- `{node.name}: {returned}`: {words}"


def _call(name: str, thing: Any) -> list[str]:
    """How it is called, unless only a subclass is made, or the words below say it: by its fields, or by naming a function."""
    fields = {field.name for field in dataclasses.fields(thing)} if dataclasses.is_dataclass(thing) else set()
    if fields and fields <= {*_attribute_words(Path(inspect.getfile(thing)), thing.__name__), *_measured(thing)}:
        return []
    signature = _signature(name, thing, 110)
    if "Takes the arguments of `" in (inspect.getdoc(thing) or ""):
        return []
    return [] if signature == f"class {name}" else [f"```python\n{signature}\n```"]


def _alias_words(name: str) -> str:
    """A name without a docstring of its own: the string below its assignment."""
    if name == "hookimpl":
        return "Marks a function of a plugin as the implementation of the hook of that name (pluggy)."
    modules = {"EPOCH_MS": "testing.virtual_time", "State": "fetcher.sink"}
    module = import_module(f"recordpublisher.{modules.get(name, 'publishers.base')}")
    return _attribute_words(Path(module.__file__ or ""), None)[name]


def _members(owner: type) -> Iterator[str]:
    """Public methods, properties and documented attributes that the class itself defines, or a base class without an entry."""
    attributes = _attribute_words(Path(inspect.getfile(owner)), owner.__name__)
    if measured := _measured(owner):
        yield f"- counters and gauges: {', '.join(f'`{name}`' for name in measured)}; see [metrics](../metrics.md)"
    for name, words in attributes.items():
        if not name.startswith("_"):
            yield f"- `{name}`: {first_sentence(words)}"
    own = {name: member for name, member in vars(owner).items() if not _is_explained_above(owner, name)}
    # No entry says what the members of a base class do whose name is not public.
    for name, member in (own | _of_unlisted_bases(owner)).items():
        if name.startswith(("_", "test_")) or name in attributes:
            continue
        if isinstance(member, (property, cached_property)):
            yield f"- `{name}`: {first_sentence(inspect.getdoc(member))}"
        elif isinstance(member, (staticmethod, classmethod)) or inspect.isfunction(member):
            function = getattr(owner, name)
            yield f"- `{_signature(name, function)}`: {first_sentence(inspect.getdoc(function))}"


def _measured(owner: type) -> list[str]:
    """The fields that are metrics."""
    fields = dataclasses.fields(owner) if dataclasses.is_dataclass(owner) else ()
    return [field.name for field in fields if "description" in field.metadata]


def _is_explained_above(owner: type, name: str) -> bool:
    """Whether a base class of the package has the member: its entry says what it must do."""
    return any(name in vars(base) for base in _own_bases(owner))


def _own_bases(owner: type) -> list[type]:
    return [base for base in owner.__mro__[1:] if base.__module__.startswith("recordpublisher.")]


def _of_unlisted_bases(owner: type) -> dict[str, Any]:
    """The members of base classes that a plugin author meets only here."""
    bases = [base for base in _own_bases(owner) if base in (RecordSource, OpenShardContract)]
    return {name: member for base in bases for name, member in vars(base).items()}


def _attribute_words(file: Path, owner: str | None) -> dict[str, str]:
    """The strings below assignments of a class, or of the module when `owner` is None."""
    tree: Any = ast.parse(file.read_text(encoding="utf-8"))
    if owner is not None:
        tree = next(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef) and node.name == owner)
    found = {}
    for node, following in zip(tree.body, tree.body[1:], strict=False):
        target = (
            node.target
            if isinstance(node, ast.AnnAssign)
            else node.targets[0]
            if isinstance(node, ast.Assign)
            else None
        )
        is_text = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
        if isinstance(target, ast.Name) and is_text:
            found[target.id] = inspect.cleandoc(str(following.value.value))
    return found


def _signature(name: str, thing: Any, width: int = 10_000) -> str:
    """The call as a person writes it; a class that nobody but a subclass makes is a bare name."""
    is_plain_error = inspect.isclass(thing) and issubclass(thing, Exception) and "__init__" not in vars(thing)
    if inspect.isclass(thing) and (is_plain_error or Protocol in thing.__mro__ or inspect.isabstract(thing)):
        return f"class {name}"
    given = [each for each in inspect.signature(thing).parameters.values() if each.name != "self"]
    keywords = [place for place, each in enumerate(given) if each.kind is each.KEYWORD_ONLY]
    shown = [_parameter(each) for each in given]
    if keywords and not any(each.kind is each.VAR_POSITIONAL for each in given):
        shown.insert(keywords[0], "*")
    answer = "" if inspect.isclass(thing) else _annotation(inspect.signature(thing).return_annotation, " -> ")
    answer = "" if answer == " -> None" else answer
    call = ("async " if inspect.iscoroutinefunction(thing) else "") + name
    line = f"{call}({', '.join(shown)}){answer}"
    return line if len(line) <= width else "\n".join([f"{call}(", *(f"    {each}," for each in shown), f"){answer}"])


def _parameter(parameter: inspect.Parameter) -> str:
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    default = "" if parameter.default is parameter.empty else f" = {_default(parameter.default)}"
    return f"{stars}{parameter.name}{_annotation(parameter.annotation, ': ')}{default}"


def _default(value: Any) -> str:
    return repr(value) if value is None or isinstance(value, (bool, int, float, str, tuple)) else "..."


def _annotation(annotation: Any, before: str) -> str:
    if annotation is inspect.Parameter.empty:
        return ""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    text = re.sub(r"ForwardRef\('([^']+)'\)", r"\1", text)
    return before + re.sub(r"\b[a-z_]+(\.[a-z_]+)*\.(?=[A-Z])", "", text)


def first_sentence(words: str | None) -> str:
    """The first sentence of a docstring, and the one that says the default."""
    text = re.sub(r"\s+", " ", words or "").strip()
    first, *others = re.split(r"(?<=[.;])\s(?=[A-Z`])", text)
    while others and first.count("(") > first.count(")"):
        first += f" {others.pop(0)}"
    return " ".join([re.sub(";$", ".", first), *(each for each in others if each.startswith("Default:"))])
