"""Options that several commands share: the job's properties."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.password_masking import MASK
from recordpublisher.publishers.properties.properties import Properties, is_secret

Pairs = Annotated[
    list[str] | None,
    typer.Option("-p", "--property", metavar="KEY=VALUE", help="A property; may be repeated, and overrides the file."),
]
PropertiesFile = Annotated[
    Path | None, typer.Option("--properties", metavar="FILE", help="A Java properties file with the job's properties.")
]


def read_properties(file: Path | None, pairs: list[str] | None) -> Properties:
    """The file's properties, overridden by the pairs. Raises: ConfigurationError."""
    given = Properties() if file is None else Properties.from_file(file)
    return given.merged(dict(_split(pair) for pair in pairs or ()))


def _split(pair: str) -> tuple[str, str]:
    key, sign, value = pair.partition("=")
    if not sign or not key.strip():
        raise ConfigurationError("-p", MASK if is_secret(pair) else pair, "KEY=VALUE, for example aws.region=eu-west-1")
    return key.strip(), value
