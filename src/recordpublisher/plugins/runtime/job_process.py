"""Runs a job in this process, from its properties, until it ends or a signal drains it."""

import asyncio
import gc
import inspect
import logging
import os
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

from recordpublisher.fetcher.checkpoints.snapshot import ANOTHER_PLACE
from recordpublisher.fetcher.monitoring.metrics_exporter import MetricsExporter
from recordpublisher.fetcher.monitoring.progress import SubtaskProgress
from recordpublisher.fetcher.pipeline.bounds import Bounds
from recordpublisher.publishers.errors import ConfigurationError, FencedError
from recordpublisher.publishers.properties.function_property import imported
from recordpublisher.publishers.properties.groups.job import JOB_WORKERS, SINK
from recordpublisher.publishers.properties.groups.reading import REGISTRATION
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.retry_properties import MAX_OUTAGE
from recordpublisher.publishers.retry import duration_words
from recordpublisher.publishers.user_code import ForeignExitError, exits_as_errors, takes

from ..host.build_from_properties import build_metrics_exporters
from ..host.manager import load_registry
from ..host.source_kind import calls_a_service
from ..lag.job_state import without_positions
from ..metrics.export import FetchersHere, exporters_opened
from .arguments import OF_COMMAND, CommandOptions
from .data_fetcher import DataFetcher
from .stop_signals import call_on_eof, stop_on_signals
from .stream_names import streams_argument

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


# Runs a job that a program makes: `recordpublisher run shop:job`.

VALID = "module:name of a DataFetcher, or of a function, plain or async, that returns one or, as an asynccontextmanager, yields one"


async def run_python_job(
    job: str,
    given: Properties,
    change: Callable[[Properties], Properties],
    report: Callable[[SubtaskProgress], None],
    exporters: Sequence[MetricsExporter],
    bounds: Bounds = UNBOUNDED,
) -> None:
    """Run the job as `run_process` does.

    - `given`: properties that take precedence over the job's own.
    - `change`: applied to the properties after that.

    Raises: the errors of `run_process` and of the program.
    """
    OF_COMMAND.set(CommandOptions(given, change))
    async with made_fetcher(job) as fetcher:
        fetcher.tell_of_lost_positions()
        own = build_metrics_exporters(load_registry(), fetcher.properties)
        await run_fetcher(fetcher, report, [*own, *exporters], bounds=bounds)


def properties_of_program(job: str, given: Mapping[str, str]) -> Properties:
    """Return the properties of the job's fetcher, for a command that describes the job.

    - `given`: properties that take precedence over the job's own.

    Raises: the errors of `run_python_job`.
    """

    async def made() -> Properties:
        async with fetcher_beside(job, given) as fetcher:
            return fetcher.described()

    return asyncio.run(made())


@asynccontextmanager
async def fetcher_beside(job: str, given: Mapping[str, str]) -> AsyncIterator[DataFetcher]:
    """Yield the job's fetcher for a command that runs next to the job. It registers no consumer of enhanced fan-out.

    Raises: the errors of `made_fetcher`.
    """

    def change(own: Properties) -> Properties:
        return own.merged({REGISTRATION.key: "LAZY"}) if own.value(REGISTRATION) == "EAGER" else own

    OF_COMMAND.set(CommandOptions(Properties(given), change))
    async with made_fetcher(job) as fetcher:
        yield fetcher


@asynccontextmanager
async def made_fetcher(job: str) -> AsyncIterator[DataFetcher]:
    """Yield the fetcher, not opened. Resources that the program's function has opened around its `yield` are closed at the end.

    Raises: ConfigurationError if the name does not lead to a DataFetcher, or if the function cannot be called.
    """
    made = imported(job, "JOB", VALID)
    if callable(made):
        if not takes(made, 0):
            raise ConfigurationError("JOB", job, VALID, reason="it cannot be called without arguments")
        try:
            with exits_as_errors(is_import=False):
                made = made()
                if inspect.isawaitable(made):
                    made = await made
        except ForeignExitError as error:
            raise ConfigurationError("JOB", job, VALID, reason=str(error)) from error
    async with AsyncExitStack() as opened:
        if not isinstance(made, DataFetcher) and hasattr(made, "__aenter__"):
            made = await opened.enter_async_context(made)
        if not isinstance(made, DataFetcher):
            raise ConfigurationError("JOB", job, VALID, reason=f"it is, returns or yields {type(made).__name__}")
        yield made
