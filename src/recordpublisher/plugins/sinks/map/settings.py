"""MapSettings: the arguments of MapSink, checked."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeVar

from recordpublisher.publishers.errors import ConfigurationError
from recordpublisher.publishers.properties.groups.bad_records import OnBadRecord

from .ordering import Ordering

E = TypeVar("E", bound=Enum)


@dataclass(frozen=True, slots=True)
class MapSettings:
    """Times in seconds, `max_bytes` in bytes. See MapSink for what they mean."""

    concurrency: int
    ordering: Ordering
    batch_size: int
    batch_wait: float
    retries: int
    timeout: float | None
    max_age: float | None
    on_failure: OnBadRecord
    max_bytes: int

    @classmethod
    def of(cls, *, ordering: str | Ordering, on_failure: str | OnBadRecord, **given: Any) -> MapSettings:
        """Check every argument. Raises: ConfigurationError that names it, its value and what is valid."""
        for name, least in (("concurrency", 1), ("batch_size", 1), ("retries", 0), ("max_bytes", 1)):
            value = given[name]
            if not _is_number(value, int) or value < least:
                raise ConfigurationError(name, value, f"an integer, at least {least}")
        for name in ("timeout", "max_age"):
            value = given[name]
            if value is not None and (not _is_number(value, int | float) or value <= 0):
                raise ConfigurationError(name, value, "seconds above 0, or None")
        wait = given["batch_wait"]
        if not _is_number(wait, int | float) or wait < 0:
            raise ConfigurationError("batch_wait", wait, "seconds, at least 0")
        return cls(
            ordering=_member("ordering", ordering, Ordering),
            on_failure=_member("on_failure", on_failure, OnBadRecord),
            **given,
        )


def _is_number(value: object, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _member(name: str, value: object, kind: type[E]) -> E:
    try:
        return value if isinstance(value, kind) else kind(value)
    except ValueError:
        raise ConfigurationError(name, value, ", ".join(each.value for each in kind)) from None
