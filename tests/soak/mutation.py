"""Mutation: how a piece of the library is put out of order for a while."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

Patches = list[Any]


def replaced(owner: Any, name: str, value: Any) -> Any:
    """A patch of one attribute."""
    return patch.object(owner, name, value)


def nothing(*_: Any, **__: Any) -> None:
    """A function that does not do its duty."""


def throw(error: BaseException) -> None:
    """An error where there was a remedy."""
    raise error
