"""plain_profile: the profile in the AWS configuration files, where it has nothing but keys and a region: then the SDK is not needed."""

import os
from pathlib import Path

from ..properties.groups.access import PROFILE_NAME, PROFILE_PATH
from ..properties.properties import Properties

_KEYS = {"aws_access_key_id", "aws_secret_access_key", "aws_session_token"}
_PLAIN = _KEYS | {"region", "output"}


def plain_profile(properties: Properties) -> dict[str, str] | None:
    """Its settings; keys are those of the credentials file, else of the other. None: only the SDK can tell what the profile means."""
    name = properties.value(PROFILE_NAME) or os.environ.get("AWS_PROFILE") or "default"
    shared = properties.value(PROFILE_PATH) or os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
    config = os.environ.get("AWS_CONFIG_FILE", "~/.aws/config")
    try:
        given = _section(shared, name), _section(config, f"profile {name}", *["default"][: name == "default"])
    except (ValueError, OSError):  # not to be read, or not a file of settings
        return None
    credentials, rest = ({} if settings is None else settings for settings in given)
    is_missing = given == (None, None) and name != "default"
    if is_missing or not (credentials.keys() | rest.keys()) <= _PLAIN or "AWS_DEFAULT_PROFILE" in os.environ:
        return None
    keys = credentials if credentials.keys() & _KEYS else rest
    return {name: value for name, value in (rest | credentials).items() if name not in _KEYS or name in keys}


def _section(path: str, *names: str) -> dict[str, str] | None:
    """The settings of a section, under any of its names; None without one. Raises: ValueError, OSError."""
    file = Path(os.path.expanduser(path))  # without a home, as in some containers, Path.expanduser is an error
    if not file.is_file():
        return None
    from configparser import Error, RawConfigParser

    parser = RawConfigParser(default_section="")
    try:
        parser.read_string(file.read_text())
    except Error as error:
        raise ValueError(path) from error
    sections = [dict(parser[name]) for name in names if name in parser]
    return {key: value for section in sections for key, value in section.items()} if sections else None
