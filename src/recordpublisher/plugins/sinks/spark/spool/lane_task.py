"""What a long-running Spark task does: a fetcher in its lane, until the driver says stop or is gone."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from recordpublisher.plugins.spark.options import SparkOptions
from recordpublisher.plugins.spark.python_worker import log_to_stderr
from recordpublisher.plugins.stores.by_location import object_store_of
from recordpublisher.plugins.stores.ports import ObjectStore
from recordpublisher.publishers.errors import (
    ConfigurationError,
    ConsumerError,
    DataLossError,
    DeserializationError,
    FatalKinesisError,
    FencedError,
    PluginError,
    StreamNotFoundError,
)

from .generation import Generation, generation_of
from .lane_run import LaneRun
from .lifeline import DriverGoneError, Lifeline
from .names import SPOOL

LOG = logging.getLogger("recordpublisher.spark")
DRAIN_SECONDS = 20.0
FATAL = (
    ConfigurationError, ConsumerError, DataLossError, DeserializationError, FatalKinesisError, PluginError, StreamNotFoundError,
)  # fmt: skip
"""What a new start would die of too: a person has to look."""


@dataclass(frozen=True, slots=True)
class LaneJob:
    """What the driver tells the tasks; pickled. `token` opens the lifeline at `host`:`port`."""

    options: SparkOptions
    generation: Generation
    host: str
    port: int
    token: str


def run_lane(job: LaneJob, lane: int) -> int:
    """In the task of a lane; answers how many records it has read. Raises: RecordPublisherError."""
    log_to_stderr()
    return asyncio.run(live_in_lane(job, lane))


async def live_in_lane(job: LaneJob, lane: int) -> int:
    """As `run_lane`, on a loop."""
    line = await Lifeline.connect(job.host, job.port, job.token, lane)
    store = object_store_of(job.options.metadata_location, "metadataLocation", job.options.properties)
    try:
        await _check_place(store, job)
        return await until_cut(LaneRun(job.options, store, job.generation, lane), line)
    except Exception as error:
        await line.tell(f"{type(error).__name__}: {error}", isinstance(error, FATAL))
        raise
    finally:
        line.close()
        await store.close()


async def _check_place(store: ObjectStore, job: LaneJob) -> None:
    """Rows that go into a folder of the executor's own, or behind a generation that was forgotten, would never be read."""
    if await generation_of(store, job.generation.number) is not None:
        return
    if await store.get(SPOOL) is not None:
        raise FencedError(f"generation {job.generation.number} of the spool is long over: newer fetchers own it")
    valid = "one place that the driver and every executor see"
    reason = "a task cannot see the driver's spool"
    raise ConfigurationError("metadataLocation", job.options.metadata_location, valid, reason=reason)


async def until_cut(run: LaneRun, line: Lifeline, drain_seconds: float = DRAIN_SECONDS) -> int:
    """Run to the end of the lifeline, and then until what was read is in the spool. Raises: DriverGoneError and what ends the run."""
    work, cut = asyncio.create_task(run.run()), asyncio.create_task(line.until_cut())
    try:
        await asyncio.wait({work, cut}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            run.stop()
            await asyncio.wait({work}, timeout=drain_seconds)
        if not work.done():
            raise DriverGoneError(f"the fetcher did not end within {drain_seconds} s and is given up")
        records = work.result()
        if cut.done() and not cut.result():
            raise DriverGoneError("the driver is gone")
        return records
    finally:
        work.cancel()
        cut.cancel()
        await asyncio.gather(work, cut, return_exceptions=True)
