"""`recordpublisher leftovers`: lists and removes staged files that no commit names, and undoes commits that cannot be published."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from recordpublisher.publishers.safe_text import counted

from ..options import JobProperties, with_properties
from ..output import duration, echo, table

if TYPE_CHECKING:
    from recordpublisher.plugins.positions.sink_leftovers import UnpublishedCommits

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
            help="Only files that are older: running jobs have files that no commit names yet. Use 0 if no job that writes there runs.",
        ),
    ] = DEFAULT_HOURS,
    remove: Annotated[bool, typer.Option("--remove", help="Delete the leftovers; otherwise show them.")] = False,
    take_back: Annotated[
        bool,
        typer.Option(
            "--take-back", help="Return the positions to before the commits that are not published. Stop the job first."
        ),
    ] = False,
) -> None:
    """List the staged files of a job (parquet, jsonl, delta, iceberg) that no commit names, and its unfinished uploads to S3.

    The job may be running. Its next start deletes most of them, but no uploads, and no files of another job.

    Files that other jobs have staged in the same folder or table are listed too. In Iceberg, a commit of another job is known only if
    that job has the same `flink.state.uri`. If that job is stopped and its last commit is not published, start it before you use --remove.

    If a table (delta, iceberg) refuses rows that the job has committed, each start of the job fails. --take-back makes sure that the table
    has none of these rows, and returns the positions to before the commit: the next start reads the records again.

    Example: recordpublisher leftovers job.properties --remove
    """
    from recordpublisher.fetcher.checkpoints.committing_calls import CommittingCalls
    from recordpublisher.plugins.positions.sink_leftovers import JobLeftovers

    job, now = JobLeftovers(properties), time.time()
    try:
        unpublished = await job.unpublished()
        if take_back:
            for each in unpublished:
                await job.take_back_commits(each)
                echo(f"{each.name} in {each.store.place} was set back to the positions before {_commits(each)}.")
            taken = sum(len(each.staged) for each in unpublished)
            echo(f"{counted(taken, 'commit') if unpublished else 'Nothing was'} taken back.")
            return
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
                await CommittingCalls(sink).remove(of_sink)
        total = f"{counted(len(left), 'leftover')}, {sum(each.size for each in left)} bytes"
        echo(f"{total}, removed." if remove else f"{total}. --remove deletes them." if left else f"{total}.")
        for each in unpublished:
            place = f"{each.name} in {each.store.place}"
            echo(
                f"Not published: {_commits(each)} of {place}. The job publishes its commits while it runs, and at its next start. "
                "If it cannot, use --take-back."
            )
    finally:
        await job.close()


def _commits(found: UnpublishedCommits) -> str:
    return f"{counted(len(found.staged), 'commit')} from number {found.staged[0].number.n} on"
