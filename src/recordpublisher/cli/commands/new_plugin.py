"""`recordpublisher new-plugin`: writes a package with a publisher, sink or store, its entry point and its contract test."""

import re
from enum import StrEnum
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from recordpublisher.publishers.errors import ConfigurationError

from ..output import echo

TEMPLATES = Path(__file__).parents[1] / "plugin_templates"
CLASSES = {"publisher": "Factory", "sink": "Sink", "store": "Store"}


class Kind(StrEnum):
    """What a new package adds."""

    PUBLISHER = "publisher"
    SINK = "sink"
    STORE = "store"


def new_plugin(
    kind: Annotated[Kind, typer.Argument(metavar="publisher|sink|store", help="What the package adds.")],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the package and of what it adds, such as audit-log.")],
) -> None:
    """Write a package with a publisher, sink or store that works, and a test of its contract: a start for your own.

    Example: recordpublisher new-plugin sink audit-log
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)+", name):
        raise ConfigurationError("NAME", name, "two or more words in lower case with hyphens, such as audit-log")
    files = _files(kind.value, name)
    try:
        for file, content in files.items():
            file.parent.mkdir(parents=True, exist_ok=file.parent != Path(name))
            file.write_text(content, encoding="utf-8")
    except OSError as error:
        reason = error.strerror or str(error)
        raise ConfigurationError("NAME", name, "the name of a folder that can be created", reason=reason) from error
    echo("\n".join(map(str, files)))
    echo(f"next: cd {name} && pip install -e '.[test]' && pytest && recordpublisher plugins")


def _files(kind: str, name: str) -> dict[Path, str]:
    folder, module = Path(name), name.replace("-", "_")
    values = {
        "name": name,
        "kind": kind,
        "module": module,
        "hook": f"{kind}s",
        "class_name": name.title().replace("-", "") + CLASSES[kind],
    }
    templates = {
        folder / "pyproject.toml": "pyproject.toml.txt",
        folder / module / "__init__.py": "init.py.txt",
        folder / module / "plugin.py": "plugin.py.txt",
        folder / module / f"{kind}.py": f"{kind}.py.txt",
        folder / "tests" / "test_contract.py": f"test_{kind}.py.txt",
    }
    return {
        file: Template((TEMPLATES / template).read_text(encoding="utf-8")).substitute(values)
        for file, template in templates.items()
    }
