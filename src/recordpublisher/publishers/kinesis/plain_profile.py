"""plain_profile reads a profile of the AWS configuration files, if it has only keys, a region and an endpoint: this needs no SDK.

If the SDK could read a file in another way, the file is not used, and the SDK decides.
"""

import os
import re
from pathlib import Path

from ..properties.groups.reading import PROFILE_NAME, PROFILE_PATH
from ..properties.properties import Properties

_KEYS = {"aws_access_key_id", "aws_secret_access_key", "aws_session_token"}
_PLAIN = _KEYS | {"region", "output", "endpoint_url"}
_NAME = re.compile(r"((profile|sso-session|services) )?[\w.@+-]+", re.ASCII)
"""Plain names of sections. The SDK splits other names as a shell does, and takes any section that begins with `profile` as a profile."""


def plain_profile(properties: Properties) -> dict[str, str] | None:
    """Return the settings of the profile, or None if only the SDK can tell what the profile means.

    The keys are those of the credentials file if it has keys, else of the configuration file.
    """
    chosen = properties.value(PROFILE_NAME) or os.environ.get("AWS_PROFILE")
    name = "default" if chosen is None else chosen
    shared = properties.value(PROFILE_PATH) or os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
    config = os.environ.get("AWS_CONFIG_FILE", "~/.aws/config")
    try:
        given = _section(shared, name), _section(config, f"profile {name}", *["default"][: name == "default"])
    except (ValueError, OSError):  # the file cannot be read, or is not a file of settings
        return None
    credentials, rest = ({} if settings is None else settings for settings in given)
    is_missing = given == (None, None) and chosen is not None
    if is_missing or not (credentials.keys() | rest.keys()) <= _PLAIN or "AWS_DEFAULT_PROFILE" in os.environ:
        return None
    keys = credentials if credentials.keys() & _KEYS else rest
    return {name: value for name, value in (rest | credentials).items() if name not in _KEYS or name in keys}


def is_header_text(value: str) -> bool:
    """Return whether a key or token can be sent in a header: it has no control characters, such as the end of a line."""
    return value.isascii() and value.isprintable()


def _section(path: str, *names: str) -> dict[str, str] | None:
    """Return the settings of the section that has one of the names, or None if there is no such section.

    Raises: ValueError if the SDK could read the file in another way, OSError if it cannot be read.
    """
    if os.path.expandvars(path) != path:
        raise ValueError(path)
    file = Path(os.path.expanduser(path))  # Path.expanduser raises an error if there is no home, as in some containers
    if not file.is_file():
        return None
    from configparser import Error, RawConfigParser

    parser = RawConfigParser()
    try:
        parser.read_string(file.read_text())
    except Error as error:
        raise ValueError(path) from error
    found = [name for name in names if name in parser]
    settings = dict(parser[found[0]]) if found else None
    values = [value for section in parser.sections() for value in parser[section].values()]
    nested = [line for value in values if value.startswith("\n") for line in value.split("\n") if line.strip()]
    is_plain = all(map(_NAME.fullmatch, parser.sections())) and len(found) < 2 and not parser.defaults()
    if not is_plain or not all("=" in line for line in nested) or "\n" in "".join((settings or {}).values()):
        raise ValueError(path)
    return settings
