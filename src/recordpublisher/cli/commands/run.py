"""`recordpublisher run`: a job from its properties file, with its log lines and progress on stderr."""

import asyncio
import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from recordpublisher.fetcher.monitoring.metrics_exporter import MetricsExporter
from recordpublisher.fetcher.pipeline.bounded_runs import Bounds
from recordpublisher.plugins.host.build_from_properties import reads_a_queue
from recordpublisher.plugins.runtime.job_progress import JobProgressMeter
from recordpublisher.publishers.errors import ConfigurationError, RecordPublisherError
from recordpublisher.publishers.initial_position import time_ms, with_oldest_start
from recordpublisher.publishers.log_fields import log_fields
from recordpublisher.publishers.properties.job_properties import JOB_NAME, JOB_WORKERS, STATE_URI
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.reading_properties import RECORD_PUBLISHER
from recordpublisher.publishers.user_code import exc_info_for_log, was_logged

from ..execution import errors_naming_options, one_line
from ..options import Job, PropertyOptions, is_python_job, search_current_folder, with_properties
from ..output import TextLines, given_log_options, logs_json, printable_line
from ..reload import run_reloading

_ENDS = "then store everything and exit 0"

StopAtTip = Annotated[
    bool,
    typer.Option(
        "--stop-at-tip",
        help=f"Read what there is now, {_ENDS}. With this or another bound a job without positions begins at the oldest record.",
    ),
]
Until = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help=f"Read records up to this time (their watermark, by default their arrival) or the tip, {_ENDS}.",
    ),
]
MaxRecords = Annotated[
    int | None, typer.Option("--max-records", metavar="COUNT", min=1, help=f"Read this many records, {_ENDS}.")
]


log = logging.getLogger("recordpublisher.run")
MAX_WORKERS = 1_000
"""More processes than this must be a typing mistake, because a machine has no room for them."""
_LIVE_SECONDS, _LINE_SECONDS = 1.0, 10.0


@with_properties
def run(
    context: typer.Context,
    job: Job,
    options: PropertyOptions,
    parallelism: Annotated[
        int, typer.Option(min=1, max=MAX_WORKERS, help="Processes that share the shards, as with --group.")
    ] = 1,
    group: Annotated[
        bool,
        typer.Option(
            "--group",
            help="Share the shards with every process that runs this job; sets flink.job.workers, except for a queue.",
        ),
    ] = False,
    dashboard: Annotated[
        bool,
        typer.Option(
            "--dashboard", help="Serve a page with the state of all shards on loopback; a log line has its URL."
        ),
    ] = False,
    dashboard_port: Annotated[
        int | None,
        typer.Option(
            metavar="PORT", min=0, max=65_535, help="The same, on this port. --dashboard alone takes a free one."
        ),
    ] = None,
    stop_at_tip: StopAtTip = False,
    until: Until = None,
    max_records: MaxRecords = None,
    reload: Annotated[
        bool,
        typer.Option(
            "--reload", help="For development: start again, at the same position, when a file of this folder changes."
        ),
    ] = False,
    default_state: Annotated[
        str | None, typer.Option(hidden=True, help="flink.state.uri of a job without one.")
    ] = None,
    supervised: Annotated[
        int | None,
        typer.Option(hidden=True, help="Take properties and the end from a supervisor; report to this descriptor."),
    ] = None,
    number: Annotated[int, typer.Option(hidden=True, help="Number of this worker of a supervisor.")] = 0,
    metrics_folder: Annotated[
        Path | None, typer.Option(hidden=True, help="Where the supervisor reads its metrics.")
    ] = None,
) -> None:
    """Run a job until it is stopped: flink.streams into flink.sink, positions at flink.state.uri.

    A program may make the job: shop:job is the DataFetcher job of shop.py, a function that returns one, or an asynccontextmanager that
    yields one. Options and -p take precedence over its own settings and arguments: flink.state.uri replaces a state_store.
    A setting of a sink or a deserializer that the program makes is refused, because it would have no effect.

    Calls are retried for 15 minutes while the service, a state store or a database is unreachable (flink.job.max.outage).
    If DNS does not know a host, the start fails after a few seconds.

    SIGTERM or Ctrl-C drains, takes a checkpoint and exits 0; a second one exits at once.
    With --parallelism, a process that fails ends the job.

    Example: recordpublisher run job.properties

    Example: recordpublisher run job.properties --stop-at-tip
    """
    if reload:
        raise typer.Exit(run_reloading([word for word in sys.argv[1:] if word != "--reload"]))
    # Until the job sets its own handler, there is nothing to finish, so SIGTERM ends the process at once.
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))

    if parallelism == 1:
        # Every log line of this process has the process number as a field.
        context.find_root().with_resource(log_fields(process=number))
    search_current_folder()
    console = configure_logging(context.obj["verbose"])
    try:
        if supervised is not None:
            _run_as_worker(number, supervised, metrics_folder)
        else:
            is_program = is_python_job(job)
            bounds = RunBounds(stop_at_tip, until, max_records, parallelism)
            properties = options.read_job(None if is_program else Path(job))
            if is_program:
                _refuse_processes(job, parallelism)

            def changed(given: Properties) -> Properties:
                if default_state is not None and not given.is_set(STATE_URI):
                    given = given.merged({STATE_URI.key: default_state})
                return bounds.applied(_in_group(given) if group else given)

            log_options = given_log_options(context)
            exporters = _exporters(properties, dashboard_port or 0) if dashboard or dashboard_port is not None else []
            if is_program:
                asyncio.run(_run_program(job, properties, changed, bounds.bounds, console, exporters))
            else:
                given = changed(properties)
                asyncio.run(_run(given, Path(job), parallelism, bounds.bounds, log_options, console, exporters))
    except Exception as error:
        if isinstance(error, (RecordPublisherError, ImportError, OSError)) or context.obj["debug"]:
            raise
        # An error of user code, such as a sink, is reported like one of this package, after its traceback.
        log_traceback(error)
        raise RecordPublisherError(one_line(error)) from error


