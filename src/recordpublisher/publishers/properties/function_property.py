"""Imports a function or a type of the user that a property names as module:function."""

import importlib
from collections.abc import Callable
from typing import Any

from recordpublisher.publishers.base import Check
from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.declaration import Property
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.user_code import ForeignExitError, check_user_function, exits_as_errors


def imported_function(properties: Properties, declared: Property[str | None], valid: str) -> Callable[..., Any]:
    """Import the function that the property names.

    Raises: ConfigurationError that says what is `valid`, if it cannot be imported or is not a suitable function.
    """
    found = imported_object(properties, declared, valid)
    check_user_function(declared.key, found, valid)
    return found  # type: ignore[no-any-return]


def imported_object(properties: Properties, declared: Property[Any], valid: str) -> Any:
    """Import the object that the property names. Raises: ConfigurationError that says what is `valid`, if that fails."""
    return imported(properties.value(declared), declared.key, valid)


def imported(path: str | None, key: str, valid: str) -> Any:
    """Import the object that `module:name` names. Raises: ConfigurationError that names the `key` and what is `valid`, if that fails."""
    module, colon, name = (path or "").partition(":")
    if path and not colon:
        meant = ":".join([*path.rsplit(".", 1), "name"][:2])
        raise ConfigurationError(key, path, valid, reason=f"the colon before the name is missing: write {meant}")
    try:
        with exits_as_errors():
            return getattr(importlib.import_module(module), name)
    except Exception as error:  # the user's module may raise anything
        says_all = (ImportError, SyntaxError, AttributeError, ValueError, ForeignExitError)
        reason = str(error) if isinstance(error, says_all) else repr(error)
        raise ConfigurationError(key, path, valid, reason=reason) from error


def import_check(function: Callable[..., Any]) -> Check:
    """Return a check that says which function was imported. Without the function there is no sink."""

    async def check() -> str:
        module, name = getattr(function, "__module__", "?"), getattr(function, "__qualname__", type(function).__name__)
        return f"{module}:{name} is imported; it is not called"

    return check
