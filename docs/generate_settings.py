"""Writes what type checkers read: the keyword arguments (`rp.Settings`) from the table of properties, and the stub of the public names.

`make docs` runs it.
"""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import recordpublisher as rp
from recordpublisher.publishers.properties.declaration import Property
from recordpublisher.publishers.properties.properties import properties_by_keyword
from recordpublisher.publishers.properties.reading_properties import (
    INITIAL_POSITION,
    INITIAL_TIMESTAMP,
    INITIAL_TIMESTAMP_FORMAT,
)
from recordpublisher.publishers.properties.times_and_sizes import EXAMPLES

PACKAGE = Path(__file__).parents[1] / "src/recordpublisher"
FILE = PACKAGE / "publishers/properties/keyword_types.py"
STUB = PACKAGE / "__init__.pyi"
NUMBERS = {"int": "int", "double": "float", "boolean": "bool"}
ARGUMENTS = {"streams", "streams_file", "streams_function", "sink", "deserializer"}
"""What `DataFetcher`, `stream` and `consume` take as arguments of their own, under the same name."""
STARTS = {*INITIAL_POSITION.keywords, *INITIAL_TIMESTAMP.keywords, *INITIAL_TIMESTAMP_FORMAT.keywords}
"""What `read_arrow` takes as its argument `start`."""
TIME = "datetime | timedelta | str | float"
HEAD = '''"""Keyword arguments for properties, with types for editors. Written by `make docs` from the table of properties."""

from datetime import datetime, timedelta
from typing import Literal, TypedDict


class ReadSettings(TypedDict, total=False):
    """Keyword arguments of `read_arrow`, `read_polars` and `read_pandas`, which take the start as an argument of their own."""

'''
OF_JOBS = '''

class JobSettings(ReadSettings, total=False):
    """Keyword arguments of `DataFetcher`, `stream`, `consume`, `KinesisSink` and `Producer`.

    The text of each argument begins with the property that it stands for.
    """

'''
BETWEEN = '''

class Settings(JobSettings, total=False):
    """Keyword arguments of `Properties`: those of `DataFetcher`, and those for which `DataFetcher` has arguments of another form."""

'''


def content() -> str:
    """The whole module."""
    known = properties_by_keyword()
    of_read = [_field(*each) for each in known.items() if each[0] not in ARGUMENTS | STARTS]
    of_job = [_field(*each) for each in known.items() if each[0] in STARTS]
    others = [_field(*each) for each in known.items() if each[0] in ARGUMENTS]
    return HEAD + "".join(of_read) + OF_JOBS + "".join(of_job) + BETWEEN + "".join(others)


def _field(keyword: str, declared: Property[Any]) -> str:
    short = declared.keywords[0]
    words = f"`{declared.key}`: {declared.sentence}{_unit(keyword, declared)}"
    words = f"The same as `{short}`." if keyword != short else words
    text = "\n    ".join(textwrap.wrap(words, 130))
    return f'    {_annotated(keyword, _type(keyword, declared))}\n    """{text}"""\n'


def _unit(keyword: str, declared: Property[Any]) -> str:
    if declared.unit not in EXAMPLES:
        return ""
    return " A number is in seconds." if _is_in_seconds(keyword, declared) else f" A number is in {declared.unit}."


def _is_in_seconds(keyword: str, declared: Property[Any]) -> bool:
    return declared.unit in ("ms", "s") and not keyword.endswith("millis")


def _annotated(keyword: str, type_name: str) -> str:
    line = f"{keyword}: {type_name}"
    return line if len(line) <= 116 else line.replace("[", "[\n        ").replace("]", "\n    ]")


def _type(keyword: str, declared: Property[Any]) -> str:
    if declared is INITIAL_TIMESTAMP:
        return "datetime | str | float"
    if declared.type_name == "enum":
        return 'Literal["{}"]'.format('", "'.join(declared.valid.partition(" (")[0].split(", "))) + (
            f" | {TIME}" if declared is INITIAL_POSITION else ""
        )
    if declared.unit in EXAMPLES:
        number = "float" if _is_in_seconds(keyword, declared) else "int"
        return f"{number} | str" if declared.unit == "bytes" else f"{number} | str | timedelta"
    return NUMBERS.get(declared.type_name, "str")


STUB_HEAD = '''"""The public names, for type checkers. Written by `make docs` from `__init__.py`."""

__version__: str

from . import local as local
from . import testing as testing
from .plugins import spark as spark
'''


def stub() -> str:
    """The stub of the package: an import for each public name."""
    imports = [f"from {module} import {name} as {name}\n" for name, module in vars(rp)["_MODULE_OF"].items()]
    return STUB_HEAD + "".join(imports)


if __name__ == "__main__":
    FILE.write_text(content(), encoding="utf-8")
    STUB.write_text(stub(), encoding="utf-8")
