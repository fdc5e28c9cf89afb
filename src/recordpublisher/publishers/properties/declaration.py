"""Property, the declaration of one property; and which keys we and plugins have declared (C1)."""

from __future__ import annotations  # so that the reference and help() show types by their names

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from ..errors import ConfigurationError
from ..password_masking import names_a_secret

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Property(Generic[T]):
    """One declared property: key, type, default, unit and description (C1).

    - `key`: a key that ends in `.` or `[` is a prefix (`flink.stream.efo.consumerarn.<stream>`).
    - `parse`: turns text into the value and raises ValueError.
    - `valid`: describes the valid values.
    - `aliases`: older spellings of the key.
    - `group`: the property's section on the reference page.
    - `connector`: the default of Flink's connector if it differs from ours (the FLIP's numbers are ours).
    - `argument`: a shorter keyword argument than the one that is made from the key.
    """

    key: str
    parse: Callable[[str], T]
    default: T
    valid: str
    sentence: str
    unit: str = ""
    group: str = ""
    secret: bool = False
    aliases: tuple[str, ...] = ()
    type_name: str = ""
    connector: str = ""
    argument: str = ""

    @property
    def keywords(self) -> tuple[str, ...]:
        """The keyword arguments: the short one if there is one, and the key without `flink.` or `aws.`, with `_` for each dot."""
        key = re.sub(r"^(flink|aws)\.", "", self.key)
        from_key = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", key).replace(".", "_").lower()
        return (self.argument, from_key) if self.argument else (from_key,)

    @property
    def is_prefix(self) -> bool:
        """Whether this stands for every key that begins with `key`."""
        return self.key.endswith((".", "["))

    @property
    def spelling(self) -> str:
        """The key as shown to people. A prefix has a placeholder."""
        ending = "i].exception" if self.key.endswith("[") else "<name>" if self.is_prefix else ""
        return self.key + ending


class PropertyValues(Protocol):
    """Typed values of properties. `Properties` implements it."""

    def value(self, declared: Property[T]) -> T:
        """Return the typed value, or the default. Raises: ConfigurationError with key, value and valid values, if the value is invalid."""

    def is_set(self, declared: Property[Any]) -> bool:
        """Return whether the property was given."""


_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9.\-]*\[?")
_declared: dict[str, Property[Any]] = {}
"""The declared properties by key and alias, in lower case."""


def declare(declared: Property[T]) -> Property[T]:
    """Register a property. Plugins also declare their properties with it.

    Raises: ConfigurationError if the key is unusable, or belongs to another property. So the plugin fails, and not every job.
    """
    for key in (declared.key, *declared.aliases):
        if not isinstance(key, str) or not _KEY.fullmatch(key):
            raise ConfigurationError(
                repr(key), valid="a key of letters, digits, dots and hyphens, such as line-log.file"
            )
        known = _declared.get(key.lower())
        if known is not None and (known.type_name, known.sentence) != (declared.type_name, declared.sentence):
            raise ConfigurationError(
                key, valid="a key of its own", reason=f"it is declared already, with the description '{known.sentence}'"
            )
    for key in (declared.key, *declared.aliases):
        _declared[key.lower()] = declared
    return declared


def declared_properties() -> list[Property[Any]]:
    """Return every declared property once, in the order of declaration."""
    return list(dict.fromkeys(_declared.values()))


def declared_keys() -> list[str]:
    """Return keys and aliases of all declared properties, in lower case."""
    return list(_declared)


def find_property(key: str) -> Property[Any] | None:
    """Return the property with this key or alias, compared without case, or None. A prefix is found by its own key only."""
    return _declared.get(key.lower())


def is_secret(key: str) -> bool:
    """Return whether a key's value must never be shown (C3): it is declared as a secret, or not declared but named like one."""
    declared = find_property(key)
    if declared is not None:
        return declared.secret
    return names_a_secret(key)
