"""`run_subtask`: runs one subtask of a job in this process, from its properties, until it ends or a signal drains it."""

import asyncio
import gc
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from recordpublisher.fetcher.checkpoints.assignment_kinds import ANOTHER_PLACE
from recordpublisher.fetcher.monitoring.metrics_exporter import MetricsExporter
from recordpublisher.fetcher.monitoring.progress import SubtaskProgress
from recordpublisher.plugins.host.build_from_properties import build_metrics_exporters
from recordpublisher.plugins.host.manager import load_registry
from recordpublisher.plugins.lag.stored_positions import without_positions
from recordpublisher.plugins.metrics.export import FetchersHere, exporters_opened
from recordpublisher.publishers.errors import FencedError
from recordpublisher.publishers.properties.groups.discovery_and_state import SHARD_ASSIGNMENT
from recordpublisher.publishers.properties.groups.job import SINK
from recordpublisher.publishers.properties.max_outage import MAX_OUTAGE
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.retry import duration_words

from ..data_fetcher import DataFetcher
from ..stream_names import streams_argument
from .termination import call_on_eof, stop_on_signals, tell_what_drains

log = logging.getLogger("recordpublisher.run")
_REPORT_SECONDS = 1.0


async def run_subtask(
    properties: Properties,
    subtask: int,
    parallelism: int,
    report: Callable[[SubtaskProgress], None],
    supervisor: int | None = None,
    metrics_folder: Path | None = None,
    more_exporters: Sequence[MetricsExporter] = (),
) -> None:
    """Read, write and checkpoint until a signal, an error, or the end of the streams; a signal drains and checkpoints.

    `report` is called with the progress once a second. `supervisor` is a pipe whose end of file means: drain. Metrics go through
    `more_exporters`, and where the properties say; or into `metrics_folder`, from where the supervisor reads them. Raises:
    RecordPublisherError and errors of the sink.
    """
    fetcher = DataFetcher(streams_argument(properties), properties, subtask=subtask, parallelism=parallelism)
    if words := without_positions(load_registry().sinks.get(properties.value(SINK) or "", SINK.key), properties):
        log.warning("%s", words)
    exporters = [*_metrics_exporters(properties, subtask, metrics_folder), *more_exporters]
    await run_fetcher(fetcher, report, exporters, supervisor)


async def run_fetcher(
    fetcher: DataFetcher,
    report: Callable[[SubtaskProgress], None],
    exporters: Sequence[MetricsExporter],
    supervisor: int | None = None,
) -> None:
    """The same for a fetcher that was made, and not opened."""
    properties, subtask = fetcher.properties, fetcher.subtask
    draining = asyncio.Event()
    opening: asyncio.Task[DataFetcher] | None = None
    telling: list[asyncio.Task[None]] = []

    def drain() -> None:
        draining.set()
        log.info("subtask %d is draining", subtask)
        telling.append(asyncio.create_task(tell_what_drains(subtask, properties.value(SINK), fetcher.sink_unfinished)))
        fetcher.stop()
        if opening is not None:
            opening.cancel()  # nothing was read yet, and the service may be silent for minutes

    stop_on_signals(drain)
    if supervisor is not None:
        os.set_blocking(supervisor, False)
        call_on_eof(supervisor, drain)
    # Detect now that the supervisor is already gone: a subtask that starts late would fence off the subtask of the next supervisor.
    await asyncio.sleep(0.01)
    if draining.is_set():
        return
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(exporters_opened(exporters, FetchersHere([fetcher])))
        opening = asyncio.create_task(stack.enter_async_context(fetcher))
        stack.callback(opening.cancel)
        await asyncio.wait([opening])
        if opening.cancelled() and draining.is_set():
            log.info("subtask %d ended before it read anything", subtask)
            return
        await opening
        if properties.value(SHARD_ASSIGNMENT) == "ELASTIC":
            log.info("a worker of a group reads %s", ", ".join(fetcher.streams))
        max_outage = duration_words(properties.value(MAX_OUTAGE) / 1000)
        log.info("calls are retried for %s while a service is away (%s)", max_outage, MAX_OUTAGE.key)
        reporting = asyncio.create_task(_report(fetcher, report))
        try:
            result = await fetcher.run_bounded()  # `run` logs the error, which the command prints
        except FencedError as error:
            error.add_note(
                f"if that was another job, give it {ANOTHER_PLACE}; --elastic lets processes share the shards"
            )
            raise
        finally:
            reporting.cancel()
        report(fetcher.progress())
    log.info("subtask %d ended: %s", subtask, result)


def _metrics_exporters(properties: Properties, subtask: int, metrics_folder: Path | None) -> list[MetricsExporter]:
    if metrics_folder is None:
        return build_metrics_exporters(load_registry(), properties)
    from recordpublisher.plugins.metrics.subtask_processes import SubtaskSocket

    return [SubtaskSocket(metrics_folder, subtask)]


def _freeze_heap() -> None:
    """Exclude what is imported by now, pandas too by pyarrow, from garbage collections: to scan hundreds of thousands of objects again and
    again took a fifth of the CPU of JSON that becomes dataclasses and then Parquet."""
    gc.collect()
    gc.freeze()


async def _report(fetcher: DataFetcher, report: Callable[[SubtaskProgress], None]) -> None:
    await asyncio.sleep(_REPORT_SECONDS)
    _freeze_heap()
    while True:
        report(fetcher.progress())
        await asyncio.sleep(_REPORT_SECONDS)
