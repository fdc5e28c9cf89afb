"""Runs a job in this process, from its properties, until it ends or a signal drains it."""

import asyncio
import gc
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

from recordpublisher.fetcher.checkpoints.snapshot import ANOTHER_PLACE
from recordpublisher.fetcher.monitoring.metrics_exporter import MetricsExporter
from recordpublisher.fetcher.monitoring.progress import SubtaskProgress
from recordpublisher.fetcher.pipeline.bounds import Bounds
from recordpublisher.plugins.host.build_from_properties import build_metrics_exporters
from recordpublisher.plugins.host.manager import load_registry
from recordpublisher.plugins.host.source_kind import calls_a_service
from recordpublisher.plugins.lag.job_state import without_positions
from recordpublisher.plugins.metrics.export import FetchersHere, exporters_opened
from recordpublisher.publishers.errors import FencedError
from recordpublisher.publishers.properties.groups.job import JOB_WORKERS, SINK
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.retry_properties import MAX_OUTAGE
from recordpublisher.publishers.retry import duration_words

from ..data_fetcher import DataFetcher
from ..stream_names import streams_argument
from .termination import call_on_eof, stop_on_signals

log = logging.getLogger("recordpublisher.run")
_REPORT_SECONDS = 1.0
UNBOUNDED = Bounds()


async def run_process(
    properties: Properties,
    report: Callable[[SubtaskProgress], None],
    supervisor: int | None = None,
    metrics_folder: Path | None = None,
    number: int = 0,
    more_exporters: Sequence[MetricsExporter] = (),
    bounds: Bounds = UNBOUNDED,
) -> None:
    """Read, write and checkpoint until a signal, an error, a bound, or the end of the streams. After a signal, drain and take a checkpoint.

    - `report`: called with the progress once a second.
    - `supervisor`: descriptor of a pipe. Its end of file means that the process must drain.
    - `metrics_folder`: folder from which the supervisor reads the metrics. Without it they are exported as the properties say.
    - `number`: number of this worker of a supervisor.
    - `more_exporters`: export the metrics too.
    - `bounds`: end the run by itself.

    Raises: RecordPublisherError if reading or storing fails, and errors of the sink.
    """
    fetcher = DataFetcher(streams_argument(properties), properties)
    if words := without_positions(load_registry().sinks.get(properties.value(SINK) or "", SINK.key), properties):
        log.warning("%s", words)
    exporters = [*_metrics_exporters(properties, number, metrics_folder), *more_exporters]
    await run_fetcher(fetcher, report, exporters, supervisor, bounds)


async def run_fetcher(
    fetcher: DataFetcher,
    report: Callable[[SubtaskProgress], None],
    exporters: Sequence[MetricsExporter],
    supervisor: int | None = None,
    bounds: Bounds = UNBOUNDED,
) -> None:
    """Do the same with a fetcher that was made and not opened."""
    properties = fetcher.properties
    draining = asyncio.Event()
    opening: asyncio.Task[DataFetcher] | None = None

    def drain() -> None:
        draining.set()
        log.info("the job is draining")
        fetcher.stop()
        if opening is not None:
            opening.cancel()  # Nothing was read yet, and the service may not answer for minutes.

    stop_on_signals(drain)
    if supervisor is not None:
        os.set_blocking(supervisor, False)
        call_on_eof(supervisor, drain)
    # Detect now that the supervisor is already gone: a process that starts late would replace the one of the next supervisor.
    await asyncio.sleep(0.01)
    if draining.is_set():
        return
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(exporters_opened(exporters, FetchersHere([fetcher])))
        opening = asyncio.create_task(stack.enter_async_context(fetcher))
        stack.callback(opening.cancel)
        await asyncio.wait([opening])
        if opening.cancelled() and draining.is_set():
            log.info("the job ended before it read anything")
            return
        await opening
        if properties.value(JOB_WORKERS) == "GROUP":
            log.info("a worker of a group reads %s", ", ".join(fetcher.streams))
        max_outage = duration_words(properties.value(MAX_OUTAGE) / 1000)
        if calls_a_service(properties):
            log.info("calls are retried for %s while a service is away (%s)", max_outage, MAX_OUTAGE.key)
        reporting = asyncio.create_task(_report(fetcher, report))
        try:
            # `run` would log the error that the command prints.
            result = await fetcher.run_bounded(
                max_records=bounds.max_records,
                until_event_time=bounds.until_event_time,
                stop_at_tip=bounds.stop_at_tip,
            )
        except FencedError as error:
            error.add_note(f"if that was another job, give it {ANOTHER_PLACE}; --group lets processes share the shards")
            raise
        finally:
            reporting.cancel()
        report(fetcher.progress())
    log.info("the job ended: %s", result)


def _metrics_exporters(properties: Properties, number: int, metrics_folder: Path | None) -> list[MetricsExporter]:
    if metrics_folder is None:
        return build_metrics_exporters(load_registry(), properties)
    from recordpublisher.plugins.metrics.worker_processes import WorkerSocket

    return [WorkerSocket(metrics_folder, number)]


def _freeze_heap() -> None:
    """Exclude all objects that exist now from garbage collections.

    Imported modules have hundreds of thousands of objects (pyarrow also imports pandas). Scanning them again and again took a fifth of the
    CPU time of a job that decodes JSON into dataclasses and writes Parquet files.
    """
    gc.collect()
    gc.freeze()


async def _report(fetcher: DataFetcher, report: Callable[[SubtaskProgress], None]) -> None:
    await asyncio.sleep(_REPORT_SECONDS)
    _freeze_heap()
    while True:
        report(fetcher.progress())
        await asyncio.sleep(_REPORT_SECONDS)
