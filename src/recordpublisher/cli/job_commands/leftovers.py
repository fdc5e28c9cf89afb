"""`recordpublisher leftovers`: what killed processes of a job have staged and nobody will publish, listed and removed."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from recordpublisher.publishers.log_fields import counted

from ..options import JobProperties, with_properties
from ..output import duration, echo, table

DEFAULT_HOURS = 24.0


@with_properties
async def leftovers(
    properties: JobProperties,
    older_than: Annotated[
        float,
        typer.Option(
            "--older-than",
            min=0,
            metavar="HOURS",
            help="Only what is older: a running job has files in no commit yet. 0: the job is stopped.",
        ),
    ] = DEFAULT_HOURS,
    remove: Annotated[bool, typer.Option("--remove", help="Delete it; otherwise show what would be deleted.")] = False,
) -> None:
    """List the staged files of a job (parquet, jsonl, delta, iceberg) that no commit names, and its unfinished uploads to S3.

    The job may be running. Its next start deletes most of them; not those of a job of another name, and no uploads.

    Example: recordpublisher leftovers job.properties --remove
    """
    from recordpublisher.plugins.positions.leftovers import JobLeftovers

    job, now = JobLeftovers(properties), time.time()
    try:
        found = await job.find(now - older_than * 3600)
        left = [each for _, of_sink in found for each in of_sink]
        rows = [
            (
                each.name,
                "upload" if each.upload else "staged",
                str(each.size),
                duration(round((now - each.written) * 1000)),
            )
            for each in left
        ]
        if rows:
            echo(table(("NAME", "", "BYTES", "AGE"), rows))
        if remove:
            for sink, of_sink in found:
                await sink.remove(of_sink)
        total = f"{counted(len(left), 'leftover')}, {sum(each.size for each in left)} bytes"
        echo(f"{total}, removed." if remove else f"{total}. --remove deletes them." if left else f"{total}.")
    finally:
        await job.close()
