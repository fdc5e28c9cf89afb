"""LazyCommands: the commands by name. Each is imported when it is looked up, so that one does not wait for the imports of all others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

import typer
from typer.main import get_command

from .logs.log_options import LOG_OPTIONS


class LazyCommands(Mapping[str, Any]):
    """The commands of `places`: `module:function` below this package for each name. A `typer.Typer` there is a group of commands."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places
        self._loaded: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._loaded:
            self._loaded[name] = _load(name, self._places[name])
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _load(name: str, place: str) -> Any:
    module, _, attribute = place.partition(":")
    found = getattr(import_module(f".{module}", __package__), attribute)
    if not isinstance(found, typer.Typer):
        single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
        single.command(name)(found)
        found = single
    command = get_command(found)
    command.name = name
    for each in getattr(command, "commands", {name: command}).values():
        each.params += LOG_OPTIONS
    return command
