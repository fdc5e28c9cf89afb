"""Patches of the library for mutation testing."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

Patches = list[Any]


def replace_attribute(owner: Any, name: str, value: Any) -> Any:
    """A patch of one attribute."""
    return patch.object(owner, name, value)


def nothing(*_: Any, **__: Any) -> None:
    """A function without effect."""


def raise_error(error: BaseException) -> None:
    """Raise an error that the library would have handled."""
    raise error
