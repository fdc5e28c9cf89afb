"""`recordpublisher demo outage`: the outage that this library must not repeat, with real processes, and a verdict."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from recordpublisher.publishers.errors import ConfigurationError

from .execution import tell


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
