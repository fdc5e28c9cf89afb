"""Options that several commands share: the job's properties, and how to reach the service."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.password_masking import MASK
from recordpublisher.publishers.properties import table
from recordpublisher.publishers.properties.properties import Properties, is_secret

Pairs = Annotated[
    list[str] | None,
    typer.Option("-p", "--property", metavar="KEY=VALUE", help="A property; may be repeated, and overrides the file."),
]
PropertiesFile = Annotated[
    Path | None, typer.Option("--properties", metavar="FILE", help="A Java properties file with the job's properties.")
]

Region = Annotated[str | None, typer.Option("--region", metavar="NAME", help="The AWS region (aws.region).")]
Endpoint = Annotated[str | None, typer.Option("--endpoint", metavar="URL", help="Another endpoint (aws.endpoint).")]
Profile = Annotated[str | None, typer.Option("--profile", metavar="NAME", help="A profile of the AWS configuration.")]

StreamName = Annotated[str, typer.Argument(help="The stream's name or ARN.", metavar="STREAM")]
Wait = Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the stream is ACTIVE.")]


def read_properties(
    file: Path | None,
    pairs: list[str] | None,
    region: str | None = None,
    endpoint: str | None = None,
    profile: str | None = None,
) -> Properties:
    """The file's properties, overridden by the pairs and these by the options. Raises: ConfigurationError."""
    given = Properties() if file is None else Properties.from_file(file)
    options = {table.REGION.key: region, table.ENDPOINT.key: endpoint, table.PROFILE_NAME.key: profile}
    if profile is not None:
        options[table.CREDENTIALS_PROVIDER.key] = "PROFILE"
    return given.merged(dict(_split(pair) for pair in pairs or ())).merged(
        {key: value for key, value in options.items() if value is not None}
    )


def _split(pair: str) -> tuple[str, str]:
    key, sign, value = pair.partition("=")
    if not sign or not key.strip():
        raise ConfigurationError("-p", MASK if is_secret(pair) else pair, "KEY=VALUE, for example aws.region=eu-west-1")
    return key.strip(), value


def search_current_folder() -> None:
    """Let the job's properties name functions of the current folder, as `python -m recordpublisher` does. Last, so that no file there
    replaces an installed module."""
    folder = str(Path.cwd())
    if not sys.flags.safe_path and not {"", folder} & set(sys.path):
        sys.path.append(folder)
