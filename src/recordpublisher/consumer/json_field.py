"""Decodes one top-level field of payloads that are JSON objects, and no other field."""

from collections.abc import Callable
from typing import Any

import msgspec

from recordpublisher.publishers.errors import ConfigurationError


def json_field(setting: str, name: str, kind: Any, *default: Any) -> Callable[[bytes], Any]:
    """Return a decoder of payloads. Its results have the field as `value`, or the default if there is one. It raises `UNDECODABLE`.

    Raises: ConfigurationError that names the setting, if JSON would have to escape the name.
    """
    try:
        payload = msgspec.defstruct("Payload", [("value", kind, *default)], rename={"value": name}, gc=False)
    except ValueError as error:
        raise ConfigurationError(setting, name, "a name without quotes, backslashes and control characters") from error
    return msgspec.json.Decoder(payload).decode
