"""Finds the keys that sign the calls without the AWS SDK: in properties, in the environment, or in a profile of the AWS files."""

from __future__ import annotations

import os
import re
from pathlib import Path

import msgspec

from ..properties.properties import Properties
from ..properties.reading_properties import (
    ACCESS_KEY_ID,
    CREDENTIALS_PROVIDER,
    PROFILE_NAME,
    PROFILE_PATH,
    SECRET_KEY,
    SESSION_TOKEN,
)


def keys_of(properties: Properties, profile: dict[str, str]) -> Keys | None:
    """Return the keys that the SDK would find, or None if only the SDK can find them. `profile`: the result of `plain_profile`."""
    # A profile that a property names takes precedence over the environment, and the environment over any other profile.
    provider = provider_name(properties)
    if provider == "BASIC":
        given = tuple(properties.value(declared) for declared in (ACCESS_KEY_ID, SECRET_KEY, SESSION_TOKEN))
    elif provider == "ENV_VAR" or (
        provider == "AUTO" and "AWS_ACCESS_KEY_ID" in os.environ and not properties.is_set(PROFILE_NAME)
    ):
        given = tuple(map(os.environ.get, ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")))
    elif provider == "AUTO" or (provider == "PROFILE" and properties.is_set(PROFILE_NAME)):
        given = tuple(map(profile.get, ("aws_access_key_id", "aws_secret_access_key", "aws_session_token")))
    else:
        return None
    access_key, secret_key, token = given
    return Keys(access_key, secret_key, token or None) if access_key and secret_key else None


class Keys(msgspec.Struct):
    """Credentials that do not expire."""

    access_key: str
    secret_key: str
    token: str | None = None


def provider_name(properties: Properties) -> str:
    """Return the name of the credentials provider: the one that is set, else BASIC if a basic key is set, else AUTO."""
    has_basic = properties.is_set(ACCESS_KEY_ID) or properties.is_set(SECRET_KEY)
    return (
        "BASIC" if has_basic and not properties.is_set(CREDENTIALS_PROVIDER) else properties.value(CREDENTIALS_PROVIDER)
    )


_PROFILE_KEYS = {"aws_access_key_id", "aws_secret_access_key", "aws_session_token"}
_PROFILE_SETTINGS = _PROFILE_KEYS | {"region", "output", "endpoint_url"}
_SECTION_NAME = re.compile(r"((profile|sso-session|services) )?[\w.@+-]+", re.ASCII)
"""Matches section names that the SDK reads in the same way as this module.

The SDK splits other names as a shell does, and takes any section that begins with `profile` as a profile.
"""


def plain_profile(properties: Properties) -> dict[str, str] | None:
    """Return the settings of the profile, or None if only the SDK can find out what the profile means.

    If the credentials file has keys for the profile, they are used, else those in the configuration file.
    """
    chosen = properties.value(PROFILE_NAME) or os.environ.get("AWS_PROFILE")
    name = "default" if chosen is None else chosen
    shared = properties.value(PROFILE_PATH) or os.environ.get("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials")
    config = os.environ.get("AWS_CONFIG_FILE", "~/.aws/config")
    try:
        given = _section(shared, name), _section(config, f"profile {name}", *["default"][: name == "default"])
    except (ValueError, OSError):  # The file cannot be read, or is not a file of settings.
        return None
    credentials, rest = ({} if settings is None else settings for settings in given)
    is_missing = given == (None, None) and chosen is not None
    if is_missing or not (credentials.keys() | rest.keys()) <= _PROFILE_SETTINGS or "AWS_DEFAULT_PROFILE" in os.environ:
        return None
    keys = credentials if credentials.keys() & _PROFILE_KEYS else rest
    return {name: value for name, value in (rest | credentials).items() if name not in _PROFILE_KEYS or name in keys}


def _section(path: str, *names: str) -> dict[str, str] | None:
    """Return the settings of the section with one of these names, or None if there is none.

    Raises: ValueError if the SDK may read the file differently; OSError if it cannot be read.
    """
    if os.path.expandvars(path) != path:
        raise ValueError(path)
    # `Path.expanduser` is not used, because it raises an error if there is no home, as in some containers.
    file = Path(os.path.expanduser(path))
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
    is_plain = all(map(_SECTION_NAME.fullmatch, parser.sections())) and len(found) < 2 and not parser.defaults()
    if not is_plain or not all("=" in line for line in nested) or "\n" in "".join((settings or {}).values()):
        raise ValueError(path)
    return settings
