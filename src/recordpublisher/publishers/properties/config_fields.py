"""Fields of configuration classes that are values of properties: `window_ms: int = of_property(WINDOW)`.

`values_of` reads them. So a setting is declared in its group, and named in the class that it is given to.
"""

from collections.abc import Mapping
from dataclasses import field, fields
from enum import Enum
from typing import Any, TypeVar, overload

from ..retry import RetryPolicy
from .declaration import Property, PropertyValues
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
    """A field of a dataclass with the value of a property; divided, where the class has it in another unit (1000: ms in seconds); as the
    member of an enum that has its name, or what a mapping has for it."""

    def made(value: Any) -> Any:
        if kind is not None:
            return kind[value]
        return value if value is None or divisor is None else value / divisor

    def read(properties: PropertyValues) -> Any:
        return made(properties.value(declared))

    return field(default=made(declared.default), metadata={"read": read, "property": declared})


def of_retries(declared: RetryProperties) -> RetryPolicy:
    """A field with the policy of an operation's retries."""
    made: RetryPolicy = field(metadata={"read": declared.policy})
    return made


def values_of(config: type, properties: PropertyValues) -> dict[str, Any]:
    """The values of these fields of a dataclass, by name.

    Raises: ConfigurationError with key, value and what is valid; and when the base of retries is above their maximum.
    """
    return {each.name: each.metadata["read"](properties) for each in fields(config) if "read" in each.metadata}


def properties_of(config: type) -> tuple[Property[Any], ...]:
    """The properties that fields of a dataclass name."""
    return tuple(each.metadata["property"] for each in fields(config) if "property" in each.metadata)
