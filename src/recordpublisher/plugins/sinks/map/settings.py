"""MapSettings: the arguments of MapSink, read from properties or given, and checked."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.config_fields import of_property
from recordpublisher.publishers.properties.groups.bad_records import MAP_ON_FAILURE, OnBadRecord
from recordpublisher.publishers.properties.groups.sinks import (
    MAP_BATCH_SIZE,
    MAP_BATCH_WAIT,
    MAP_CONCURRENCY,
    MAP_MAX_AGE,
    MAP_MAX_BYTES,
    MAP_ORDERING,
    MAP_RETRIES,
    MAP_TIMEOUT,
)

from .ordering import Ordering

E = TypeVar("E", bound=Enum)


@dataclass(frozen=True, slots=True, kw_only=True)
class MapSettings:
    """Times in seconds, `max_bytes` in bytes. See MapSink for what they mean.

    Raises: ConfigurationError that names an argument, its value and what is valid.
    """

    concurrency: int = of_property(MAP_CONCURRENCY)
    ordering: Ordering = of_property(MAP_ORDERING, kind=Ordering)
    batch_size: int = of_property(MAP_BATCH_SIZE)
    batch_wait: float = of_property(MAP_BATCH_WAIT, 1000)
    retries: int = of_property(MAP_RETRIES)
    timeout: float | None = of_property(MAP_TIMEOUT, 1000)
    max_age: float | None = of_property(MAP_MAX_AGE, 1000)
    on_failure: OnBadRecord = of_property(MAP_ON_FAILURE, kind=OnBadRecord)
    max_bytes: int = of_property(MAP_MAX_BYTES)

    def __post_init__(self) -> None:
        for name, least in (("concurrency", 1), ("batch_size", 1), ("retries", 0), ("max_bytes", 1)):
            value = getattr(self, name)
            if not _is_number(value, int) or value < least:
                raise ConfigurationError(name, value, f"an integer, at least {least}")
        for name in ("timeout", "max_age"):
            value = getattr(self, name)
            if value is not None and (not _is_number(value, int | float) or value <= 0):
                raise ConfigurationError(name, value, "seconds above 0, or None")
        if not _is_number(self.batch_wait, int | float) or self.batch_wait < 0:
            raise ConfigurationError("batch_wait", self.batch_wait, "seconds, at least 0")


def _is_number(value: object, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def member(name: str, value: object, kind: type[E]) -> E:
    """The member of an enum, by its name. Raises: ConfigurationError that names the argument, its value and what is valid."""
    try:
        return value if isinstance(value, kind) else kind(value)
    except ValueError:
        raise ConfigurationError(name, value, ", ".join(each.value for each in kind)) from None