class RunBounds:
    """The bounds at which a run ends by itself, read from the options, and checked against the properties of the job."""

    def __init__(self, stop_at_tip: bool, until: str | None, max_records: int | None, parallelism: int) -> None:
        """Read the options. Raises: ConfigurationError if `until` is not a time, or if a bound is given and `parallelism` is above 1."""
        self._given = {"--stop-at-tip": stop_at_tip or None, "--until": until, "--max-records": max_records}
        end = None if until is None else time_ms("--until", until)
        self.bounds = Bounds(
            max_records=max_records, until_event_time=end, stop_at_tip=stop_at_tip or until is not None
        )
        if parallelism > 1:
            reason = "the processes share the shards, and none knows how far the others have read"
            self._refuse(f"--parallelism {parallelism}", reason)

    def applied(self, properties: Properties) -> Properties:
        """Return the properties for a run with these bounds.

        Unless the job's properties say where to start, the run begins at the oldest record: from the tip there may be nothing to read.

        Raises: ConfigurationError if a bound is given for a group, or an end time for a queue.
        """
        if properties.value(JOB_WORKERS) == "GROUP":
            reason = "the workers of a group share the shards, and none knows how far the others have read"
            self._refuse(f"{JOB_WORKERS.key}=GROUP", reason)
        if self.bounds.until_event_time is not None and reads_a_queue(properties):
            reason = "a queue keeps no order in time; use --stop-at-tip or --max-records"
            raise ConfigurationError.conflict(
                "--until", f"{RECORD_PUBLISHER.key}={properties.as_given(RECORD_PUBLISHER)}", reason=reason
            )
        return with_oldest_start(properties) if any(self._given.values()) else properties

    def _refuse(self, other: str, reason: str) -> None:
        """Check that no bound was given, because `other` (an option) cannot be combined with bounds. `reason`: why, for the message.

        Raises: ConfigurationError, which names the first given bound.
        """
        for option, value in self._given.items():
            if value is not None:
                raise ConfigurationError.conflict(option, other, reason=reason)


def _in_group(properties: Properties) -> Properties:
    """Return the properties with which a process joins a group.

    Processes share a queue without a group. For a queue, `properties` are returned unchanged.
    """
    return properties if reads_a_queue(properties) else properties.merged({JOB_WORKERS.key: "GROUP"})


def _refuse_processes(job: str, parallelism: int) -> None:
    """Check that `parallelism` is 1, because `job` is a program, which runs in one process. Raises: ConfigurationError if it is higher."""
    if parallelism > 1:
        reason = "a program runs in one process; start several with --group, which share its shards"
        raise ConfigurationError.conflict("--parallelism", job, value=parallelism, reason=reason)


async def _run_program(
    job: str,
    given: Properties,
    change: Callable[[Properties], Properties],
    bounds: Bounds,
    console: object,
    exporters: list[MetricsExporter],
) -> None:
    from recordpublisher.plugins.runtime.job_of_program import run_python_job

    meter = JobProgressMeter(time.monotonic())
    with show_progress(meter, console):
        await run_python_job(job, given, change, meter.update, exporters, bounds)


