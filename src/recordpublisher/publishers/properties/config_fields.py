"""Defines fields of configuration classes that are values of properties: `window_ms: int = of_property(WINDOW)`.

`values_of` reads them. So a setting is declared in its group, and named in the class that uses it.
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
    """Return a dataclass field with the value of a property.

    - `divisor`: divides the value if the class has it in another unit (1000: ms become seconds).
    - `kind`: an enum, or a mapping. The field has its member or value with the property's value as name or key.
    """

    def made(value: Any) -> Any:
        if kind is not None:
            return kind[value]
        return value if value is None or divisor is None else value / divisor

    def read(properties: PropertyValues) -> Any:
        return made(properties.value(declared))

    return field(default=made(declared.default), metadata={"read": read, "property": declared})


def of_retries(declared: RetryProperties) -> RetryPolicy:
    """Return a dataclass field with the retry policy of an operation."""
    made: RetryPolicy = field(metadata={"read": declared.policy})
    return made


def values_of(config: type, properties: PropertyValues) -> dict[str, Any]:
    """Return the values of these fields of a dataclass, by name.

    Raises: ConfigurationError with key, value and valid values, if a value is invalid or the base of retries is above
    their maximum.
    """
    return {each.name: each.metadata["read"](properties) for each in fields(config) if "read" in each.metadata}


def properties_of(config: type) -> tuple[Property[Any], ...]:
    """Return the properties that fields of a dataclass name."""
    return tuple(each.metadata["property"] for each in fields(config) if "property" in each.metadata)
