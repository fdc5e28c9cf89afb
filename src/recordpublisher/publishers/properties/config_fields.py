"""Makes the fields of configuration classes from properties: `window_ms: int = of_property(WINDOW)`.

`values_of` returns the values of these fields. `imported` imports a user's function or type that a property names as module:function.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import field, fields
from enum import Enum
from typing import Any, TypeVar, overload

from ..base import Check
from ..errors import ConfigurationError
from ..retry import RetryPolicy
from ..safe_text import repr_of, text_of
from ..user_code import ForeignExitError, check_user_function, exits_as_errors
from .declaration import Property, PropertyValues
from .properties import Properties
from .retry_properties import RetryProperties

T = TypeVar("T")
E = TypeVar("E", bound=Enum)


@overload
def of_property(declared: Property[T]) -> T: ...
@overload
def of_property(declared: Property[int], divisor: int) -> float: ...
@overload
def of_property(declared: Property[int | None], divisor: int) -> float | None: ...
@overload
def of_property(declared: Property[str], *, kind: type[E]) -> E: ...
@overload
def of_property(declared: Property[str], *, kind: Mapping[str, T]) -> T: ...
def of_property(declared: Property[Any], divisor: int | None = None, kind: Any = None) -> Any:
    """Return a dataclass field that has the value of a property.

    - `divisor`: the property's value is divided by this number, for another unit. With 1000, ms become seconds.
    - `kind`: an enum or a mapping, whose member or entry the property names. That becomes the value of the field.
    """

    def made(value: Any) -> Any:
        if kind is not None:
            return kind[value]
        return value if value is None or divisor is None else value / divisor

    def read(properties: PropertyValues) -> Any:
        return made(properties.value(declared))

    return field(default=made(declared.default), metadata={"read": read, "property": declared})


def of_retries(declared: RetryProperties) -> RetryPolicy:
    """Return a dataclass field that has the retry policy of these properties."""
    made: RetryPolicy = field(metadata={"read": declared.policy})
    return made


def values_of(config: type, properties: PropertyValues) -> dict[str, Any]:
    """Return the values, by name, of the fields of a dataclass that were made by `of_property` or `of_retries`.

    Raises: ConfigurationError with key, value and valid values, if a value is invalid. Retries are also invalid if their first back-off is
    above the largest one.
    """
    return {each.name: each.metadata["read"](properties) for each in fields(config) if "read" in each.metadata}


def properties_of(config: type) -> tuple[Property[Any], ...]:
    """Return the properties from which the fields of a dataclass take their values."""
    return tuple(each.metadata["property"] for each in fields(config) if "property" in each.metadata)


# --- functions and types of the user that a property names as module:function ----------------------------------------------------------


def imported_function(properties: Properties, declared: Property[str | None], valid: str) -> Callable[..., Any]:
    """Import the function that a property names.

    Raises: ConfigurationError, with `valid` as the valid values, if it cannot be imported, or if it is not a suitable function.
    """
    found = imported_object(properties, declared, valid)
    check_user_function(declared.key, found, valid)
    return found  # type: ignore[no-any-return]


def imported_object(properties: Properties, declared: Property[Any], valid: str) -> Any:
    """Import the object that a property names. Raises: ConfigurationError if the import fails, with `valid` as the valid values."""
    return imported(properties.value(declared), declared.key, valid)


def imported(path: str | None, key: str, valid: str) -> Any:
    """Import the object that `path` names as module:name.

    Raises: ConfigurationError, about the setting `key` and with `valid` as the valid values, if `path` is None or the import fails.
    """
    module, colon, name = (path or "").partition(":")
    if path and not colon:
        meant = ":".join([*path.rsplit(".", 1), "name"][:2])
        raise ConfigurationError(key, path, valid, reason=f"the colon before the name is missing: write {meant}")
    try:
        with exits_as_errors():
            return getattr(importlib.import_module(module), name)
    except Exception as error:  # the user's module may raise anything
        says_all = (ImportError, SyntaxError, AttributeError, ValueError, ForeignExitError)
        reason = text_of(error) if isinstance(error, says_all) else repr_of(error, None)
        # Any other error may come from a service that the module calls while it is imported, such as its database.
        may_pass = not isinstance(
            error, (*says_all, NameError, TypeError, LookupError, AssertionError, ArithmeticError)
        )
        raise ConfigurationError(key, path, valid, reason=reason, may_pass=may_pass) from error


def import_check(function: Callable[..., Any]) -> Check:
    """Return a check for `recordpublisher doctor` that reports which function was imported.

    The check never fails, because the function was imported before.
    """

    async def check() -> str:
        module, name = getattr(function, "__module__", "?"), getattr(function, "__qualname__", type(function).__name__)
        return f"{module}:{name} is imported; it is not called"

    return check
