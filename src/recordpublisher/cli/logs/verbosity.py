"""How much a command writes to stderr: the options -v and --debug, before the command's name or after it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Annotated

import typer


def set_verbosity(context: typer.Context, verbose: bool = False, debug: bool = False) -> None:
    """Note an option in `context.obj`, which the group and its command share, and set the library's log level."""
    given = context.obj
    given["verbose"] |= verbose
    given["debug"] |= debug
    level = logging.DEBUG if given["debug"] else logging.INFO if given["verbose"] else logging.WARNING
    logging.getLogger("recordpublisher").setLevel(level)


def _setter(name: str) -> Callable[[typer.Context, bool], bool]:
    def set_option(context: typer.Context, given: bool) -> bool:
        set_verbosity(context, **{name: given})
        return given

    return set_option


VERBOSE_HELP = "Show on stderr what happens."
DEBUG_HELP = "Show tracebacks and every log line."
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help=VERBOSE_HELP, callback=_setter("verbose"))]
Debug = Annotated[bool, typer.Option("--debug", help=DEBUG_HELP, callback=_setter("debug"))]
