"""Runs a job in one process (`run_process`), or in several that share its shards as a group (`Supervisor`).

The processes drain together, and all of them end when one fails.
"""

import asyncio
import gc
import json
import logging
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from recordpublisher.fetcher.checkpoints.snapshot_format import ANOTHER_PLACE
from recordpublisher.fetcher.monitoring.metrics_exporter import MetricsExporter
from recordpublisher.fetcher.monitoring.worker_view import WorkerProgress
from recordpublisher.fetcher.pipeline.bounded_runs import Bounds, EndReason
from recordpublisher.fetcher.sink import stores_positions
from recordpublisher.publishers.errors import FencedError, StreamNotFoundError
from recordpublisher.publishers.properties.job_properties import DRAIN_TIMEOUT, JOB_WORKERS, SINK, STATE_URI
from recordpublisher.publishers.properties.properties import Properties
from recordpublisher.publishers.properties.retry_properties import MAX_OUTAGE
from recordpublisher.publishers.retry import duration_words
from recordpublisher.publishers.user_code import add_note

from ..host.build_from_properties import build_metrics_exporters, calls_a_service, reads_a_queue
from ..host.plugin_loading import load_registry
from ..lag.job_state import effect_of_no_positions
from ..metrics.export import FetchersOfProcess, open_exporters
from .data_fetcher import DataFetcher
from .stop_signals import CLOSING_SECONDS, WorkerFailedError, call_on_eof, stop_on_signals
from .stream_names import streams_argument

_REPORT_SECONDS = 1.0
UNBOUNDED = Bounds()
LAST_REPORT_SECONDS = 1.0
"""How long to wait for the last report of a worker that has ended.

A child process of the worker may keep the pipe open after the worker has ended.
"""


