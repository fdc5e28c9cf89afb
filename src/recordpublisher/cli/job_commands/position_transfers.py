"""What `recordpublisher positions` opens: a job's stored positions, and the other side of a move."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from recordpublisher.fetcher.shards.shard_state import ShardState
from recordpublisher.publishers.errors import StateError
from recordpublisher.publishers.properties.properties import Properties

if TYPE_CHECKING:
    from recordpublisher.plugins.positions.file_import import FileTransfer
    from recordpublisher.plugins.positions.kcl_transfer import KclTransfer


async def stored_states(properties: Properties) -> dict[str, ShardState]:
    """The stored state of each shard of a job. Raises: StateError when it has none."""
    from recordpublisher.plugins.positions.job_positions import JobPositions

    job = JobPositions(properties)
    try:
        states = (await job.load()).merged.shards
    finally:
        await job.close()
    if not states:
        raise StateError("the job has stored no positions: are these its properties?")
    return dict(sorted(states.items()))


@asynccontextmanager
async def kcl_transfer(
    properties: Properties, table_name: str, watch_seconds: float, is_forced: bool
) -> AsyncIterator[KclTransfer]:
    """Between the job and a lease table of the KCL."""
    from recordpublisher.plugins.positions.job_positions import JobPositions
    from recordpublisher.plugins.positions.kcl_lease_table import KclLeaseTable
    from recordpublisher.plugins.positions.kcl_transfer import KclTransfer
    from recordpublisher.plugins.runtime.stream_names import streams_of
    from recordpublisher.publishers.kinesis import KinesisClient  # brings the AWS SDK

    streams = streams_of(properties)
    async with AsyncExitStack() as opened:
        job, table = JobPositions(properties), KclLeaseTable(table_name, properties)
        opened.push_async_callback(job.close)
        opened.push_async_callback(table.close)
        service = await opened.enter_async_context(KinesisClient(properties, streams))
        yield KclTransfer(job, table, service, streams, properties, watch_seconds, is_forced)


@asynccontextmanager
async def file_transfer(properties: Properties, path: Path, is_forced: bool) -> AsyncIterator[FileTransfer]:
    """From a file of positions to the job."""
    from recordpublisher.plugins.positions.file_import import FileTransfer
    from recordpublisher.plugins.positions.job_positions import JobPositions
    from recordpublisher.plugins.runtime.stream_names import streams_of
    from recordpublisher.publishers.kinesis import KinesisClient  # brings the AWS SDK

    streams, job = streams_of(properties), JobPositions(properties)
    try:
        async with KinesisClient(properties, streams) as service:
            yield FileTransfer(job, path, service, streams, properties, is_forced)
    finally:
        await job.close()
