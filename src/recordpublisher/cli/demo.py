"""`recordpublisher demo`: the main job, live, with a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recordpublisher.publishers.errors import ConfigurationError

from .execution import tell

PUBLISHERS = ("EFO", "POLLING")

app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)


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


def outage(
    rule: Annotated[
        str, typer.Option(help="ours, or flink: a model of Flink's rule before FLINK-29099.", metavar="RULE")
    ] = "ours",
    pictures: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Draw event time over wall time into this folder, as PNG.")
    ] = None,
    folder: Annotated[Path | None, typer.Option(help="Keep logs and states in this folder, which must be new.")] = None,
) -> None:
    """Stop one subtask of a job for longer than idle interval and tracker timeout, wake it, and see what becomes of its shard.

    By Flink's old rule the shard stays unread for ever, and the alarms say so. By ours it is read, and then comes the morning after: the
    job is started again with one shard days behind. Takes half a minute for each half.
    """
    if folder is not None and folder.exists():
        raise ConfigurationError("--folder", str(folder), "a folder that does not exist yet")
    from recordpublisher.demo.outage.runner import check_pictures, draw_pictures, perform

    if pictures is not None:
        check_pictures(pictures)
    halves = perform(rule.lower(), folder, tell)
    for half in halves:
        print(half.title)
        for finding in half.findings:
            print(f"  {'ok  ' if finding.is_right else 'MISS'}  {finding.what}: {finding.found}")
    if pictures is not None:
        for path in draw_pictures(halves, pictures):
            print(f"picture: {path}")
    if not all(half.is_right for half in halves):
        tell("the replay did not go as it should")
        raise typer.Exit(1)
    print(f"verdict: {VERDICTS[rule.lower()]}")


VERDICTS = {
    "ours": "every record was written once, and nothing is left",
    "flink": "the shard stays unread for ever while the others go on: the outage; both alarms name it",
}


app.command("outage")(outage)