def log_traceback(error: Exception) -> None:
    """Log the traceback of an error of user code, unless it was logged when the code failed."""
    if exc_info_for_log(error) is not None and not was_logged(error):
        log.error("the job failed", exc_info=exc_info_for_log(error))


def _run_as_worker(number: int, descriptor: int, metrics_folder: Path | None) -> None:
    from recordpublisher.plugins.runtime.supervisor import read_from_supervisor, reporter_to_supervisor, run_process

    properties, supervisor = read_from_supervisor()
    report = reporter_to_supervisor(descriptor)
    asyncio.run(run_process(properties, report, supervisor, metrics_folder, number))


def _exporters(properties: Properties, port: int) -> list[MetricsExporter]:
    """Return the exporter that serves the dashboard on `port`, in a list."""
    from recordpublisher.fetcher.settings import IdleIntervals
    from recordpublisher.plugins.dashboard.snapshots import LiveDashboard

    return [LiveDashboard(port, IdleIntervals.of(properties).shown_ms, properties.value(JOB_NAME))]


async def _run(
    properties: Properties,
    job: Path,
    parallelism: int,
    bounds: Bounds,
    options: list[str],
    console: object,
    exporters: list[MetricsExporter],
) -> None:
    from recordpublisher.plugins.runtime.stream_names import streams_of
    from recordpublisher.plugins.runtime.supervisor import run_process

    streams_of(properties)
    meter = JobProgressMeter(time.monotonic())
    with show_progress(meter, console), errors_naming_options(port="--dashboard-port"):
        if parallelism == 1:
            await run_process(properties, meter.update, more_exporters=exporters, bounds=bounds)
        else:
            await _supervise(properties, job, parallelism, options, meter, exporters)


async def _supervise(
    properties: Properties,
    job: Path,
    parallelism: int,
    options: list[str],
    meter: JobProgressMeter,
    exporters: list[MetricsExporter],
) -> None:
    from recordpublisher.plugins.metrics.worker_processes import exported_from_processes
    from recordpublisher.plugins.runtime.supervisor import Supervisor, properties_of_group

    command = [sys.executable, "-m", "recordpublisher", "run", str(job)]
    with properties_of_group(properties) as of_workers:
        async with exported_from_processes(properties, parallelism, exporters) as metrics_folder:
            if metrics_folder is not None:
                options = [*options, "--metrics-folder", str(metrics_folder)]
            await Supervisor([*command, *options], of_workers, parallelism, meter.update).run()


def configure_logging(verbose: bool) -> Any:
    """Set up logging, and return rich's console on a terminal, else None."""
    for name in ("run", "start", "metrics", "group", "columns"):
        shown = logging.getLogger(f"recordpublisher.{name}")
        shown.setLevel(min(logging.INFO, shown.getEffectiveLevel()))
    if logs_json() or not sys.stderr.isatty() or verbose:
        return None
    from rich.console import Console
    from rich.logging import RichHandler

    console = Console(stderr=True)
    handler = RichHandler(console=console, show_path=False, log_time_format="%Y-%m-%dT%H:%M:%S%z")
    handler.setFormatter(TextLines(has_head=False))
    logging.getLogger().handlers = [handler]
    return console


@contextmanager
def show_progress(meter: JobProgressMeter, console: Any) -> Iterator[None]:
    """Show the meter while the block runs. Needs a running event loop."""
    showing = asyncio.ensure_future(_lines(meter) if console is None else _live(meter, console))
    try:
        yield
    finally:
        showing.cancel()
        _log_progress(meter)


async def _lines(meter: JobProgressMeter) -> None:
    while True:
        await asyncio.sleep(_LINE_SECONDS)
        _log_progress(meter)


async def _live(meter: JobProgressMeter, console: Any) -> None:
    from rich.text import Text

    with console.status("starting") as status:
        while True:
            await asyncio.sleep(_LIVE_SECONDS)
            if meter.has_reports:
                # Not a plain text, in which rich would take the brackets of an error for its own marks.
                status.update(Text(printable_line(str(meter.sample(time.monotonic())))))


def _log_progress(meter: JobProgressMeter) -> None:
    if not meter.has_reports:
        return
    total = meter.sample(time.monotonic())
    log.info("%s", total, extra={"fields": {"progress": asdict(total)}})
