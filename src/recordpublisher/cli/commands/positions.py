"""`recordpublisher positions`: shows the stored positions of a job, copies them from a file or from and to the KCL, and resets them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import ConfigurationError, StateError
from recordpublisher.publishers.positions import StartingPosition
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.times_and_sizes import iso_time
from recordpublisher.publishers.safe_text import few_of

from ..execution import errors_naming_options, print_note, run_to_end, subcommands
from ..options import JobProperties, with_properties
from ..output import echo, joined, json_text, table
from ..stored_positions import FROM_ROWS

if TYPE_CHECKING:
    from recordpublisher.plugins.positions.file_import import FileTransfer
    from recordpublisher.plugins.positions.job_positions import JobPositions
    from recordpublisher.plugins.positions.kcl_transfer import KclTransfer

positions = subcommands(
    "Show the stored positions of a job; reset them; move them from a file, and from and to the KCL.\n\n"
    "Example: recordpublisher positions show job.properties -p flink.state.uri=state"
)
Apply = Annotated[bool, typer.Option("--apply", help="Write; otherwise show what would be written.")]
WatchSeconds = Annotated[
    float,
    typer.Option(
        min=0,
        metavar="SECONDS",
        help="How long to watch the table for changes: more than a third of the KCL's failoverTimeMillis.",
    ),
]
KCL, FILE = "kcl:TABLE", "file:PATH"


@positions.command("show")
@with_properties
def show_positions(
    properties: JobProperties,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line for each shard.")] = False,
) -> None:
    """Show the stored position of each shard, from the job's sink (sql, jsonl, parquet, delta) and its state store. The job may be running.

    Example: recordpublisher positions show job.properties -p flink.state.uri=state
    """
    states = run_to_end(stored_states(properties))
    if as_json:
        echo(joined(json_text({"shard": shard, **state.to_json()}) for shard, state in states.items()))
    else:
        rows = [(shard, state_text(state), _time_text(state.watermark)) for shard, state in states.items()]
        echo(table(("SHARD", "POSITION", "WATERMARK"), rows))


@positions.command("import")
@with_properties
async def import_positions(
    properties: JobProperties,
    source: Annotated[
        str,
        typer.Option(
            "--from",
            metavar=f"{KCL}|{FILE}",
            help="The lease table, in DynamoDB; or a file with the lines of `positions show --json`.",
        ),
    ],
    apply: Apply = False,
    force: Annotated[
        bool, typer.Option("--force", help="Write even while a worker is running, and over positions that the job has.")
    ] = False,
    watch: WatchSeconds = 20.0,
) -> None:
    """Let a job continue after the checkpoints of the KCL, or the positions of another job, without a gap or a repetition.

    Stop the job first, and the KCL application or the other job.

    Example: recordpublisher positions import job.properties --from kcl:orders -p flink.state.uri=imported
    """
    scheme, place = _place_of(source, "--from", (KCL, FILE))
    moving: AbstractAsyncContextManager[FileTransfer | KclTransfer] = (
        file_transfer(properties, Path(place), force)
        if scheme == "file"
        else kcl_transfer(properties, place, watch, force)
    )
    async with moving as transfer:
        plan = await transfer.plan_import()
        rows = [(shard.shard, shard.found, state_text(shard.state), shard.note) for shard in plan]
        echo(table(("SHARD", "FOUND", "THE JOB READS", ""), rows))
        echo(await note_on_running_job(transfer.job))
        if apply:
            await transfer.apply_import(plan)
        echo((WRITTEN if apply else DRY_RUN).format(transfer.job.place))


@positions.command("export")
@with_properties
async def export_positions(
    properties: JobProperties,
    target: Annotated[
        str, typer.Option("--to", metavar=KCL, help="The lease table, in DynamoDB; created if there is none.")
    ],
    apply: Apply = False,
    force: Annotated[
        bool, typer.Option("--force", help="Write even while a worker or job is running, and over rows that are ahead.")
    ] = False,
    watch: WatchSeconds = 20.0,
) -> None:
    """Let the KCL continue after the positions of a job: nothing is read twice or skipped. Stop the job first.

    Example: recordpublisher positions export job.properties --to kcl:orders-2 -p flink.state.uri=state
    """
    from recordpublisher.plugins.positions.kcl_transfer import NOT_KEPT_BY_KCL

    _, table_name = _place_of(target, "--to", (KCL,))
    async with kcl_transfer(properties, table_name, watch, force) as transfer:
        plan = await transfer.plan_export()
        rows = [(lease.shard, str(lease.replaced or "-"), str(lease.written), lease.note) for lease in plan]
        echo(table(("SHARD", "IN THE TABLE", "CHECKPOINT", ""), rows))
        if apply:
            await transfer.apply_export(plan)
        echo(NOT_KEPT_BY_KCL)
        echo((WRITTEN if apply else DRY_RUN).format(transfer.table.place))


@positions.command("reset")
@with_properties
async def reset_positions(
    properties: JobProperties,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="TIME|AGE|TRIM_HORIZON|LATEST",
            help="Where to continue; earliest is TRIM_HORIZON, a time is ISO-8601 or epoch seconds, an age 1h or 2d.",
        ),
    ],
    shards: Annotated[
        list[str] | None,
        typer.Option("--shard", metavar="SHARD", help="Only this shard, by id or as stream/shard; may be repeated."),
    ] = None,
    apply: Annotated[
        bool, typer.Option("--apply/--dry-run", help="Write; otherwise show what would be written.")
    ] = False,
) -> None:
    """Let a job continue from a time, the oldest record or the tip, instead of where it stopped. Stop it first, or it ends with an error.

    Example: recordpublisher positions reset job.properties --to 2026-11-26T06:00:00Z -p flink.state.uri=state
    """
    from recordpublisher.plugins.positions.job_positions import job_and_lister
    from recordpublisher.plugins.positions.reset import PositionsReset, reset_target

    start = reset_target(to)
    async with job_and_lister(properties) as (positions_of_job, lister, streams):
        reset = PositionsReset(positions_of_job, lister, streams, properties, start, shards or ())
        with errors_naming_options("to"):
            plan = await reset.plan()
        rows = [(each.shard, state_text(each.state), each.note) for each in plan]
        echo(table(("SHARD", "THE JOB READS", ""), rows))
        echo(WRITTEN_AGAIN)
        echo(await note_on_running_job(positions_of_job))
        if apply:
            await reset.apply(plan)
        echo((WRITTEN if apply else DRY_RUN).format(positions_of_job.place))


WRITTEN_AGAIN = (
    "Records that are read again are written again: a sink that has them already has them twice then, except in a table that the sql sink "
    "created, whose rows stay as they are."
)
STILL_RUNNING = (
    "A worker that still runs ends with a FencedError at its next checkpoint after the positions are written."
)
WRITTEN = "Written to {}."
DRY_RUN = "Nothing was written: this was a dry run. --apply writes it to {}."


def state_text(state: ShardState) -> str:
    """Return the position from which a shard is read next, as text."""
    waiting = " when its parents have ended" if state.waiting and state.parents else ""
    if state.ended:
        return "ended"
    return f"after {state.position}" if state.position is not None else f"from {_start_text(state.start)}{waiting}"


def _start_text(start: StartingPosition) -> str:
    return start.type.value if start.timestamp_ms is None else f"{start.type.value} {_time_text(start.timestamp_ms)}"


def _time_text(value: int | None) -> str:
    return "-" if value is None else f"{value} ({iso_time(value)})"


def _place_of(uri: str, option: str, valid: Sequence[str]) -> tuple[str, str]:
    """Return the scheme of a URI, and the name or path after it: `("kcl", "orders")` for `kcl:orders` and for `kcl://orders`.

    Raises: ConfigurationError, which names `option`, if the name or path is empty, or if `valid` has no form with this scheme.
    """
    scheme, _, place = uri.partition(":")
    name = place if scheme == "file" else place.removeprefix("//")
    if not name or scheme not in {form.partition(":")[0] for form in valid}:
        raise ConfigurationError(option, uri, " or ".join(valid))
    return scheme, name


async def stored_states(properties: Properties) -> dict[str, ShardState]:
    """Return the stored state of each shard of a job. Raises: StateError if the job has stored no positions."""
    from recordpublisher.fetcher.leases.group_store import MissingPositionsError
    from recordpublisher.plugins.positions.job_positions import JobPositions

    job = JobPositions(properties)
    try:
        try:
            states = (await job.load()).merged.shards
        except MissingPositionsError:
            states = await job.load_beside_rows()
            if not states:
                raise
            print_note(FROM_ROWS)
        else:
            if not states and (states := await job.load_beside_rows()):
                print_note(FROM_ROWS)
    finally:
        await job.close()
    if not states:
        raise StateError(f"the job has stored no positions in {job.place}: are these its properties?")
    return dict(sorted(states.items()))


async def note_on_running_job(job: JobPositions) -> str:
    """Return a note that says when the job last stored its positions, and what happens to a job that was not stopped.

    A job that stored them seconds ago is probably running.
    """
    from recordpublisher.fetcher.leases.group_store import MissingPositionsError

    if workers := await job.group_workers():
        return (
            f"The group of the job has workers: {few_of(sorted(workers))}. While one of them sends heartbeats, --apply is refused: stop "
            "all processes of the job first."
        )
    taken_ms = None
    with contextlib.suppress(MissingPositionsError):  # Another sink keeps them, and the command replaces them.
        taken_ms = (await job.load()).merged.taken_ms
    if taken_ms is None:
        return STILL_RUNNING
    ago = max(0.0, SystemClock().now_ms() - taken_ms) / 1000
    return f"The job stored its positions at {iso_time(taken_ms)}, {ago:.0f} s ago. {STILL_RUNNING}"


@asynccontextmanager
async def kcl_transfer(
    properties: Properties, table_name: str, watch_seconds: float, is_forced: bool
) -> AsyncIterator[KclTransfer]:
    """Open a transfer of positions between the job and a lease table of the KCL."""
    from recordpublisher.plugins.positions.job_positions import job_and_lister
    from recordpublisher.plugins.positions.kcl_transfer import KclLeaseTable, KclTransfer

    pause = partial(_tell_and_pause, table_name)
    async with job_and_lister(properties) as (job, lister, streams):
        table = KclLeaseTable(table_name, properties)
        try:
            yield KclTransfer(job, table, lister, streams, properties, watch_seconds, is_forced, pause)
        finally:
            await table.close()


async def _tell_and_pause(table_name: str, seconds: float) -> None:
    if seconds:
        words = "a change there shows that a worker still runs (--watch)"
        print_note(f"watching the table {table_name} and the stored positions for {seconds:g} s: {words}")
    await asyncio.sleep(seconds)


@asynccontextmanager
async def file_transfer(properties: Properties, path: Path, is_forced: bool) -> AsyncIterator[FileTransfer]:
    """Open a transfer of positions from a file to the job."""
    from recordpublisher.plugins.positions.file_import import FileTransfer
    from recordpublisher.plugins.positions.job_positions import job_and_lister

    async with job_and_lister(properties) as (job, lister, streams):
        yield FileTransfer(job, path, lister, streams, properties, is_forced)
