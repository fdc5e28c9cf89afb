"""`recordpublisher group`: shows the workers and shards of a group, and takes a worker out of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from recordpublisher.publishers.clock import SystemClock
from recordpublisher.publishers.errors import ConfigurationError, PluginError, StateError
from recordpublisher.publishers.properties.job_properties import SINK, STATE_URI
from recordpublisher.publishers.properties.properties import Properties

from ..execution import FAILED, run_to_end, subcommands
from ..options import JobProperties, with_properties
from ..output import echo, joined, json_text, table

if TYPE_CHECKING:
    from recordpublisher.fetcher.leases.group_store import GroupStore
    from recordpublisher.plugins.group_control import GroupStatus

group = subcommands(
    "Show the workers and shards of a group (`run --group`); take a worker out of it.\n\n"
    "Example: recordpublisher group show job.properties -p flink.state.uri=group"
)


@group.command("show")
@with_properties
async def show_group(
    properties: JobProperties,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON line for each worker, then for each shard.")
    ] = False,
) -> None:
    """Show the workers of a group, their shards and loads, and which shards are moving. It reads the group's store, and writes nothing.

    Example: recordpublisher group show job.properties -p flink.state.uri=group
    """
    from recordpublisher.plugins.group_control import read_view, status_of

    async with _opened(properties) as documents:
        view = await read_view(documents)
    if view is None:
        return
    status = status_of(view)
    if as_json:
        for each in status.workers:
            echo(json_text(asdict(each)))
        for shard in status.shards:
            echo(json_text(asdict(shard)))
    else:
        echo(_text(status, SystemClock().now_ms()))


@group.command("drain")
@with_properties
def drain_worker(
    properties: JobProperties,
    worker: Annotated[str, typer.Argument(metavar="WORKER", help="Its name, as `group show` has it.")],
    force: Annotated[
        bool,
        typer.Option(
            "--force", help="Take its shards away at once: what it wrote since its last checkpoint is written again."
        ),
    ] = False,
    wait: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long to wait until it has left; 0: not at all.")
    ] = 60.0,
) -> None:
    """Ask a worker to leave, as SIGTERM does: it stores its last checkpoint, releases its shards, and its process ends with exit code 0.

    The exit code is 1 if it has not left in time. With --force its process, if it is running, continues as a new worker.

    Example: recordpublisher group drain job.properties 5f0c2ab94d1e6f37 -p flink.state.uri=group --wait 0
    """
    from recordpublisher.plugins import group_control as draining

    async def run() -> str | None:
        async with _opened(properties) as documents:
            if force:
                await draining.seal(documents, worker)
                return None
            await draining.drain(documents, worker)
            return await draining.wait_until_left(documents, worker, wait) if wait else ""

    waits_for = run_to_end(run())
    if waits_for is None:
        echo(f"worker {worker} has left")
        return
    echo(f"worker {worker} was asked to leave, and has not left yet" + (f": {waits_for}" if waits_for else ""))
    if wait:
        raise typer.Exit(FAILED)


@asynccontextmanager
async def _opened(properties: Properties) -> AsyncIterator[GroupStore]:
    """Open the store of the job's group: its lease table and the records of its workers.

    Raises: ConfigurationError if the job has no state store, or its folder does not exist; StateError if the store has no group.
    """
    from recordpublisher.fetcher.leases.group_store import GroupStore
    from recordpublisher.fetcher.sink import CommittingSink, Sink, entry_store_of
    from recordpublisher.plugins.host.build_from_properties import build_sink, build_store, check_properties
    from recordpublisher.plugins.host.plugin_loading import load_registry
    from recordpublisher.plugins.lag.job_state import JobStateReader

    from ..doctor.job import check_rows
    from ..stored_positions import check_folder

    registry = load_registry()
    check_properties(registry, properties)
    check_folder(properties)
    store = build_store(registry, properties)

    def made_sink() -> Sink | None:
        name = properties.value(SINK)
        has_rows = name is not None and issubclass(registry.sinks.get(name, SINK.key), CommittingSink)
        return build_sink(registry, properties) if has_rows else None

    sink = made_sink() if store is None else None
    store = entry_store_of(sink) if store is None else store
    if store is None:
        reason = "a group keeps its leases there: are these the job's properties?"
        raise ConfigurationError(STATE_URI.key, properties.value(STATE_URI), STATE_URI.valid, reason=reason)
    try:
        documents = GroupStore(store)
        if await documents.read_table() is None:
            # A group with a store is found where its sink is not installed, and so must be its absence.
            with suppress(ConfigurationError, PluginError):
                rows = JobStateReader(None, made_sink())
                try:
                    await check_rows(rows)
                finally:
                    await rows.close()
            raise StateError(f"{store.place} has no group of workers: was the job started with `run --group`?")
        yield documents
    finally:
        await store.close()
        if sink is not None:
            await sink.close()


def _text(status: GroupStatus, now_ms: int) -> str:
    from recordpublisher.plugins.group_control import SHARD_COLUMNS, WORKER_COLUMNS

    workers = [[text(each, now_ms) or "-" for text in WORKER_COLUMNS.values()] for each in status.workers]
    shards = [[text(each) or "-" for text in SHARD_COLUMNS.values()] for each in status.shards]
    return joined(
        (
            table(tuple(WORKER_COLUMNS), workers),
            "",
            table(tuple(SHARD_COLUMNS), shards),
        )
    )
