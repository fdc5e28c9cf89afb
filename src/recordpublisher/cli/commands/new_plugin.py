"""`recordpublisher new-plugin`: writes a package for a new plugin."""

import re
from enum import StrEnum
from pathlib import Path
from string import Template
from typing import Annotated

import typer

from recordpublisher.publishers.errors import ConfigurationError

from ..output import echo

TEMPLATES = Path(__file__).parents[1] / "plugin_templates"
KINDS = {
    "publisher": ("publishers", "Factory"),
    "queue": ("publishers", "Queue"),
    "sink": ("sinks", "Sink"),
    "committing-sink": ("sinks", "Sink"),
    "store": ("stores", "Store"),
    "deserializer": ("deserializers", "Deserializer"),
}
"""For each kind: the plugin hook that registers it, and the last word of the name of its class."""


class Kind(StrEnum):
    """The kind of class that a new package adds."""

    PUBLISHER = "publisher"
    QUEUE = "queue"
    SINK = "sink"
    COMMITTING_SINK = "committing-sink"
    STORE = "store"
    DESERIALIZER = "deserializer"


def new_plugin(
    kind: Annotated[
        Kind,
        typer.Argument(metavar="|".join(KINDS), help="Kind of class that the package adds."),
    ],
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Name of the package and of the class that it registers, such as audit-log. A single word is followed by the kind.",
        ),
    ],
) -> None:
    """Write a package with a working publisher, queue, sink, store or deserializer and its contract test, as a start for your own.
    A committing sink writes exactly once, and can be used in a group of workers.

    Example: recordpublisher new-plugin sink audit-log
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise ConfigurationError("NAME", name, "words in lower case with hyphens, such as audit-log")
    # One word alone may be the name of another module, such as json.
    name = name if "-" in name else f"{name}-{kind.value}"
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
    folder, module, file_name = Path(name), name.replace("-", "_"), kind.replace("-", "_")
    hook, ending = KINDS[kind]
    values = {
        "name": name,
        "kind": kind.replace("-", " "),
        "file": file_name,
        "module": module,
        "hook": hook,
        "class_name": name.title().replace("-", "") + ending,
    }
    templates = {
        folder / "pyproject.toml": "pyproject.toml.txt",
        folder / module / "__init__.py": "init.py.txt",
        folder / module / "plugin.py": "plugin.py.txt",
        folder / module / f"{file_name}.py": f"{file_name}.py.txt",
        folder / "tests" / "test_contract.py": f"test_{file_name}.py.txt",
    }
    written = {
        file: Template((TEMPLATES / template).read_text(encoding="utf-8")).substitute(values)
        for file, template in templates.items()
    }
    return {**written, folder / module / "py.typed": ""}