class Supervisor:
    """Starts the worker processes of a job, and restarts none: if one fails, all of them end. Owns the processes and the pipes to them.

    - A worker reports its progress through a pipe of its own, because user code may print to the stdout that it shares with the
      supervisor.
    - A worker reads its properties from its stdin, so no secret is on a command line. The pipe stays open. When it is closed, the worker
      drains. The death of the supervisor closes it too, so no worker keeps running.
    - Each worker has a session of its own, so Ctrl-C reaches only the supervisor.

    The argument `command` starts a worker when `--number N --supervised DESCRIPTOR` is added.
    """

    def __init__(
        self,
        command: Sequence[str],
        properties: Properties,
        count: int,
        report: Callable[[WorkerProgress], None],
    ) -> None:
        self._command = command
        self._properties = properties
        self._count = count
        self._report = report
        self._drain_seconds = properties.value(DRAIN_TIMEOUT) / 1000 + CLOSING_SECONDS
        self._processes: dict[int, Process] = {}
        self._progress: dict[int, asyncio.StreamReader] = {}
        self._last: dict[int, WorkerProgress] = {}
        """The last report of each worker."""
        self._is_draining = False

    async def run(self) -> None:
        """Run the workers until all have ended. Raises: WorkerFailedError, after that, for the first worker that failed."""
        stop_on_signals(self._drain, self._kill)
        try:
            for number in range(self._count):
                if not self._is_draining:
                    await self._start(number)
            await self._wait_for_all()
        finally:
            self._kill()

    async def _start(self, number: int) -> None:
        ours, theirs = os.pipe()
        self._progress[number] = await _reader_of(ours)
        arguments = ("--number", str(number), "--supervised", str(theirs))
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command, *arguments, stdin=PIPE, pass_fds=(theirs,), start_new_session=True
            )
        finally:
            # This process closes its copy, because otherwise the pipe would not end when the worker ends.
            os.close(theirs)
        self._processes[number] = process
        if process.stdin is not None:
            process.stdin.write(json.dumps(dict(self._properties)).encode() + b"\n")
        if self._is_draining:
            self._drain()

    async def _wait_for_all(self) -> None:
        watching = {asyncio.create_task(self._watch(number)) for number in self._processes}
        failed: WorkerFailedError | None = None
        timeout = None
        while watching:
            done, watching = await asyncio.wait(watching, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                log.error(
                    "workers did not drain within %.0f s and are killed: records after their last checkpoint are read again",
                    self._drain_seconds,
                )
                self._kill()
            for task in done:
                failed = failed or task.result()
            if failed and timeout is None:
                log.error("%s", failed)
                self._drain()
                timeout = self._drain_seconds
        if failed:
            raise failed

    async def _watch(self, number: int) -> WorkerFailedError | None:
        reading = asyncio.create_task(self._read_progress(number, self._progress[number]))
        try:
            code = await self._processes[number].wait()
            await asyncio.wait([reading], timeout=LAST_REPORT_SECONDS)
        finally:
            reading.cancel()
        others = [process for process in self._processes.values() if process.returncode is None]
        if others and not self._is_draining and (last := self._last.get(number)) is not None:
            # The worker has left the group, and the others have its shards now.
            self._report(
                msgspec.structs.replace(
                    last, open_shards=0, idle_shards=0, held_shards=0, lag_ms=None, unread_ms=None, read_failure=None
                )
            )
        return WorkerFailedError(number, code) if code else None

    async def _read_progress(self, number: int, reader: asyncio.StreamReader) -> None:
        """Read the reports of a worker until its pipe ends, and pass them on. Ignore lines that are not valid reports."""
        while True:
            try:
                line = await reader.readline()
                if not line:
                    return
                progress = msgspec.json.decode(line, type=WorkerProgress)
                self._last[number] = msgspec.structs.replace(progress, process=number)
                self._report(self._last[number])
            except ValueError as error:  # ValueError is also raised for a line that is too long.
                log.debug("a worker sent an invalid report: %s", error)

    def _drain(self) -> None:
        log.info("the job is draining: it ends the current writes and takes a last checkpoint")
        self._is_draining = True
        for process in self._processes.values():
            if process.stdin is not None:
                process.stdin.close()

    def _kill(self) -> None:
        for process in self._processes.values():
            if process.returncode is None:
                process.kill()


async def run_process(
    properties: Properties,
    report: Callable[[WorkerProgress], None],
    supervisor: int | None = None,
    metrics_folder: Path | None = None,
    number: int = 0,
    more_exporters: Sequence[MetricsExporter] = (),
    bounds: Bounds = UNBOUNDED,
) -> None:
    """Read, write and checkpoint until a signal, an error, a bound, or the end of the streams. After a signal, drain and take a checkpoint.

    - `report`: called with the progress once a second.
    - `supervisor`: descriptor of the pipe from the supervisor. When the pipe is closed, this process drains.
    - `metrics_folder`: folder from which the supervisor reads the metrics. Without it this process exports them, as the properties say.
    - `number`: number of this worker under its supervisor.
    - `more_exporters`: exporters in addition to those that the properties name.
    - `bounds`: the bounds at which the run ends by itself.

    Raises: RecordPublisherError if reading or storing fails; StreamNotFoundError if every stream was deleted; errors of the sink.
    """
    fetcher = DataFetcher(streams_argument(properties), properties)
    if words := effect_of_no_positions(load_registry().sinks.get(properties.value(SINK) or "", SINK.key), properties):
        log.warning("%s", words)
    exporters = [*_metrics_exporters(properties, number, metrics_folder), *more_exporters]
    await run_fetcher(fetcher, report, exporters, supervisor, bounds)


async def run_fetcher(
    fetcher: DataFetcher,
    report: Callable[[WorkerProgress], None],
    exporters: Sequence[MetricsExporter],
    supervisor: int | None = None,
    bounds: Bounds = UNBOUNDED,
) -> None:
    """Run a fetcher that is not open yet. The arguments and the end of the run are those of `run_process`."""
    properties = fetcher.properties
    draining = asyncio.Event()

    def drain() -> None:
        draining.set()
        log.info("the job is draining: it ends the current writes and takes a last checkpoint")
        fetcher.stop()

    stop_on_signals(drain)
    if supervisor is not None:
        os.set_blocking(supervisor, False)
        call_on_eof(supervisor, drain)
    # The loop needs this pause to notice that the supervisor is already gone. Without it, a process that starts late would replace the
    # worker of the next supervisor.
    await asyncio.sleep(0.01)
    if draining.is_set():
        return
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(open_exporters(exporters, FetchersOfProcess([fetcher])))
        await stack.enter_async_context(fetcher)
        if draining.is_set():
            log.info("the job ended before it read anything")
            return
        if properties.value(JOB_WORKERS) == "GROUP":
            log.info("this process reads %s as a worker of a group", ", ".join(fetcher.streams))
        max_outage = duration_words(properties.value(MAX_OUTAGE) / 1000)
        if calls_a_service(properties):
            log.info("calls are retried for %s while a service is unreachable (%s)", max_outage, MAX_OUTAGE.key)
        reporting = asyncio.create_task(_report(fetcher, report))
        try:
            # `run` is not used, because it would log the error, which the command prints as well.
            result = await fetcher.run_bounded(
                max_records=bounds.max_records,
                until_event_time=bounds.until_event_time,
                stop_at_tip=bounds.stop_at_tip,
            )
        except FencedError as error:
            add_note(
                error, f"if that was another job, give it {ANOTHER_PLACE}; --group lets processes share the shards"
            )
            raise
        finally:
            reporting.cancel()
        report(fetcher.progress())
    log.info("the job ended: %s", result)
    if result.reason is EndReason.STREAMS_DELETED:
        # A job without bounds has not finished: when a stream of this name exists again, a supervisor can start the job.
        raise StreamNotFoundError(fetcher.streams[0])


def _metrics_exporters(properties: Properties, number: int, metrics_folder: Path | None) -> list[MetricsExporter]:
    if metrics_folder is None:
        return build_metrics_exporters(load_registry(), properties)
    from recordpublisher.plugins.metrics.worker_processes import WorkerSocket

    return [WorkerSocket(metrics_folder, number)]


def _freeze_heap() -> None:
    """Exclude all objects that exist now from garbage collections.

    Imported modules have hundreds of thousands of objects. Scanning them again and again took a fifth of the CPU time of a job that decodes
    JSON and writes Parquet files.
    """
    gc.collect()
    gc.freeze()


async def _report(fetcher: DataFetcher, report: Callable[[WorkerProgress], None]) -> None:
    await asyncio.sleep(_REPORT_SECONDS)
    _freeze_heap()
    while True:
        report(fetcher.progress())
        await asyncio.sleep(_REPORT_SECONDS)


log = logging.getLogger("recordpublisher.run")


def read_from_supervisor() -> tuple[Properties, int]:
    """Return the properties of this worker, and the descriptor of the pipe that is closed when the worker must drain."""
    line = sys.stdin.readline()
    return Properties(json.loads(line)), sys.stdin.fileno()


def reporter_to_supervisor(descriptor: int) -> Callable[[WorkerProgress], None]:
    """Return a function that writes one line for each report. Called in a worker.

    The function raises no error if the supervisor is gone or does not read. A supervisor that is gone has closed the worker's stdin, which
    drains the worker.
    """
    os.set_inheritable(descriptor, False)
    os.set_blocking(descriptor, False)

    def report(progress: WorkerProgress) -> None:
        try:
            os.write(descriptor, msgspec.json.encode(progress) + b"\n")
        except (BrokenPipeError, BlockingIOError):
            log.debug("a report of progress was dropped, because the supervisor does not read its pipe")

    return report


async def _reader_of(descriptor: int) -> asyncio.StreamReader:
    """Return a reader of the pipe `descriptor`. It closes the pipe when the other end is closed."""
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb", 0))
    return reader


@contextmanager
def properties_of_group(properties: Properties) -> Iterator[Properties]:
    """Yield the properties with which several processes run the job and share its shards as a group.

    If the job stores no positions, the leases are in a temporary folder, which is deleted at the end. The properties of a job that reads a
    queue stay as they are.

    Raises: ConfigurationError if the sink is not registered.
    """
    if reads_a_queue(properties):
        yield properties
        return
    group = properties.merged({JOB_WORKERS.key: "GROUP"})
    name = properties.value(SINK)
    sink = None if name is None else load_registry().sinks.get(name, SINK.key)
    if properties.value(STATE_URI) is not None or (sink is not None and stores_positions(sink)):
        yield group
        return
    with TemporaryDirectory(prefix="recordpublisher-") as folder:
        yield group.merged({STATE_URI.key: folder})
