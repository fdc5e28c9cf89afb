"""The `recordpublisher` command and its subcommands."""

import logging
import platform
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.main import get_command

from .execution import CommandGroup, show_warnings_in_one_line
from .output import DEBUG_HELP, LOG_OPTIONS, VERBOSE_HELP, TextLines, set_verbosity

COMMANDS = {
    "demo": "commands.demo:demo",
    "local": "commands.local:local",
    "judge": "commands.judge:judge",
    "list": "commands.streams:list_streams",
    "describe": "commands.streams:describe_stream",
    "create": "commands.streams:create_stream",
    "delete": "commands.streams:delete_stream",
    "split": "commands.streams:split_shard",
    "merge": "commands.streams:merge_shards",
    "consumers": "commands.streams:consumers",
    "put": "commands.put:put",
    "tail": "commands.tail:tail",
    "doctor": "commands.doctor:doctor",
    "run": "commands.run:run",
    "lag": "commands.lag:lag",
    "dashboard": "commands.dashboard:dashboard",
    "dead-letters": "commands.dead_letters:dead_letters",
    "positions": "commands.positions:positions",
    "leftovers": "commands.leftovers:leftovers",
    "group": "commands.group:group",
    "plugins": "commands.plugins:plugins",
    "new-plugin": "commands.new_plugin:new_plugin",
    "properties": "commands.properties:properties",
}
"""The place of each command, as `module:function`, in the order of the help."""
WIDEST_HELP = 120
"""Most columns of the help on a wide terminal."""


class Commands(CommandGroup):
    """The group of all commands."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**{**settings, "commands": LazyCommands(COMMANDS)})


app = typer.Typer(
    cls=Commands,
    help="Read Amazon Kinesis Data Streams: polling and enhanced fan-out behind one property.\n\n"
    "Example: recordpublisher tail orders --no-follow",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": WIDEST_HELP},
)


def _print_version(given: bool) -> None:
    if given:
        from importlib.metadata import version

        typer.echo(f"recordpublisher {version('recordpublisher')}, Python {platform.python_version()}")
        raise typer.Exit


@app.callback()
def prepare(
    context: typer.Context,
    debug: Annotated[bool, typer.Option("--debug", help=DEBUG_HELP)] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help=VERBOSE_HELP)] = False,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_print_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Send logs and warnings to stderr, so that stdout holds results only."""
    logging.basicConfig(level=logging.WARNING, force=True)
    logging.getLogger().handlers[0].setFormatter(TextLines())
    context.obj = {"debug": False, "verbose": False}
    set_verbosity(context, verbose, debug)
    show_warnings_in_one_line()


class LazyCommands(Mapping[str, Any]):
    """Maps the name of each command to the command. A command is imported when it is first used.

    - `places`: `module:function` of each command, relative to this package; for a group of commands, `module:variable` of a `typer.Typer`.
    """

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
