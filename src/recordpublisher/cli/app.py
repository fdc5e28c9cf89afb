"""The `recordpublisher` command and its subcommands."""

from __future__ import annotations

import logging
import platform
from importlib.metadata import version as installed_version
from typing import Annotated

import typer

from .commands import demo, local, new_plugin, plugins, properties
from .execution import Commands, show_warnings_in_one_line
from .job_commands import doctor, lag, run, tracker
from .stream_commands import consumers, create, describe, list_streams, put, reshard, tail
from .verbosity import DEBUG_HELP, VERBOSE_HELP, set_verbosity

app = typer.Typer(
    cls=Commands,
    help="Read Amazon Kinesis Data Streams: polling and enhanced fan-out behind one property.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.command("local")(local.local)
app.command("list")(list_streams.list_streams)
app.command("describe")(describe.describe)
app.command("create")(create.create)
app.command("split")(reshard.split)
app.command("merge")(reshard.merge)
app.add_typer(consumers.consumers, name="consumers")
app.command("put")(put.put)
app.command("tail")(tail.tail)
app.command("doctor")(doctor.doctor)
app.command("run")(run.run)
app.command("lag")(lag.lag)
app.command("tracker")(tracker.tracker)
app.command("plugins")(plugins.plugins)
app.command("new-plugin")(new_plugin.new_plugin)
app.command("properties")(properties.properties)


def _print_version(given: bool) -> None:
    if given:
        typer.echo(f"recordpublisher {installed_version('recordpublisher')}, Python {platform.python_version()}")
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
    logging.basicConfig(format="%(levelname)s %(name)s: %(message)s", level=logging.WARNING, force=True)
    context.obj = {"debug": False, "verbose": False}
    set_verbosity(context, verbose, debug)
    show_warnings_in_one_line()
