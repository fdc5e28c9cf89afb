"""`recordpublisher demo`: the main job, live, with a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recordpublisher.publishers.errors import ConfigurationError

from .demo_outage import outage
from .execution import tell

PUBLISHERS = ("EFO", "POLLING")

app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
app.command("outage")(outage)


@app.callback()
def demo(
    context: typer.Context,
    publisher: Annotated[str, typer.Option(help="EFO or POLLING.")] = "EFO",
    seconds: Annotated[float, typer.Option(min=20, help="How long the year of flights is played.")] = 125,
    kill: Annotated[bool, typer.Option("--kill", help="kill -9 the Spark job in mid-run and start it again.")] = False,
    folder: Annotated[Path | None, typer.Option(help="Keep everything in this folder, which must be new.")] = None,
) -> None:
    """Play 336,776 real flights into an embedded stream and read them with Spark, aligned in event time."""
    if context.invoked_subcommand is not None:
        return
    if publisher.upper() not in PUBLISHERS:
        raise ConfigurationError("--publisher", publisher, ", ".join(PUBLISHERS))
    if folder is not None and folder.exists():
        raise ConfigurationError("--folder", str(folder), "a folder that does not exist yet")
    from recordpublisher.demo.runner import Play, perform

    found = perform(Play(publisher.upper(), seconds, kill, folder))
    for finding in found:
        print(f"{'ok  ' if finding.is_right else 'MISS'}  {finding.what}: {finding.found}")
    if not all(finding.is_right for finding in found):
        tell("the demo did not keep every promise")
        raise typer.Exit(1)
    print("verdict: rows in = rows out, duplicates 0, missing 0")
