"""A function of the user, named by a property as module:function."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.properties import Properties, Property


def imported_function(properties: Properties, declared: Property[str | None], valid: str) -> Callable[..., Any]:
    """Import the function that the property names. Raises: ConfigurationError that says what is `valid`."""
    path = properties.value(declared)
    module, _, name = (path or "").partition(":")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(declared.key, path, valid, reason=str(error)) from error
    if not callable(found):
        raise ConfigurationError(declared.key, path, valid)
    return found  # type: ignore[no-any-return]
